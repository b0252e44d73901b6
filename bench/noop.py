"""The jobs of the benchmarks: nothing, and nothing but a mark that it has begun."""

import time
from typing import Any

from bench.marks import mark
from jqd import App

SLOW_S = 0.1

app = App()


@app.job(name="noop")
def noop(argument: Any, /) -> None:
    """Do nothing with it."""


@app.job(name="bench-marked")
def marked(argument: str, /) -> None:
    """Mark that it has begun."""
    mark(argument)


@app.job(name="bench-slow")
def slow(argument: str, /) -> None:
    """The same, and take a while, so that some are at work at any time."""
    mark(argument)
    time.sleep(SLOW_S)
