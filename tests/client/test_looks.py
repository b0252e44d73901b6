"""Looking at jobs, waiting for them, their results, and cancels."""

from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec
import pytest
import trio

from jqd.client import (
    Cancel,
    Client,
    JobFailed,
    JobInfo,
    LessSafe,
    NoResult,
    NotFound,
    TimedOut,
    Unreachable,
)
from jqd.client.client import WAIT_S_MAX
from jqd.client.http import TRIES_MAX
from jqd.client.send import PUSH_JOBS_MAX
from jqd.domain.media import MSGPACK
from jqd.testing.clock import ManualClock
from tests.client.scripted import use
from tests.harness.daemon import Answer, ScriptedDaemon
from tests.harness.handled import Handled


async def test_get_tells_a_job_and_an_unknown_one(daemon: ScriptedDaemon) -> None:
    def look(client: Client) -> JobInfo:
        with pytest.raises(NotFound):
            client.get("no/such job")
        with pytest.raises(ValueError, match="never empty"):
            client.get("")
        return client.get(client.push("a", job_id="with/slash ?"))

    info = await use(daemon, look)
    assert (info.job_id, info.name, info.state, info.ended) == ("with/slash ?", "a", "waiting", False)
    assert info.created_at == datetime(2026, 1, 31, 12, tzinfo=UTC)


async def test_a_long_poll_ends_with_the_job(daemon: ScriptedDaemon) -> None:
    def end_soon() -> None:
        daemon.jobs["a"].result = 42
        daemon.jobs["a"].end("succeeded")

    await use(daemon, lambda client: client.push("n", job_id="a", keep_result=True))
    async with trio.open_nursery() as nursery:

        async def end_when_asked() -> None:
            while not daemon.counted("GET", "/v1/jobs/a"):
                await trio.lowlevel.checkpoint()
            end_soon()

        nursery.start_soon(end_when_asked)
        info = await use(daemon, lambda client: client.get("a", wait=30))
    assert info.succeeded
    assert info.result == 42
    assert daemon.counted("GET", "/v1/jobs/a") == 1


def _polled(states: list[str], took_s: float) -> tuple[Client, ManualClock, list[float]]:
    """A client whose polls answer `states` in turn, each after `took_s`, the last one for ever; and what it asked."""
    clock, asked = ManualClock(), list[float]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(float(request.url.params.get("wait", 0)))
        clock.advance(took_s)
        state = states.pop(0) if len(states) > 1 else states[0]
        body = msgspec.msgpack.encode({"job_id": "a", "name": "n", "state": state})
        return httpx2.Response(200, content=body, headers={"content-type": "application/msgpack"})

    return Client(transport=Handled(answer), clock=clock), clock, asked


def test_a_long_wait_is_several_polls() -> None:
    client, _, asked = _polled(["waiting", "running", "succeeded"], WAIT_S_MAX)
    assert client.get("a", wait=WAIT_S_MAX * 2.5).succeeded
    assert asked == [WAIT_S_MAX, WAIT_S_MAX, WAIT_S_MAX / 2]


def test_a_wait_that_runs_out_answers_how_the_job_stands() -> None:
    client, _, asked = _polled(["running"], 2.0)
    assert client.get("a", wait=5).state == "running"
    assert asked == [5, 3, 1]
    with pytest.raises(TimedOut, match=r"still running after 4 s") as caught:
        client.result("a", wait=4)
    assert caught.value.pending == ["a"]


def test_without_wait_one_question_is_asked() -> None:
    client, _, asked = _polled(["running"], 0.0)
    client.get("a")
    assert asked == [0]


async def test_results(daemon: ScriptedDaemon) -> None:
    def push(client: Client) -> None:
        client.push("n", job_id="none")
        for job_id in ("good", "bad", "told", "gone"):
            client.push("n", job_id=job_id, keep_result=True)

    await use(daemon, push)
    daemon.jobs["none"].end("succeeded")
    daemon.jobs["good"].result = {"a": [1]}
    daemon.jobs["good"].end("succeeded")
    daemon.jobs["bad"].outcome = {"error": "ValueError: no"}
    daemon.jobs["bad"].end("failed")
    daemon.jobs["told"].outcome = {"error": {"code": 550}, "message": "no such box"}
    daemon.jobs["told"].end("failed")
    daemon.jobs["gone"].end("cancelled")

    def results(client: Client) -> None:
        assert client.result("good") == {"a": [1]}
        assert client.result("good", consume=True) == {"a": [1]}
        assert client.result("good") is None
        with pytest.raises(JobFailed, match="failed: ValueError: no") as caught:
            client.result("bad")
        assert caught.value.info.state == "failed"
        with pytest.raises(JobFailed, match=r"failed: no such box \({'code': 550}\)$"):
            client.result("told")
        with pytest.raises(JobFailed, match="was cancelled"):
            client.result("gone")
        with pytest.raises(NoResult, match="pushed without keep_result=True"):
            client.result("none")

    await use(daemon, results)


