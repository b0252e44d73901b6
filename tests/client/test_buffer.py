"""Pushes in the background: bounds, errors and repeats, against a daemon that is acted or real but in memory."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import anyio
import pytest

from jqd.client import (
    Buffer,
    BufferFull,
    Conflict,
    Invalid,
    ItemError,
    NotPushed,
    PartlyPushed,
    TimedOut,
    TooLarge,
    Unavailable,
    Unreachable,
)
from jqd.client.job_info import PushedJob
from jqd.client.pending import Pending
from jqd.client.send import Sender
from jqd.testing.clock import ManualClock
from tests.client.buffered import WAIT_S


class Daemon:
    """Takes jobs when it is let; says how each request ends."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.answers: list[BaseException] = []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()

    def __call__(self, jobs: Sequence[Mapping[str, Any]]) -> list[PushedJob]:
        self.requests.append([str(job["job_id"]) for job in jobs])
        self.asked.set()
        assert self.open.wait(WAIT_S)
        if self.answers:
            raise self.answers.pop(0)
        return [PushedJob(str(job["job_id"]), True) for job in jobs]


def pending(job_id: str) -> Pending:
    told = {"name": "echo", "job_id": job_id}
    return Pending(told, job_id, 10, is_own=True, done=threading.Condition(), hurry=lambda: None)


pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def buffers(daemon: Daemon) -> Iterator[Callable[..., Buffer]]:
    made: list[Buffer] = []

    def make(**limits: Any) -> Buffer:
        made.append(Buffer(daemon, **{"linger": "1h", "wait": 0, "patience": 0, **limits}))
        return made[-1]

    yield make
    daemon.open.set()
    for buffer in made:
        buffer.leave()


def test_many_pushes_are_few_requests_and_each_knows_its_end(daemon, buffers, monkeypatch):
    monkeypatch.setattr("jqd.client.buffer.REQUEST_JOBS", 100)
    with buffers(wait=WAIT_S) as buffer:
        pushed = [buffer.push("echo", {"n": n}) for n in range(250)]
        own = buffer.push("echo", job_id="mine")
        daemon.open.clear()
        with pytest.raises(TimedOut, match="waits in the buffer after 0 s"):
            own.confirm(0)
        daemon.open.set()
    assert sum(map(len, daemon.requests)) == 251
    assert len(daemon.requests) <= 4
    assert [each for request in daemon.requests for each in request] == [one.job_id for one in [*pushed, own]]
    own.confirm(0)
    assert (own.duplicate, pushed[0].duplicate, pushed[0].taken) == (True, False, True), "a repeat of ours is none"
    with pytest.raises(RuntimeError, match="closed"):
        buffer.push("echo")


