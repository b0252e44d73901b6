"""What supervises the processes of `jqd serve --processes`: how often it starts one that dies, and which there are."""

import fcntl
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from io import FileIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
import trio
import trio.testing
from msgspec import Raw

from jqd.api.siblings import Siblings, labelled
from jqd.api.v1.responses import Half, Ready
from jqd.api.v1.status import together
from jqd.cli.exits import Usage
from jqd.cli.process import follow
from jqd.cli.server import dev
from jqd.config import Config, HttpConfig
from jqd.domain.clock import SystemClock
from jqd.domain.errors import ConfigError
from jqd.domain.process import Process
from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import Setting
from jqd.http import Request, RequestHead, address_of, bind, reserve
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.processes import Fit, directories, surplus
from jqd.reload import Reload
from jqd.supervisor import BACKOFF, LOOK_S, _Member, _read_certificate, _Supervisor, supervise
from tests.directories import short_directory
from tests.live.test_night import certificate

POPEN = subprocess.Popen
NOW_MS = SystemClock().wall_ms()
WELL = Ready("ready", Half(True, None), Half(True, None), [])


@contextmanager
def supervisor() -> Iterator[_Supervisor]:
    """One of a process that took jobs once."""
    with short_directory() as base, _Member(0, base) as member:
        member.was_ready.set()
        yield _Supervisor([member], Reload(Config(data_dir=base), None), None, {}, "127.0.0.1:1", "")


async def test_a_process_that_dies_again_and_again_is_started_later_each_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    async def live(member: _Member) -> tuple[str, int]:
        starts.append(trio.current_time())
        await trio.sleep(100 if len(starts) == 20 else 0.1)
        return "killed by SIGKILL", -9

    with supervisor() as its:
        monkeypatch.setattr(its, "_live", live)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(its._keep, its._members[0])
            await trio.sleep(1_000)
            away = its._members[0].away
            its._stop(signal.SIGTERM)
        assert its._code == 0
    assert re.fullmatch(r"killed by SIGKILL, death \d+ in a row; it is started again at \S+Z", away)
    waits = [later - earlier - 0.1 for earlier, later in pairwise(starts)]
    assert waits[0] == pytest.approx(0)  # the first death may be chance
    assert waits[1] == pytest.approx(BACKOFF.first_s, rel=0.3)
    assert max(waits[:18]) <= BACKOFF.cap_s * 1.25
    assert all(wait > 20 for wait in waits[8:18])
    assert waits[19] == pytest.approx(99.9), "one that lived for long is started at once"


