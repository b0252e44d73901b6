"""A worker of jobs that have to do with others."""

from typing import Any

from jqd import App

app = App()


@app.job(keep_result=True)
def double(number: int) -> int:
    return 2 * number


@app.job(keep_result=True)
def total(numbers: list[int | None], /) -> int:
    return sum(number or 0 for number in numbers)


@app.job(keep_result=True, max_retry=0)
def fragile(good: bool) -> str:
    if not good:
        raise ValueError("it was told to fail")
    return "well"


@app.job(keep_result=True)
def show(argument: Any, /) -> Any:
    return argument


@app.job
def many(letters: int, /) -> str:
    return "x" * letters


@app.job
def increase(number: int) -> int:
    return number + 1