def test_where_no_thread_can_be_started_nothing_was_pushed(daemon, buffers, monkeypatch):
    buffer = buffers(linger=0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no thread")))
        with pytest.raises(RuntimeError, match="no thread"):
            buffer.push("echo", job_id="once")
    buffer.push("echo", job_id="again").confirm(WAIT_S)
    assert daemon.requests == [["again"]]


def test_it_goes_out_by_itself_when_it_has_lingered(buffers):
    buffers(linger="1ms").push("echo").confirm(WAIT_S)


def test_it_is_bounded_in_jobs_and_bytes_and_a_push_waits_for_room(daemon, buffers):
    daemon.open.clear()
    buffer = buffers(jobs=3, linger=0)
    first = buffer.push("echo")
    assert daemon.asked.wait(WAIT_S)
    rest = [buffer.push("echo"), buffer.push("echo")]
    assert not buffer.has_room()
    with pytest.raises(BufferFull, match=r"3 jobs wait for a daemon, .* nothing was taken of this push"):
        buffer.push("echo")
    daemon.open.set()
    for one in (first, *rest):
        one.confirm(WAIT_S)
    assert buffer.has_room()
    small = buffers(size="1KiB")
    with pytest.raises(TooLarge, match="room for 1024"):
        small.push("echo", bytes(1024))
    small.push("echo", bytes(900))
    with pytest.raises(BufferFull):
        small.push("echo", bytes(900))
    waiting = buffers(jobs=1, wait=WAIT_S)
    for _ in range(20):  # each waits for the one before it, and not until that has lingered
        waiting.push("echo")
    for limits in ({"jobs": 0}, {"wait": -1}, {"size": "x"}):
        with pytest.raises(ValueError, match=r"room for a job|write one like"):
            buffers(**limits)
    with pytest.raises(ValueError, match="replace counts each time"):
        buffer.push("echo", job_id="a", replace=True)


class Logged(logging.Handler):
    """Says when something was logged; behind the handlers that were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


@pytest.fixture
def logged() -> Iterator[threading.Event]:
    handler = Logged()
    logging.getLogger().addHandler(handler)
    yield handler.event
    logging.getLogger().removeHandler(handler)


def test_no_error_is_swallowed(daemon, buffers, caplog, logged):
    gone = Unreachable("nobody is there", sent=False)
    daemon.answers = [gone]
    buffer = buffers()
    one, two = buffer.push("echo"), buffer.push("echo")
    with pytest.raises(NotPushed, match=f"2 jobs are not known to be taken; the first, {one.job_id}: nobody") as told:
        buffer.flush()
    assert told.value.errors == {one.job_id: gone, two.job_id: gone}
    assert logged.wait(WAIT_S)  # by the buffer's thread, when those who wait were told
    assert "2 jobs could not be pushed: nobody is there" in caplog.text
    with pytest.raises(Unreachable):
        one.confirm(0)
    buffer.flush()  # it was told
    daemon.answers = [PartlyPushed("one of two", job_ids=["x", None], errors=[ItemError("too deep", 1, "/argument")])]
    good, bad = buffer.push("echo"), buffer.push("echo")
    with pytest.raises(NotPushed, match=r"1 jobs .*was refused: /argument too deep"):
        buffer.close()
    assert (good.taken, bad.taken) == (True, False)
    daemon.answers = [ZeroDivisionError("a mistake")]
    lost = buffers()
    lost.push("echo")
    with pytest.raises(KeyError) as raised, lost:
        raise KeyError("in the block")
    assert "ended by ZeroDivisionError" in raised.value.__notes__[0]
    daemon.answers = [gone]
    untold = buffers()
    ref = untold.push("echo")
    assert untold.leave() == [ref], "for the end of the process to tell"


def test_what_was_away_is_asked_again_with_the_same_ids_while_patience_lasts(daemon, buffers):
    daemon.answers = [Unreachable("it broke", sent=True), TimedOut("no answer")]
    buffer = buffers(patience="1h")
    one = buffer.push("echo")
    buffer.flush(WAIT_S)
    assert daemon.requests == [[one.job_id]] * 3
    # One name twice: a daemon would refuse that in one request.
    buffer.push("echo", job_id="a")
    buffer.push("echo", job_id="a")
    buffer.flush(WAIT_S)
    assert daemon.requests[3:] == [["a"], ["a"]]


def test_patience_begins_anew_when_a_daemon_has_answered(daemon):
    refused = Invalid("too deep", status=422, errors=[ItemError("too deep", 0)])
    for answer in (refused, PartlyPushed("none", job_ids=[None]), Conflict("other content", status=409)):
        sender, clock = Sender(daemon, 60.0), ManualClock()
        sender._clock = clock
        daemon.answers = [Unreachable("it starts", sent=False), answer]
        assert sender.send([pending("a")]) is answer
        clock.advance(3600)
        daemon.answers = [Unreachable("it starts again", sent=False)]
        later = pending("b")
        assert sender.send([later]) is None
        assert later.taken


def test_a_refusal_says_that_a_try_before_it_may_have_been_taken(daemon):
    wrong = Invalid("too deep", status=422, errors=[ItemError("too deep", 0)])
    for refusal in (wrong, PartlyPushed("none", job_ids=[None]), Conflict("other content", status=409)):
        for first in (Unreachable("it is not there", sent=False), TimedOut("no answer")):
            daemon.answers, one = [first, refusal], pending("a")
            Sender(daemon, 60.0).send([one])
            assert one.error is not None
            is_doubtful = isinstance(first, TimedOut)
            assert one.error.earlier is (first if is_doubtful else None)
            assert ("may have been taken: no answer" in str(one.error)) is is_doubtful


def test_what_its_first_try_may_have_brought_to_a_daemon_is_not_told_as_refused(daemon):
    late = PartlyPushed("none of the last", job_ids=[None])
    late.__cause__ = TimedOut("no answer")
    ends = (
        Unavailable("the store is away", status=503, retry_after=0, ids_unknown=True),
        Unreachable("nobody is there", sent=False),
    )
    for first, last in itertools.product((TimedOut("no answer"), Unreachable("it broke", sent=True), late), ends):
        daemon.answers, clock, one = [first, last], ManualClock(), pending("a")

        def push_all(jobs, clock=clock):
            if len(daemon.answers) == 1:
                clock.advance(3600)
            return daemon(jobs)

        sender = Sender(push_all, 60.0)
        sender._clock = clock
        assert sender.send([one]) is first
        assert one.error is first


def test_what_a_daemon_took_before_it_went_away_is_told_as_taken(daemon):
    broken = PartlyPushed("one of two", job_ids=["a", None])
    broken.__cause__ = Unreachable("it broke", sent=True)
    for patience_s, error in ((0, broken), (60, None)):
        daemon.answers, daemon.requests = [broken], []
        one, two = pending("a"), pending("b")
        assert Sender(daemon, patience_s).send([one, two]) is error
        assert (one.taken, one.duplicate, one.error) == (True, False, None)
        assert (two.taken, two.error) == (error is None, error)
        assert daemon.requests == [["a", "b"], *([["b"]] if error is None else [])]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_code_waits_for_room_beside_its_loop(buffers, daemon, backend):
    async def main() -> None:
        async with buffers(jobs=2, wait=WAIT_S, linger=0) as buffer:
            pushed = [await buffer.apush("echo") for _ in range(20)]
        assert all(one.taken for one in pushed)

    anyio.run(main, backend=backend)
    daemon.answers = [Unreachable("nobody is there", sent=False)]

    async def lose() -> None:
        async with buffers() as buffer:
            await buffer.apush("echo")

    with pytest.raises(NotPushed):
        anyio.run(lose, backend=backend)


def test_a_buffer_that_is_closed_sends_what_another_thread_pushed_meanwhile(daemon, buffers):
    buffer = buffers(linger=0)
    daemon.open.clear()
    pushed = [buffer.push("echo")]
    assert daemon.asked.wait(WAIT_S)
    pushed.append(buffer.push("echo"))
    closing = threading.Thread(target=buffer.close)
    closing.start()
    while (late := buffer.offer({"name": "echo"})) is not None:
        pushed.append(late)
    daemon.open.set()
    closing.join(WAIT_S)
    assert all(one.taken for one in pushed)


def test_who_waits_hears_of_an_error_only_when_it_is_noted(daemon, buffers):
    """Else a close that comes between the two would find nothing to raise."""
    daemon.answers = [Unreachable("nobody is there", sent=False)]
    daemon.open.clear()
    buffer = buffers(linger=0)
    one = buffer.push("echo")
    assert daemon.asked.wait(WAIT_S)
    with buffer._changed:  # which the thread needs to note it
        daemon.open.set()
        for _ in range(int(WAIT_S / 0.01)):
            if one.error is not None:
                break
            threading.Event().wait(0.01)
        assert (one.error is not None, one.is_over) == (True, False)
    with pytest.raises(NotPushed):
        buffer.close()


def test_a_ctrl_c_while_it_is_sent_by_whoever_flushes_loses_nothing(daemon, buffers):
    buffer = buffers()
    one = buffer.push("echo")
    buffer._thread = None  # as at the end of a process, which starts no thread
    daemon.answers = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        buffer.flush()
    buffer.flush()
    assert (one.taken, daemon.requests) == (True, [[one.job_id]] * 2)