class Sent:
    """Notes what signals a process gets."""

    def __init__(self, its: _Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[int] = []
        (self.member,) = its._members
        monkeypatch.setattr(self.member, "signal", self.numbers.append)

    async def say(self, *lines: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as process:
            process.sendto("\n".join(lines).encode(), self.member.address)
        await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_process_that_hangs_is_killed_and_one_that_starts_or_says_that_it_goes_on_is_not(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(count: int) -> None:
        for _ in range(count):
            await trio.testing.wait_all_tasks_blocked(0.001)
            mock_clock.jump(LOOK_S)
        await trio.testing.wait_all_tasks_blocked(0.001)

    with supervisor() as its:
        sent = Sent(its, monkeypatch)
        sent.member.config = its._reload.config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(its._look)
            nursery.start_soon(its._listen, sent.member)
            await look(50)
            assert sent.numbers == [], "its journal may be large"
            await sent.say("READY=1", "STATUS=takes jobs")
            for _ in range(3):
                await look(29)
                await sent.say("STATUS=takes jobs", "WATCHDOG=1")
            mock_clock.jump(1_000)  # we stood still ourselves, and its word may lie there unread
            await look(25)
            assert sent.numbers == []
            await sent.say("STATUS=takes jobs", "WATCHDOG=1")
            await look(30)
            assert sent.numbers == []
            await look(1)
            assert sent.numbers == [signal.SIGKILL]
            nursery.cancel_scope.cancel()


async def test_what_a_life_said_at_its_end_is_not_taken_for_a_word_of_the_next(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ready while it starts, it would get a reload's signal before it listens for that, and be killed as if it hung."""
    with supervisor() as its:
        member = its._members[0]
        lives: list[subprocess.Popen[bytes]] = []

        def begin(*_: object, **given: Any) -> subprocess.Popen[bytes]:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as process:
                for _at in range(2 if not lives else 0):
                    process.sendto(b"READY=1", member.address)
            lives.append(POPEN(["sleep", "0" if not lives else "60"], **given))
            return lives[-1]

        monkeypatch.setattr(subprocess, "Popen", begin)
        async with trio.open_nursery() as nursery:
            await its._live(member)
            nursery.start_soon(its._live, member)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(its._listen, member)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not member.is_ready
            lives[-1].kill()
            await trio.to_thread.run_sync(lives[-1].wait)
            nursery.cancel_scope.cancel()


async def test_a_process_that_is_killed_before_it_reads_what_it_is_has_died_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taken for one that cannot be started, it ended all while any had not been ready yet."""

    def begin(*_: Any, **given: Any) -> subprocess.Popen[bytes]:
        child = POPEN(["sleep", "60"], **given)
        child.kill()
        child.wait()
        return child

    with supervisor() as its:
        monkeypatch.setattr(subprocess, "Popen", begin)
        assert await its._live(its._members[0]) == ("killed by SIGKILL", -signal.SIGKILL)


async def test_whom_it_was_not_told_whole_is_informed_again_on_a_line_of_its_own() -> None:
    ours, theirs = os.pipe()
    with supervisor() as its, FileIO(ours, "rb") as reader, FileIO(theirs, "wb") as writer:
        (member,) = its._members
        member.process = cast("Any", SimpleNamespace(stdin=writer, poll=lambda: None))
        os.set_blocking(theirs, False)
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
        long = dict.fromkeys(range(100), "killed by SIGKILL, death 1 in a row")  # more than is written at once
        told = list[bool]()
        member.send(long)
        told.append(member.is_informed)
        cut = reader.read(4096)
        member.send({1: "it exited with 1"})
        told.append(member.is_informed)
        assert told == [False, True]
        siblings, lines = Siblings(), trio.testing.MemoryReceiveStream()
        for data in (cut[:10], cut[10:], b"", b"\xff\n", reader.read(4096)):
            if data:
                lines.put_data(data)
        lines.put_eof()
        await follow(siblings, lines)
        assert siblings.away == {1: "it exited with 1"}


async def test_settings_with_a_bad_certificate_are_refused_here_as_by_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = map(Path, certificate(tmp_path))
    http = HttpConfig(tls_cert=cert, tls_key=key)
    before = Config(data_dir=tmp_path, http=http, drain_s=5.0)
    with supervisor() as its:
        sent = Sent(its, monkeypatch)
        its._reload = Reload(before, lambda: replace(before, drain_s=7.0))
        its._reload.change = _read_certificate
        sent.member.is_ready = True
        cert.write_text("no certificate")
        await its._reload_all()
        assert its._reload.config is before, "who is started later has no other settings than those that are there"
        assert sent.numbers == [signal.SIGHUP], "each says in its health what is wrong"
        certificate(tmp_path)
        await its._reload_all()
        assert its._reload.config.drain_s == 7.0


async def test_a_reload_that_is_asked_for_while_all_start_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: list[object] = []

    def refuse(address: str) -> None:
        handlers.append(signal.getsignal(signal.SIGHUP))
        raise ConfigError("taken")

    monkeypatch.setattr("jqd.supervisor.reserve", refuse)
    before = signal.getsignal(signal.SIGHUP)
    try:
        with pytest.raises(ConfigError):
            await supervise(Config(data_dir=tmp_path), None, {}, ready=print)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert handlers == [signal.SIG_IGN]


@pytest.mark.parametrize(("code", "is_ready", "exits"), [(0, True, 0), (-15, False, 0), (-15, True, 1), (-9, True, 1)])
async def test_the_exit_code_says_whether_all_stopped_in_order(
    code: int, is_ready: bool, exits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(member: _Member) -> tuple[str, int]:
        member.is_ready = is_ready
        await its._stopping.wait()
        return "it ended", code

    with supervisor() as its:
        monkeypatch.setattr(its, "_live", live)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(its._keep, its._members[0])
            await trio.testing.wait_all_tasks_blocked()
            its._stop(signal.SIGTERM)
        assert its._code == exits


def test_pushes_are_taken_while_nobody_who_listens_refuses_them_and_jobs_run_while_one_runs_some() -> None:
    full, idle = Half(False, "the disk is full"), Half(False, "the store is away")
    assert together({0: WELL, 1: WELL}, {}, 2).status == "ready"
    told = together({0: WELL, 1: Ready("not ready", full, idle, ["low"])}, {}, 2)
    assert (told.status, told.push) == ("not ready", Half(False, "process 1: the disk is full"))
    assert (told.run.ready, told.warnings) == (True, ["low"])
    told = together({0: Ready("degraded", Half(True, None), idle, ["low"])}, {1: "it was killed"}, 2)
    assert (told.status, told.push.ready, told.run) == ("degraded", True, idle)
    assert told.warnings == ["low", "process 1 is away: it was killed"]
    # A surplus one takes no pushes: what it says of them counts for nothing.
    told = together({0: WELL, 1: Ready("not ready", full, idle, ["one more"])}, {}, 1)
    assert (told.status, told.push.ready, told.warnings) == ("degraded", True, ["one more"])
    assert together({1: WELL}, {0: "it was killed"}, 1).push == Half(False, "no process takes pushes")


def test_the_samples_of_all_are_one_document_in_which_each_family_stands_once() -> None:
    one = b'# HELP a b c\n# TYPE a counter\na_total{x="y z"} 1\na_total{x="{"} 2\n'
    one += b"# HELP b b\n# TYPE b gauge\nb 3\n# EOF\n"
    two = b"# HELP b b\n# TYPE b gauge\nb 4\n# HELP d d\n# TYPE d gauge\nd 5\n# EOF\n"
    assert labelled({0: one, 12: two}).decode().splitlines() == [
        "# HELP a b c",
        "# TYPE a counter",
        'a_total{process="0",x="y z"} 1',
        'a_total{process="0",x="{"} 2',
        "# HELP b b",
        "# TYPE b gauge",
        'b{process="0"} 3',
        'b{process="12"} 4',
        "# HELP d d",
        "# TYPE d gauge",
        'd{process="12"} 5',
    ]


async def test_a_process_is_surplus_while_its_journal_may_be_needed(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, journal=JournalConfig(directory=tmp_path / "journal"))
    assert directories(0, config) == (tmp_path, tmp_path / "journal")
    assert directories(2, config) == (tmp_path / "process-2", tmp_path / "journal" / "process-2")
    known = encode_rules([Setting("kind", "name", 7, NOW_MS, Raw(b"\x01"))])
    for number, lane in ((0, None), (1, Lane.JOBS), (2, None), (3, Lane.OUTCOMES), (4, None)):
        async with journal_of(number, config) as journal:
            if lane is not None:
                await journal.wsync(journal.write(lane, 1, b"a body"))
            await journal.wsync(journal.write(Lane.RULES, 1, known))
    (tmp_path / "journal" / "process-4" / "5-4711.damaged").touch()
    (tmp_path / "journal" / "process-x").mkdir()
    assert surplus(replace(config, processes=5)) == []
    assert surplus(config) == [1, 3, 4], "settings stand in all journals"
    assert (tmp_path / "journal" / "process-2.left").is_dir(), "it does not come back with more processes"
    assert surplus(replace(config, processes=4)) == [4]
    (segment,) = (tmp_path / "journal" / "process-1").glob("[0-9]*")
    segment.write_bytes(segment.read_bytes().replace(b"a body", b"a bode"))
    assert surplus(config) == [1, 3, 4], "what cannot be read may be a job"


async def test_a_setting_keeps_its_process_until_it_stands_in_a_journal_of_those_that_stay(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, journal=JournalConfig(directory=tmp_path / "journal"))
    older, newer = (Setting("schedule", "nightly", revision, NOW_MS, Raw(b"\x01")) for revision in (5, 6))
    deleted_long_ago = Setting("schedule", "other", 4, 1)
    for number, settings in ((0, [older]), (1, [deleted_long_ago, newer, older])):
        async with journal_of(number, config) as journal:
            for each in settings:
                await journal.wsync(journal.write(Lane.RULES, 1, encode_rules([each])))
    assert surplus(config) == [1], "process 0 has an older one alone"
    async with journal_of(0, config) as journal:
        await journal.wsync(journal.write(Lane.RULES, 1, encode_rules([newer])))
    async with journal_of(1, config):
        assert surplus(config) == [1], "a daemon lives in it yet"
    assert surplus(config) == []


def journal_of(number: int, config: Config) -> AbstractAsyncContextManager[Journal]:
    return open_journal(JournalConfig(directory=directories(number, config)[1]), clock=SystemClock())


@pytest.mark.parametrize(("bind", "needs_tokens"), [("127.0.0.1:0", False), ("0.0.0.0:7420", True)])
def test_a_surplus_process_asks_for_a_token_where_the_others_do(tmp_path: Path, bind: str, needs_tokens: bool) -> None:
    config = Config(
        data_dir=tmp_path, http=HttpConfig(bind=bind), journal=JournalConfig(directory=tmp_path / "journal")
    )
    assert config.needs_tokens is needs_tokens
    for process in Process(0, 1), Process(1, 1):
        fitted = Fit(process, bind, "", config.manager).fit(config)
        assert fitted.needs_tokens is needs_tokens


def test_nobody_else_can_listen_at_a_port_before_the_processes_do() -> None:
    with reserve("127.0.0.1:0") as kept:
        address = address_of(kept)
        for take in bind, reserve:
            with pytest.raises(ConfigError, match=f"cannot listen on {address}"):
                take(address)
        with bind(address, shared=True), bind(address, shared=True):
            """Ours."""


@pytest.mark.parametrize(("path", "counts"), [("/readyz", True), ("/metrics", False)])
async def test_of_a_process_that_is_busy_only_what_it_says_of_itself_counts(path: str, counts: bool) -> None:
    siblings = Siblings(Process(0, 2, ("http://here", "http://there")))
    siblings._http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: httpx2.Response(503, text="no")))
    request = Request(RequestHead("GET", path, path, b"", {}))
    found = await siblings.ask(request, path, "text/plain", 1.0)
    assert found == {1: b"no" if counts else "it answers 503"}


async def test_a_question_for_other_journals_puts_none_aside(tmp_path: Path) -> None:
    (other := tmp_path / "journal" / "process-1").mkdir(parents=True)
    with pytest.raises(Usage, match="there are, or were, several"):
        await dev(data_dir=tmp_path)
    assert other.is_dir()
