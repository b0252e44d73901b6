"""The example worker that `jqd dev` starts. Its jobs show the ways in which a job may behave."""

import trio

from jqd import App, current

app = App()

FLAKY_FAILURES = 2  # attempts of `flaky` that fail before one succeeds


@app.job(keep_result=True)
def echo(argument: object, /) -> object:
    """Return the argument."""
    return argument


@app.job(keep_result=True)
def add(numbers: list[int | float], /) -> int | float:
    """Return the sum of a list of numbers. Another argument fails without retries, as a retry would not help."""
    return sum(numbers)


@app.job(timeout=3600)
async def sleep(seconds: float, /) -> float:
    """Sleep for so many seconds, as a task that needs no thread."""
    await trio.sleep(seconds)
    return seconds


@app.job(max_retry=2)
def fail(argument: object, /) -> None:
    """Fail at each attempt. After its retries the job is kept with this error until somebody deals with it."""
    raise RuntimeError(f"told to fail with {argument!r}")


@app.job(max_retry=5, keep_result=True)
def flaky(argument: object, /) -> str:
    """Fail at the first FLAKY_FAILURES attempts, then succeed."""
    context = current()
    if context.attempt <= FLAKY_FAILURES:
        raise ConnectionError(f"attempt {context.attempt} met a hindrance that will pass")
    return f"{argument!r} took {context.attempt} attempts"
