"""Jobs that are asked for, and what workers report of them: the edge over the scripts of the store itself."""

from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.job import Fate
from jqd.http import ListenerConfig
from jqd.runner import WorkerSpec
from tests.api.behind_asgi import to_asgi
from tests.api.edge import JSON, Answer
from tests.api.lent import begun, handed, report
from tests.api.whole import Whole

SOON_S = 0.1  # a poll that does not wait


@pytest.fixture(name="edge")
async def _edge() -> Whole:
    return await begun()


# ------------------------------------------------------------ POST /v1/leases


async def lease(edge: Whole, gone: trio.Event | None = None, **fields: Any) -> Answer:
    asked = {"worker_id": "puller", "max_jobs": 5, **fields}
    return await edge.call("POST", "/v1/leases", asked, kind=fields.pop("kind", JSON), gone=gone)


async def dispatch(edge: Whole) -> list[Any]:
    """As the dispatcher does for a poll that waits, up to where the store knows who has the jobs."""
    pulls = edge.api._parts.services.pulls
    await trio.testing.wait_all_tasks_blocked()
    poll = pulls.best("mail", 0)
    assert poll is not None, "nobody waits"
    with poll.promised():
        held = await edge.claim(limit=poll.jobs_max)
        poll.bring(held)
    poll.silence_s = 31
    for one in held:
        await edge.hand(one)
    return [poll, *held]


async def test_a_poll_without_jobs_says_so_when_its_time_is_over(edge: Whole, autojump_clock: None) -> None:
    for wait, waits_s in ((0, SOON_S), (7, 7), (1e9, 60), (-1, SOON_S)):
        began_s = trio.current_time()
        told = await lease(edge, wait=wait)
        assert (told.status, told.body) == (200, {"lease_id": None, "jobs": []})
        assert trio.current_time() - began_s == pytest.approx(waits_s)


