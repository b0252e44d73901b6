"""Pushes in the background lose no job and make none twice, whatever a daemon does."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import jqd
from jqd.client import (
    Buffer,
    Client,
    Invalid,
    ItemError,
    NotPushed,
    PartlyPushed,
    TimedOut,
    Unavailable,
    Unreachable,
)
from jqd.client.job_info import PushedJob
from jqd.client.transport import LostError, Request, Response, Transport
from jqd.worker.context import at_work
from tests.client.buffered import WAIT_S, app, echo

pytestmark = pytest.mark.usefixtures("short_pauses")


class Lossy:
    """Every other answer is lost on its way."""

    def __init__(self, way: Transport) -> None:
        self.way, self.lost, self.asked = way, 0, 0

    def send(self, request: Request) -> Response:
        answer = self.way.send(request)
        self.asked += 1
        if self.asked % 2:
            self.lost += 1
            raise LostError("the connection broke")
        return answer

    def close(self) -> None:
        return


def test_a_lost_answer_costs_no_job_and_makes_none_twice(monkeypatch):
    monkeypatch.setattr("jqd.client.buffer.REQUEST_JOBS", 10)
    with app.testing("fake") as t:
        lossy = Lossy(t._transport)
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
            at_work.set(jqd.Context("01", "n", 1, 0, 0, of=None))  # type: ignore[arg-type]
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
