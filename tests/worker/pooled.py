"""A service of a worker whose jobs run in processes, and an app for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.worker.frames import Begin
from jqd.worker.process_pool import ProcessPool, open_process_pool
from jqd.worker.service import Service, ServiceConfig
from tests.worker.exchange import Exchange

PATIENCE_S = 30.0  # for a process to start on a busy machine

MODULE = """
import os, time
from pathlib import Path
import asyncio
import trio
from jqd import App, Cancelled, current

app = App()

@app.job(timeout=9)
def plain(argument, /):
    return {"got": argument}

@app.job()
def watch(argument, /):
    context = current()
    Path(argument).touch()
    while not context.cancelled:
        time.sleep(0.005)
    raise Cancelled("half way")

@app.job()
def deaf(argument, /):
    print("about to hang")
    Path(argument).touch()
    time.sleep(600)

@app.job()
async def task(argument, /):
    Path(argument).touch()
    try:
        await trio.sleep_forever()
    finally:
        time.sleep(0.2)  # as if there was much to tidy up
        Path(f"{argument}.left").touch()

@app.job(loop="asyncio")
async def doze(argument, /):
    await asyncio.sleep(0)
    return [argument]

@app.job()
async def block(argument, /):
    while not Path(argument).exists():  # until its neighbour is at work, too
        await trio.sleep(0.005)
    time.sleep(60)

@app.job()
def leave(argument, /):
    os._exit(argument)

@app.job()
def stop_itself(argument, /):
    os.kill(os.getpid(), 9)
"""


def write(source: str) -> None:
    """The module of the app, where `here` stands."""
    Path("crewed.py").write_text(source)


@asynccontextmanager
async def served(processes: int = 1, source: str = MODULE) -> AsyncIterator[tuple[Service, ProcessPool]]:
    """A service whose jobs run in processes; the module lies in the working directory."""
    write(source)
    async with open_process_pool(
        Begin("crewed", 8, "info"), processes, lambda: ("http://127.0.0.1:9", None)
    ) as process_pool:
        yield Service(process_pool.jobs, ServiceConfig(concurrency=8), executor=process_pool), process_pool


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(name: str, argument: Any = None, **more: Any) -> dict[str, Any]:
    return {"job_id": more.pop("job_id", name), "name": name, "argument": argument, **more}


async def wait_until(holds: Callable[[], Any]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():
            await trio.sleep(0.005)  # watches processes of their own


def outcomes(exchange: Exchange) -> dict[str, dict[str, Any]]:
    return {each["job_id"]: each for each in exchange.body if each["type"] != "started"}
