"""The worker of the live tests: notes every start and end in an O_APPEND file before it answers."""

import json
import os
import time
from typing import Any

import trio

from jqd import App, Cancelled, Context, Failed, Retry, current

app = App()


def _note(event: str, context: Context) -> None:
    # One write call to an O_APPEND file: whole lines, in order, also when this process is killed.
    line = json.dumps({"event": event, "job_id": context.job_id, "attempt": context.attempt}) + "\n"
    fd = os.open(os.environ["JQD_TEST_BOOK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@app.job(name="square")
def square(argument: Any, /) -> Any:
    context = current()
    _note("start", context)
    result = {"n": argument["n"], "square": argument["n"] ** 2}
    _note("end", context)
    return result


@app.job(name="cube")
def cube(argument: Any, /) -> Any:
    """As `square`; of two partitions of a store it lives in the other one."""
    context = current()
    _note("start", context)
    result = {"n": argument["n"], "cube": argument["n"] ** 3}
    _note("end", context)
    return result


@app.job(name="slow")
async def slow(argument: Any, /) -> Any:
    context = current()
    _note("start", context)
    try:
        await trio.sleep(argument)
    except trio.Cancelled:
        _note("stop", context)  # it was cancelled, or its daemon is gone
        raise
    _note("end", context)
    return argument


@app.job(name="patient")
def patient(argument: Any, /) -> Any:
    """A thread that looks whether it was cancelled."""
    context = current()
    _note("start", context)
    ends_at = time.monotonic() + argument
    while time.monotonic() < ends_at:
        if context.cancelled:
            raise Cancelled("told to stop")
        time.sleep(0.01)
    _note("end", context)
    return argument


@app.job(name="moody")
def moody(argument: Any, /) -> Any:
    """Does what its argument says: fails, asks for another try, or succeeds from the third attempt on."""
    context = current()
    _note("start", context)
    if argument == "fail":
        raise Failed("the data are wrong", error={"field": "x"})
    if argument == "retry":
        raise Retry(after=0.05)
    if argument == "crash":
        raise ValueError("on purpose")
    if context.attempt < 3:
        raise Retry(after=0.02, message="not yet")
    return "at last"


@app.job(name="noop")
def noop(argument: Any, /) -> None:
    """Ends sooner than it could be noted."""


@app.job(name="nested")
def nested(levels: int, /) -> Any:
    """Returns so many arrays, one in the other."""
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


@app.job(name="neighbour")
def neighbour(argument: Any, /) -> None:
    """Sleeps for as long as it is told, or takes the process down with all that is in it."""
    context = current()
    _note("start", context)
    if argument == "exit":
        os._exit(7)
    time.sleep(argument)
