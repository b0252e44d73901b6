"""How far a push goes: the files and functions of jqd/ between the head of a request and its 201."""

import random
import sys
from pathlib import Path
from types import CodeType, FrameType

import msgspec
import pytest
import trio

import jqd
from jqd.config import Config
from jqd.daemon import Daemon
from jqd.domain.clock import SystemClock
from jqd.domain.job_spec import JobSpec
from jqd.http import Listener, listen
from jqd.http.connection import Connection
from jqd.journal import JournalConfig, open_journal
from jqd.testing.store import FakeStore

ROOT = str(Path(jqd.__file__).parent)
FILES_MAX, FUNCTIONS_MAX = 16, 58
BODY = msgspec.msgpack.encode({"name": "mail", "argument": {"to": "x@example.org"}})
REQUEST = (
    b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\ncontent-length: %d\r\n\r\n%b"
)


class Calls:
    """What was called by the task of a connection while it answered."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, None] = {}
        self._task: trio.lowlevel.Task | None = None
        self._around: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT):
            return
        if code is Connection._answer.__code__:
            self._task = trio.lowlevel.current_task()
            around = frame.f_back
            while around is not None:  # a coroutine that goes on is called, too
                self._around.add(around.f_code)
                around = around.f_back
        elif code is Connection._settle.__code__:
            self._task = None
        if code not in self._around and self._task is not None and trio.lowlevel.current_task() is self._task:
            self.codes[code] = None


async def test_names_without_end_are_counted_and_take_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.control.NAMES_MAX", 3)
    clock, told = SystemClock(), list[int]()
    async with open_journal(JournalConfig(directory=tmp_path), clock=clock) as journal:
        daemon = Daemon(Config(), journal, [FakeStore(clock)], clock, random.Random(1))
        tally = daemon.joblog.tally
        tally.readers.append(lambda row: told.append(sum(counts.pushed for counts in row.values())))
        daemon.control.entered(["1", "2", "3"], [JobSpec("a"), JobSpec("b"), JobSpec("a")], "acme")
        assert (tally.pushed, told) == ({("acme", "a"): 2, ("acme", "b"): 1}, [])
        daemon.control.entered(["4"], [JobSpec("a")])
        assert (tally.pushed, told) == ({}, [4])


async def test_a_push_goes_through_few_files_and_functions(tmp_path: Path) -> None:
    clock, config, path = SystemClock(), Config(), Calls()
    async with open_journal(JournalConfig(directory=tmp_path), clock=clock) as journal, trio.open_nursery() as nursery:
        daemon = Daemon(config, journal, [FakeStore(clock)], clock, random.Random(1))
        address = listen("127.0.0.1", 0)
        door = Listener(daemon.api, address, whose=daemon.api.whose, urgent=daemon.api.urgent)
        await nursery.start(door.serve, trio.sleep_forever)
        stream = await trio.open_tcp_stream(*address.getsockname())
        for profile in (None, path):  # the first one fills what is kept of heads
            sys.setprofile(profile)
            await stream.send_all(REQUEST % (len(BODY), BODY))
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 201")
        sys.setprofile(None)
        await stream.aclose()
        nursery.cancel_scope.cancel()
    files = {code.co_filename for code in path.codes}
    way = "\n".join(f"{code.co_filename[len(ROOT) :]} {code.co_qualname}" for code in path.codes)
    assert len(files) <= FILES_MAX, way
    assert len(path.codes) <= FUNCTIONS_MAX, way