def _breaking(answers: dict[str, list[Any]], seen: list[str]) -> Client:
    """A client whose requests get these answers in turn by path; None breaks the connection after it was sent."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.raw_path.decode())
        body = answers[request.url.path].pop(0)
        if body is None:
            raise httpx2.ReadError("broken")
        return httpx2.Response(200, content=msgspec.msgpack.encode(body), headers={"content-type": MSGPACK})

    client = Client(transport=Handled(answer))
    client._http._sleep = lambda seconds: None
    return client


@pytest.mark.parametrize("answers", [[None, {"result": None}], [None] * TRIES_MAX], ids=["one lost", "all lost"])
def test_a_lost_answer_loses_no_result(answers: list[Any]) -> None:
    seen: list[str] = []
    told = {"job_id": "a", "name": "n", "state": "succeeded", "result": 42}
    client = _breaking({"/v1/jobs/a": [told], "/v1/jobs/a/result": list(answers)}, seen)
    assert client.result("a", consume=True) == 42
    assert seen == ["/v1/jobs/a"] + ["/v1/jobs/a/result?consume=1"] * len(answers)


def test_a_replacement_is_never_sent_twice_by_itself() -> None:
    seen: list[str] = []
    client = _breaking({"/v1/jobs": [None, None, None, {"job_id": "a"}]}, seen)
    with pytest.raises(Unreachable, match="not sent again, for replace would then count twice") as caught:
        client.push("n", job_id="a", replace=True)
    assert caught.value.sent
    with pytest.raises(Unreachable, match="not sent again"):
        client.push_many([{"name": "n", "job_id": "b"}, {"name": "n", "job_id": "a", "replace": True}])
    assert len(seen) == 2
    assert client.push("n", job_id="a") == "a"
    assert len(seen) == 4, "a name alone makes twice count once"


async def test_jobs_that_are_less_safe_than_asked_are_said_to_be(daemon: ScriptedDaemon) -> None:
    def push(client: Client) -> None:
        assert client.push("n", ack="store")
        daemon.script("POST", "/v1/jobs", Answer(201, {"job_id": "a", "ack": "fsync"}))
        with pytest.raises(LessSafe, match="job a was taken, but with ack=fsync instead of store") as caught:
            client.push("n", ack="store")
        assert (caught.value.job_ids, caught.value.ack) == (["a"], "fsync")
        ids = [str(number) for number in range(PUSH_JOBS_MAX + 1)]
        for part, ack in ((ids[:PUSH_JOBS_MAX], "fsync"), (ids[PUSH_JOBS_MAX:], "store")):
            daemon.script("POST", "/v1/jobs", Answer(201, {"job_ids": part, "ack": ack}))
        with pytest.raises(LessSafe) as caught:
            client.push_many([{"name": "n"}] * len(ids), ack="store")
        assert (caught.value.job_ids, caught.value.ack) == (ids, "fsync")
        daemon.script("POST", "/v1/jobs", Answer(200, {"job_id": "a", "duplicate": True}))
        assert client.push("n", job_id="a", ack="store") == "a", "what was there before promises nothing new"

    await use(daemon, push)


async def test_waiting_for_many(daemon: ScriptedDaemon) -> None:
    ids = await use(daemon, lambda client: client.push_many([{"name": "n"} for _ in range(40)]))
    async with trio.open_nursery() as nursery:

        async def end_backwards() -> None:
            while not any(seen.method == "GET" for seen in daemon.seen):
                await trio.lowlevel.checkpoint()
            for job_id in reversed(ids):
                daemon.jobs[job_id].end("succeeded")

        nursery.start_soon(end_backwards)
        infos = await use(daemon, lambda client: client.wait(ids, timeout=30))
    assert [info.job_id for info in infos] == ids
    assert all(info.succeeded for info in infos)
    assert await use(daemon, lambda client: client.wait([])) == []


async def test_waiting_for_many_runs_out(daemon: ScriptedDaemon) -> None:
    ids = await use(daemon, lambda client: client.push_many([{"name": "n"} for _ in range(3)]))
    daemon.jobs[ids[1]].end("failed")

    def wait(client: Client) -> list[str]:
        with pytest.raises(TimedOut, match=r"2 of 3 jobs have not ended after 0\.1 s") as caught:
            client.wait(ids, timeout=0.1)
        with pytest.raises(NotFound):
            client.wait([*ids, "nobody"], timeout=0.1)
        return caught.value.pending

    assert await use(daemon, wait) == [ids[0], ids[2]]


async def test_cancel_says_what_became_of_it(daemon: ScriptedDaemon) -> None:
    def cancel(client: Client) -> list[Cancel]:
        for job_id in ("waiting", "running"):
            client.push("n", job_id=job_id)
        daemon.jobs["running"].state = "running"
        told = [client.cancel("waiting"), client.cancel("running"), client.cancel("waiting")]
        with pytest.raises(NotFound):
            client.cancel("nobody")
        return told

    told = await use(daemon, cancel)
    assert told == [Cancel.CANCELLED, Cancel.RECORDED, Cancel.TOO_LATE]
    assert [bool(each) for each in told] == [True, True, False]
