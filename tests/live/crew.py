"""The app of the live tests of `--processes`: notes what runs where, and hangs, crashes and waits as it is told."""

import asyncio
import json
import logging
import os
import subprocess
import time
from typing import Any

import trio

from jqd import App, Context, current

app = App()


def note(event: str, context: Context) -> None:
    """One line in the book, also when this process is killed right after."""
    told = {"event": event, "job_id": context.job_id, "attempt": context.attempt, "pid": os.getpid()}
    fd = os.open(os.environ["JQD_TEST_BOOK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (json.dumps(told) + "\n").encode())
    finally:
        os.close(fd)


def code() -> str:
    """Which code this process has loaded."""
    with open(os.environ["JQD_TEST_BOOK"] + ".code") as file:
        return file.read()


CODE = code()


@app.job(keep_result=True)
def work(argument: float, /) -> Any:
    """Takes so many seconds."""
    context = current()
    note("start", context)
    logging.getLogger("shop").info("works for %s s", argument)
    time.sleep(argument)
    note("end", context)
    return [CODE, os.getpid()]


@app.job(keep_result=True, timeout=1.0, max_retry=0)
def hang(argument: Any, /) -> None:
    """Never ends, nor does the program it has started."""
    context = current()
    note("start", context)
    child = subprocess.Popen(["sleep", "600"])
    with open(argument, "w") as file:
        file.write(str(child.pid))
    child.wait()


@app.job(keep_result=True, max_retry=1)
def crash(argument: Any, /) -> None:
    """Takes its process down."""
    context = current()
    note("start", context)
    os._exit(3)


@app.job(keep_result=True, timeout=60, loop="asyncio")
async def doze(argument: Any, /) -> Any:
    context = current()
    note("start", context)
    await asyncio.sleep(argument)
    note("end", context)
    return CODE


@app.job(keep_result=True, timeout=60)
async def nap(argument: Any, /) -> Any:
    """Sleeps so many seconds as a task; a text: takes its process down, after a while."""
    context = current()
    note("start", context)
    if isinstance(argument, str):
        await trio.sleep(0.5)
        os._exit(4)
    await trio.sleep(argument)
    note("end", context)
    return CODE
