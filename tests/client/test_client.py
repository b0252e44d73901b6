"""The client against a scripted daemon, and against answers a real one gives rarely."""

import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx2
import msgspec
import pytest
import trio

from jqd.client import (
    Cancel,
    Client,
    Conflict,
    Invalid,
    JobFailed,
    JobInfo,
    JqdClientError,
    LessSafe,
    NoResult,
    NotFound,
    PartlyPushed,
    TimedOut,
    Unavailable,
    Unreachable,
)
from jqd.client.client import WAIT_S_MAX
from jqd.client.http import TRIES_MAX
from jqd.client.info import Taken, job_info
from jqd.client.pushes import PUSH_BYTES_MAX, PUSH_JOBS_MAX, cuts
from jqd.testing.daemon import Answer, ScriptedDaemon, open_daemon
from jqd.words.clock import ManualClock
from jqd.words.media import MSGPACK

T = TypeVar("T")


@pytest.fixture
async def daemon() -> AsyncIterator[ScriptedDaemon]:
    async with open_daemon() as daemon:
        yield daemon


async def use(daemon: ScriptedDaemon, work: Callable[[Client], T]) -> T:
    """Run blocking `work` beside the daemon."""

    def run() -> T:
        with Client(daemon.url, timeout_s=5) as client:
            return work(client)

    return await trio.to_thread.run_sync(run)


# ---------------------------------------------------------------- push


async def test_a_push_sends_what_was_given_and_nothing_else(daemon: ScriptedDaemon) -> None:
    job_id = await use(daemon, lambda client: client.push("resize", {"path": "a.png"}))
    assert job_id in daemon.jobs
    assert daemon.seen[0].body == {"name": "resize", "argument": {"path": "a.png"}}
    assert daemon.seen[0].query == {}


async def test_a_push_sends_every_option(daemon: ScriptedDaemon) -> None:
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def push(client: Client) -> str:
        return client.push(
            "resize", b"\x00", priority=-3, max_retry=0, keep_result=False, timeout=timedelta(minutes=2), job_id="mine",
            run_at=when, delay=1.5, replace=True, tags=["a", "b"], ack="store",
        )  # fmt: skip

    assert await use(daemon, push) == "mine"
    assert daemon.seen[0].body == {
        "name": "resize",
        "argument": b"\x00",
        "priority": -3,
        "max_retry": 0,
        "keep_result": False,
        "timeout": 120.0,
        "job_id": "mine",
        "run_at": "2026-01-31T12:00:00+00:00",
        "delay": 1.5,
        "replace": True,
        "tags": ["a", "b"],
    }
    assert daemon.seen[0].query == {"ack": "store"}


async def test_the_same_id_counts_once_and_other_content_is_a_conflict(daemon: ScriptedDaemon) -> None:
    def push(client: Client) -> None:
        assert client.push("a", 1, job_id="x") == client.push("a", 1, job_id="x") == "x"
        with pytest.raises(Conflict, match="job x exists"):
            client.push("a", 2, job_id="x")

    await use(daemon, push)
    assert len(daemon.jobs) == 1


def test_mistakes_are_found_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="no time zone"):
            client.push("a", run_at=datetime(2026, 1, 1))
        with pytest.raises(TypeError, match="list of strings"):
            client.push("a", tags="abc")
        with pytest.raises(TypeError, match=r"encod|support"):
            client.push("a", object())
        for wrong, said in (
            ({"name": "a", "priorty": 1}, "job 1 has no field 'priorty'; did you mean 'priority'?"),
            ({"nam": "a"}, "job 1 has no field 'nam'; did you mean 'name'?"),
            ({"name": "a", "args": [1]}, "job 1 has no field 'args'; did you mean 'argument'?"),
            ({"name": "a", "xyzzy": 1}, "job 1 has no field 'xyzzy'; there are name, argument, "),
            ({"argument": 1}, "job 1 has no name: "),
            ({"name": "a", "tags": "x"}, "job 1: tags is a list of strings"),
            ("a", "job 1 is a map with the parameters of push by name, not a str"),
        ):
            with pytest.raises(TypeError, match=re.escape(said)):
                client.push_many([{"name": "good"}, wrong])  # type: ignore[list-item]


