"""Work done in place: a clock that jumps when all tasks wait must not jump while a thread or the store is at work."""

import io
import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
import trio

from jqd.domain.log import configure
from jqd.journal import tail
from jqd.journal.thread import WriterThread

ANSWER_S = 5.0  # of a real server, real time
SILENT_S = 0.05  # of a gate (tests/store/gate.py), which may be silent on purpose: whoever asks it bears that


@pytest.fixture(autouse=True)
def threads_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory disk answers at once anyway; so does the store, or its caller waits as long as his clock says."""

    async def wait_readable(sock: Any) -> None:
        await trio.lowlevel.checkpoint()
        patience_s = SILENT_S if str(sock.getpeername()).endswith("gate.sock") else ANSWER_S
        if not select.select([sock], [], [], patience_s)[0]:
            await trio.sleep_forever()

    async def run_sync(call: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return call(*args)

    async def run(_: WriterThread, call: Callable[[], object]) -> None:
        with trio.CancelScope(shield=True):
            await run_sync(call)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    monkeypatch.setattr(WriterThread, "run", run)
    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_readable)


@pytest.fixture
def from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal keeps no frames in memory: whatever is read comes from the disk."""
    monkeypatch.setattr(tail, "TAIL_BYTES", 0)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What is logged, a JSON object a line."""
    out = io.StringIO()
    configure(form="json", stream=out)
    yield out
    structlog.reset_defaults()
