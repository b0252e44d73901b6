"""The job of the benchmarks: nothing."""

from typing import Any

from jqd import App

app = App()


@app.job(name="noop")
def noop(argument: Any, /) -> None:
    """Do nothing with it."""