async def test_many_jobs_go_in_few_requests_and_come_back_in_order(daemon: ScriptedDaemon) -> None:
    jobs: list[dict[str, Any]] = [{"name": "a", "argument": n} for n in range(PUSH_JOBS_MAX + 7)]
    ids = await use(daemon, lambda client: client.push_many(jobs, ack="memory"))
    assert [len(seen.body) for seen in daemon.seen] == [PUSH_JOBS_MAX, 7]
    assert [daemon.jobs[job_id].pushed["argument"] for job_id in ids] == list(range(PUSH_JOBS_MAX + 7))
    assert daemon.seen[0].query == {"ack": "memory"}


async def test_no_jobs_are_no_request(daemon: ScriptedDaemon) -> None:
    assert await use(daemon, lambda client: client.push_many([])) == []
    assert await use(daemon, lambda client: client.push_many([], atomic=True)) == []
    assert daemon.seen == []


def test_cuts_follow_bytes_too() -> None:
    big = bytes(PUSH_BYTES_MAX // 2 + 1)
    assert cuts([big, big, b"a", big, big]) == [(0, 1), (1, 3), (3, 4), (4, 5)]
    assert cuts([bytes(2 * PUSH_BYTES_MAX)]) == [(0, 1)]
    assert cuts([]) == []


async def test_refused_items_are_named_by_their_place_in_the_whole_list(daemon: ScriptedDaemon) -> None:
    jobs: list[dict[str, Any]] = [{"name": "a"} for _ in range(PUSH_JOBS_MAX + 2)]
    jobs[PUSH_JOBS_MAX + 1] = {"name": None}

    def push(client: Client) -> PartlyPushed:
        with pytest.raises(PartlyPushed, match=r"5001 of 5002 jobs were taken.*job 5001 /name") as caught:
            client.push_many(jobs)
        return caught.value

    error = await use(daemon, push)
    assert [item.index for item in error.errors] == [PUSH_JOBS_MAX + 1]
    assert [index for index, job_id in enumerate(error.job_ids) if job_id is None] == [PUSH_JOBS_MAX + 1]


async def test_a_break_between_two_requests_says_what_was_taken(daemon: ScriptedDaemon) -> None:
    first = [f"job-{n}" for n in range(PUSH_JOBS_MAX)]
    busy = Answer(503, {"detail": "draining"}, {"retry-after": "3"})
    daemon.script("POST", "/v1/jobs", Answer(201, {"job_ids": first}), busy)

    def push(client: Client) -> PartlyPushed:
        with pytest.raises(PartlyPushed, match="5000 of 5001 jobs were taken before") as caught:
            client.push_many([{"name": "a"}] * (PUSH_JOBS_MAX + 1))
        return caught.value

    error = await use(daemon, push)
    assert error.job_ids == [*first, None]
    assert isinstance(error.__cause__, Unavailable)


async def test_atomic_is_one_request_and_all_or_nothing(daemon: ScriptedDaemon) -> None:
    daemon.script("POST", "/v1/jobs", Answer(400, {"detail": "one is bad", "errors": [{"index": 1, "detail": "x"}]}))

    def push(client: Client) -> None:
        with pytest.raises(Invalid, match="one is bad"):
            client.push_many([{"name": "a"}] * (PUSH_JOBS_MAX + 1), atomic=True)

    await use(daemon, push)
    assert daemon.seen[0].query == {"atomic": "1"}
    assert len(daemon.seen) == 1


@pytest.mark.parametrize("body", [None, [], {"job_ids": ["a"]}, {"job_ids": [1, 2]}, {"job_id": 7}])
async def test_an_answer_that_does_not_fit_is_refused(daemon: ScriptedDaemon, body: Any) -> None:
    daemon.script("POST", "/v1/jobs", Answer(201, body), Answer(201, body))

    def push(client: Client) -> None:
        with pytest.raises(JqdClientError, match="is it a jqd daemon"):
            client.push_many([{"name": "a"}, {"name": "b"}])
        with pytest.raises(JqdClientError, match="is it a jqd daemon"):
            client.push("a")

    await use(daemon, push)


# ---------------------------------------------------------------- look and wait


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

    return Client(transport=httpx2.MockTransport(answer), clock=clock), clock, asked


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
        for job_id in ("good", "bad", "gone"):
            client.push("n", job_id=job_id, keep_result=True)

    await use(daemon, push)
    daemon.jobs["none"].end("succeeded")
    daemon.jobs["good"].result = {"a": [1]}
    daemon.jobs["good"].end("succeeded")
    daemon.jobs["bad"].outcome = {"error": "ValueError: no"}
    daemon.jobs["bad"].end("failed")
    daemon.jobs["gone"].end("cancelled")

    def results(client: Client) -> None:
        assert client.result("good") == {"a": [1]}
        assert client.result("good", consume=True) == {"a": [1]}
        assert client.result("good") is None
        with pytest.raises(JobFailed, match="failed: ValueError: no") as caught:
            client.result("bad")
        assert caught.value.info.state == "failed"
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

    client = Client(transport=httpx2.MockTransport(answer))
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


# ---------------------------------------------------------------- the daemon


async def test_the_daemon_is_asked_about_itself(daemon: ScriptedDaemon) -> None:
    daemon.workers["w"] = {"name": "one", "jobs": [], "url": "http://127.0.0.1:9/"}

    def ask(client: Client) -> None:
        assert client.stats() == {"jobs": 0}
        assert client.workers()[0]["name"] == "one"
        assert client.ready() == {"ready": True, "push": True, "run": True}
        daemon.script("GET", "/readyz", Answer(503, {"push": False}))
        assert client.ready() == {"ready": False, "push": False}
        daemon.script("GET", "/v1/stats", Answer(200, [1]))
        with pytest.raises(JqdClientError, match="a question for stats"):
            client.stats()

    await use(daemon, ask)


# ---------------------------------------------------------------- job_info


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "told", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00", NOON.timestamp(), NOON]
)
def test_dates_are_understood_in_every_form(told: Any) -> None:
    assert job_info({"job_id": "a", "name": "n", "state": "x", "started_at": told}).started_at == NOON


