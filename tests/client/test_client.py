"""The client against a scripted daemon, and against answers a real one gives rarely."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from jqd.client import (
    Client,
    Conflict,
    Invalid,
    JqdClientError,
    PartlyPushed,
    Unavailable,
)
from jqd.client.job_info import PushedJob, job_info
from jqd.client.send import PUSH_BYTES_MAX, PUSH_JOBS_MAX, split_requests
from tests.client.scripted import use
from tests.harness.daemon import Answer, ScriptedDaemon
from tests.harness.handled import Handled

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
    assert split_requests([big, big, b"a", big, big]) == [(0, 1), (1, 3), (3, 4), (4, 5)]
    assert split_requests([bytes(2 * PUSH_BYTES_MAX)]) == [(0, 1)]
    assert split_requests([]) == []


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


@pytest.mark.parametrize("told", ["2026-01-31T12:00:00.000Z", "2026-01-31T13:00:00+01:00", NOON])
def test_dates_are_understood_with_their_zone(told: Any) -> None:
    assert job_info({"job_id": "a", "name": "n", "state": "x", "started_at": told}).started_at == NOON


@pytest.mark.parametrize(
    "told", [None, [], {"job_id": 1}, {"job_id": "a", "name": "n", "state": "x", "created_at": []}]
)
def test_what_is_no_job_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match=r"map|understood|date"):
        job_info(told)


def test_fields_that_are_not_known_and_missing_ones_do_no_harm() -> None:
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

    client = Client("http://one.test:1,http://two.test:2", transport=Handled(answer))
    assert client.push_one({"name": "n"}) == PushedJob(sent[0]["job_id"], duplicate=False)
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]