async def test_a_poll_is_answered_as_soon_as_its_worker_has_the_jobs(edge: Whole, autojump_clock: None) -> None:
    pushed = [await edge.push(argument={"n": n}) for n in range(2)]
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await lease(edge, wait=30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, *held = await dispatch(edge)
        poll.arrived(held[0].job.id)
        await trio.sleep(1)
        assert not answers, "both are one lease"
        poll.arrived(held[1].job.id)
    body = answers[0].body
    assert (body["lease_id"], body["heartbeat"]) == (str(held[0].fence), 31)
    assert [(job["job_id"], job["argument"]) for job in body["jobs"]] == [(pushed[n], {"n": n}) for n in range(2)]
    assert edge.runner.lost == []


@pytest.mark.parametrize(("came", "silence_s", "waits_s"), [(0, 31, 11), (1, 31, 10), (1, 1, 0.5)])
async def test_jobs_that_came_in_part_are_given(
    edge: Whole, autojump_clock: None, came: int, silence_s: int, waits_s: float
) -> None:
    """The store went away between two pieces of a hand-over: what it said is in the worker's hand is the worker's.

    And its worker is told before it is missed.
    """
    began_s = trio.current_time()
    for _ in range(2):
        await edge.push()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await lease(edge, wait=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, *held = await dispatch(edge)
        poll.silence_s = silence_s
        for one in held[:came]:
            poll.arrived(one.job.id)
    assert trio.current_time() - began_s == pytest.approx(waits_s)
    (answer,) = answers
    assert answer.status == (200 if came else 503)
    assert [job["job_id"] for job in answer.body.get("jobs", [])] == [one.job.id for one in held[:came]]
    assert not poll.arrived(held[1].job.id), "nobody waits: it goes back"


@pytest.mark.parametrize("away", [False, True])
async def test_an_answer_that_comes_late_has_nothing_that_ended_as_silence(
    edge: Whole, autojump_clock: None, away: bool
) -> None:
    """Its daemon stood still, say, while another one watched: then the worker would begin a job that is over."""
    for _ in range(2):
        await edge.push()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await lease(edge, wait=30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, *held = await dispatch(edge)
        poll.handed_s = edge.clock.boot_s()
        edge.clock.suspend(16)
        await edge.end(held[0], Fate.DEAD)
        edge.whole.away = "cable pulled" if away else None
        for one in held:
            poll.arrived(one.job.id)
    (answer,) = answers
    assert answer.status == (503 if away else 200)
    assert [job["job_id"] for job in answer.body.get("jobs", [])] == [one.job.id for one in held[1:]] * (not away)
    assert edge.runner.lost == [(one.job.id, one.fence) for one in held] * away, "nobody was told of them"


@pytest.mark.parametrize("promised", [False, True])
async def test_who_leaves_keeps_no_jobs(edge: Whole, autojump_clock: None, promised: bool) -> None:
    await edge.push()
    gone = trio.Event()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await lease(edge, gone, wait=30))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, *held = await dispatch(edge)
        if not promised:
            poll.failed(held[0].job.id)
        gone.set()
        await trio.testing.wait_all_tasks_blocked()
        if promised:
            assert not answers, "what is on its way is waited for, so that it can be given back"
            poll.arrived(held[0].job.id)
    assert answers[0].body == {"lease_id": None, "jobs": []}
    assert edge.runner.lost == [(one.job.id, one.fence) for one in held] * promised


async def test_an_answer_that_does_not_arrive_gives_its_jobs_back(edge: Whole, autojump_clock: None) -> None:
    await edge.push()
    body = msgspec.json.encode({"worker_id": "puller", "max_jobs": 1, "wait": 30})
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/leases", "query_string": b""}
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return pending.pop() if pending else await trio.sleep_forever()

    async def send(message: Any) -> None:
        raise trio.BrokenResourceError

    async def ask() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await to_asgi(edge.api, ListenerConfig())({**scope, "headers": headers}, receive, send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, held = await dispatch(edge)
        poll.arrived(held.job.id)
    assert edge.runner.lost == [(held.job.id, held.fence)]


async def test_a_poll_says_how_long_its_worker_may_be_silent_or_its_registration_does(
    edge: Whole, autojump_clock: None
) -> None:
    edge.workers.register(WorkerSpec(name="w", id="puller", jobs=("mail",), max_jobs=5, heartbeat_s=9.0), peer=None)
    seen: list[float | None] = []
    said: list[dict[str, Any]] = [{}, {"heartbeat": 4}]
    for fields in said:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(lease, edge, None, wait=30, **fields))
            await trio.testing.wait_all_tasks_blocked()
            poll = edge.api._parts.services.pulls.best("mail", 0)
            assert poll is not None
            seen.append(poll.heartbeat_s)
            nursery.cancel_scope.cancel()
    assert seen == [9.0, 4.0]


async def test_polls_that_cannot_be(edge: Whole, autojump_clock: None) -> None:
    edge.workers.register(WorkerSpec(name="w", id="posted", url="http://127.0.0.1:9/", max_jobs=5), peer=None)
    for fields, status in (
        ({"worker_id": "nobody"}, 404),
        ({"worker_id": "posted"}, 409),
        ({"max_jobs": 0}, 422),
        ({"wait": "long"}, 422),
        ({"heartbeat": 0.5}, 422),
        ({"odd": 1}, 422),
    ):
        assert (await lease(edge, **fields)).status == status, fields
    edge.api._parts.services.pulls.close()
    told = await lease(edge, wait=30)
    assert (told.status, told.headers["retry-after"]) == (503, "1"), "the daemon shuts down"


# ------------------------------------------------------------ POST /v1/jobs/{id}/heartbeat


async def test_a_heartbeat_shows_how_far_the_job_is(edge: Whole) -> None:
    claim = await handed(edge, job_id="mine/1")
    path, lease_id = "/v1/jobs/mine%2F1", claim["lease_id"]
    told = await edge.call("POST", path + "/heartbeat", {"lease_id": lease_id, "progress": 0.25, "message": "ü"})
    assert (told.status, told.body) == (200, {"cancelled": False, "heartbeat": 31})
    shown = (await edge.call("GET", path)).body
    assert (shown["worker"], shown["progress"]["done"], shown["progress"]["message"]) == ("puller", 0.25, "ü")
    told = await edge.call("POST", path + "/heartbeat", {"lease_id": lease_id, "extend": 7_200})
    assert told.body == {"cancelled": False, "heartbeat": 7_200}
    assert (await edge.call("GET", path)).body["progress"]["done"] == 0.25
    assert (await edge.call("DELETE", path)).status == 202
    told = await edge.call("POST", path + "/heartbeat", {"lease_id": lease_id})
    assert told.body == {"cancelled": True, "heartbeat": 7_200}
    for body, status in (
        ({"lease_id": "17"}, 409),
        ({"lease_id": "soon"}, 409),
        ({"lease_id": lease_id, "progress": 1.5}, 422),
        ({"lease_id": lease_id, "message": "x" * 201}, 422),
        ({"lease_id": lease_id, "extend": 0}, 422),
        ({}, 422),
    ):
        assert (await edge.call("POST", path + "/heartbeat", body)).status == status, body
    assert (await edge.call("POST", "/v1/jobs/none/heartbeat", {"lease_id": lease_id})).status == 404


async def test_a_heartbeat_shows_how_far_a_job_is_that_a_daemon_posted(edge: Whole) -> None:
    await edge.push(job_id="mine")
    (held,) = await edge.claim()
    beat = {"lease_id": str(held.fence), "progress": 0.5, "message": "page 2"}
    told = await edge.call("POST", "/v1/jobs/mine/heartbeat", beat)
    assert (told.status, told.body) == (200, {"cancelled": False})
    shown = (await edge.call("GET", "/v1/jobs/mine")).body
    assert (shown["progress"]["done"], shown["progress"]["message"]) == (0.5, "page 2")
    snooze = {
        "job_id": held.job.id,
        "lease_id": str(held.fence),
        "type": "snooze",
        "retry_after": 60,
        "message": "early",
    }
    assert await report(edge, snooze) == [(200, "")]
    await edge.apply()
    shown = (await edge.call("GET", "/v1/jobs/mine")).body
    assert (shown["state"], shown["attempts"], shown["snoozes"], shown["message"]) == ("scheduled", 0, 1, "early")
    assert "progress" not in shown


async def test_a_poll_is_a_sign_of_life_as_long_as_it_waits_and_ends_when_its_worker_left(edge, autojump_clock):
    ask = {"worker_id": "p", "max_jobs": 1}
    card = {"name": "p", "worker_id": "p", "jobs": ["mail"], "max_jobs": 1, "ttl": 5}

    async def tick() -> None:
        while True:
            await trio.sleep(0.5)
            edge.clock.advance(0.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await edge.call("POST", "/v1/workers", card)
        assert (await edge.call("POST", "/v1/leases", {**ask, "wait": 12})).status == 200
        assert edge.workers.get("p") is not None
        await trio.sleep(6)
        assert edge.workers.get("p") is None
        assert (await edge.call("POST", "/v1/leases", {**ask, "wait": 0})).status == 200, "who speaks again is back"
        nursery.start_soon(partial(edge.call, "DELETE", "/v1/workers/p"))
        assert (await edge.call("POST", "/v1/leases", {**ask, "wait": 30})).status == 404
        nursery.cancel_scope.cancel()


async def test_a_poll_says_what_it_is_warm_for(edge: Whole, autojump_clock: None) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(lease, edge, wait=5))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(lease, edge, wait=5, warm=["mail", "pay"]))
        await trio.testing.wait_all_tasks_blocked()
        poll = edge.api._parts.services.pulls.best("mail", 0)
        assert poll is not None
        assert poll.warm == ("mail", "pay")
    assert (await lease(edge, warm=["x"] * 101)).status == 422
