"""Pushes in the background: bounds, errors and repeats, against a daemon that is acted or real but in memory."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import anyio
import httpx2
import pytest

import jqd
from jqd.client import (
    Buffer,
    BufferFull,
    Client,
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
from jqd.worker.context import at_work

WAIT_S = 60.0  # for the buffer's thread on a busy machine

app = jqd.App("http://127.0.0.1:9")


@app.job(keep_result=True)
def echo(n: int) -> int:
    return n


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


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.client.send.PAUSE_S_MAX", 0.001)


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


def test_no_error_is_swallowed(daemon, buffers, caplog):
    gone = Unreachable("nobody is there", sent=False)
    daemon.answers = [gone]
    buffer = buffers()
    one, two = buffer.push("echo"), buffer.push("echo")
    with pytest.raises(NotPushed, match=f"2 jobs are not known to be taken; the first, {one.job_id}: nobody") as told:
        buffer.flush()
    assert told.value.errors == {one.job_id: gone, two.job_id: gone}
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


class Lossy(httpx2.BaseTransport):
    """Every other answer is lost on its way."""

    def __init__(self, way: httpx2.BaseTransport) -> None:
        self.way, self.lost, self.asked = way, 0, 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self.way.handle_request(request)
        self.asked += 1
        if self.asked % 2:
            self.lost += 1
            raise httpx2.ReadError("the connection broke", request=request)
        return answer


def test_a_lost_answer_costs_no_job_and_makes_none_twice(monkeypatch):
    monkeypatch.setattr("jqd.client.buffer.REQUEST_JOBS", 10)
    with app.testing("fake") as t:
        lossy = Lossy(t._way)
        client = Client("http://localhost", transport=lossy)
        client._http._sleep = lambda seconds: None
        with client.buffer() as buffer:
            pushed = [buffer.push("echo", {"n": n}) for n in range(55)]
        assert lossy.lost > 5
        assert sorted(job.argument["n"] for job in t.pushed()) == list(range(55))
        assert {job.job_id for job in t.pushed()} == {one.job_id for one in pushed}


def test_an_app_pushes_through_its_buffer_in_all_threads_but_not_what_must_be_waited_for(monkeypatch):
    with app.testing("fake") as t:
        client, taken = t.client, t.pushed
        app._pushes_by = None  # a test of an app pushes at once; here the buffer itself is tested
        monkeypatch.setitem(app._clients, (app.url, None), client)
        with app.buffer(linger="1h") as buffer:
            with pytest.raises(RuntimeError, match="has a buffer already"):
                app.buffer()
            refs: list[jqd.Ref[int]] = []
            threads = [threading.Thread(target=lambda: refs.append(echo.push(1))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (len({ref.job_id for ref in refs}), taken()) == (4, [])
            with app.batch():
                echo.push(2)
            echo.options(ack="fsync").push(3)
            assert [job.argument for job in taken()] == [{"n": 2}, {"n": 3}]
            echo.options(id="mine").push(4)
            assert not echo.options(id="mine", replace=True).push(5).duplicate
            assert len(taken()) == 7
            assert echo.push(6).status(wait=0).state == "waiting", "who asks waits until it is pushed"
            buffer.flush()
            at_work.set(jqd.Context("01", "n", 1, 0, 0))
            assert echo.push(8).job_id.startswith("01"), "what a job pushes is safe before its success is told"
            at_work.set(None)
        assert t.run_all() == 9
        assert (refs[0].result(), refs[0].duplicate) == (1, False)
        assert echo.push(7).job_id.startswith("01"), "closed: each push is a request again"
        app._clients.clear()


class Wild:
    """A daemon that answers in every way, and may take jobs although it does not say so."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.taken: set[str] = set()

    def __call__(self, jobs: Sequence[Mapping[str, Any]]) -> list[PushedJob]:
        ids = [str(job["job_id"]) for job in jobs]
        assert len(set(ids)) == len(ids), "a daemon refuses an id that stands twice in a request"
        match self.random.randrange(12):
            case 0:
                raise Unreachable("nobody is there", sent=False)
            case 1:
                self.taken.update(ids[: self.random.randint(0, len(ids))])
                raise TimedOut("the answer was lost")
            case 2:
                raise Unavailable("not now", status=503, retry_after=9)
            case 3:
                raise Invalid("a field is wrong", status=422, errors=[ItemError("wrong", 0)])
            case 4:
                kept = [job_id if self.random.random() < 0.5 else None for job_id in ids]
                self.taken.update(job_id for job_id in kept if job_id is not None)
                raise PartlyPushed("some", job_ids=kept)
        self.taken.update(ids)
        return [PushedJob(job_id, False) for job_id in ids]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_daemon_does_each_job_ends_once_and_each_error_is_heard(seed, monkeypatch):
    monkeypatch.setattr("jqd.client.buffer.REQUEST_JOBS", 20)
    chance, daemon = random.Random(seed), Wild(seed)
    jobs, linger, patience = chance.choice([1, 5, 1000]), chance.choice([0, 0.001]), chance.choice([0, 0.01, 9])
    buffer = Buffer(daemon, jobs=jobs, linger=linger, wait=WAIT_S, patience=patience)
    pushed: list[Any] = []
    heard: set[str] = set()

    def listen(call: Callable[[], None], job_id: str = "") -> None:
        try:
            call()
        except NotPushed as error:
            heard.update(error.errors)
        except jqd.JqdClientError:
            heard.add(job_id)

    def work(number: int) -> None:
        mine = random.Random(number)
        for _ in range(mine.randint(1, 60)):
            own = {"job_id": f"own-{number}-{mine.randint(0, 9)}"} if mine.random() < 0.2 else {}
            if (one := buffer.offer({"name": "echo", **own})) is None:
                return
            pushed.append(one)
            if mine.random() < 0.1:
                listen(lambda: one.confirm(WAIT_S), one.job_id)
            elif mine.random() < 0.1:
                listen(lambda: buffer.flush(WAIT_S))

    threads = [threading.Thread(target=work, args=(seed * 10 + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    if chance.random() < 0.5:  # else it is closed while they push
        for thread in threads:
            thread.join()
    listen(buffer.close)
    for thread in threads:
        thread.join()
    listen(buffer.close)
    assert all(one.is_over and one.taken is (one.error is None) for one in pushed)
    assert {one.job_id for one in pushed if one.taken} <= daemon.taken
    assert {one.job_id for one in pushed if one.error is not None} <= heard
    assert (buffer._bytes, buffer._count) == (0, 0)