@pytest.mark.parametrize(
    "told", [None, [], {"job_id": 1}, {"job_id": "a", "name": "n", "state": "x", "created_at": []}]
)
def test_what_is_no_job_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match=r"map|understood|date"):
        job_info(told)


def test_fields_of_a_newer_daemon_and_missing_ones_do_no_harm() -> None:
    info = job_info({"job_id": "a", "name": "n", "state": "resting", "mood": "good", "history": None, "tags": None})
    assert (info.state, info.ended, list(info.history), info.finished_at) == ("resting", False, [], None)


def test_a_push_that_another_daemon_still_takes_is_sent_until_it_is_known() -> None:
    sent: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(msgspec.msgpack.decode(request.content))
        if len(sent) == 1:
            raise httpx2.ReadError("reset")
        known = {"job_id": sent[0]["job_id"], "duplicate": True}
        status, body = (409, {"detail": "came first elsewhere"}) if len(sent) == 2 else (200, known)
        headers = {"content-type": "application/msgpack"}
        return httpx2.Response(status, content=msgspec.msgpack.encode(body), headers=headers)

    client = Client("http://one.test:1,http://two.test:2", transport=httpx2.MockTransport(answer))
    assert client.push_one({"name": "n"}) == Taken(sent[0]["job_id"], duplicate=False)
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
