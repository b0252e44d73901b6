"""Jobs that are asked for, and what workers report of them: the edge over the scripts of the store itself."""

import itertools
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from jqd.api.native.leases import SAID_MAX
from jqd.doors import DoorConfig, to_asgi
from jqd.runner import Card
from jqd.words.errors import JournalRefused, StoreAway, StoreUnsettled
from jqd.words.job import NIL, Fate, Held, Job
from jqd.words.record import Lane, decode_outcomes
from tests.api.edge import JSON, MSGPACK, Answer
from tests.api.whole import Whole

SOON_S = 0.1  # a poll that does not wait
_numbers = itertools.count()


@pytest.fixture(name="edge")
async def _edge() -> Whole:
    edge = await Whole().begin()
    edge.runner.knows = False  # no daemon waits for any of these
    edge.workers.register(Card(name="w", id="puller", jobs=("mail",), max_jobs=5), peer=None)
    return edge


async def handed(edge: Whole, **pushed: Any) -> dict[str, Any]:
    """One job in the worker's own hand: what an outcome of it names."""
    name = f"type {next(_numbers)}"
    job_id = await edge.push(name=name, **pushed)
    (held,) = await edge.claim(name)
    await edge.hand(held)
    return {"job_id": job_id, "lease_id": str(held.fence)}


async def report(edge: Whole, *outcomes: Any, **named: Any) -> list[tuple[int, str]]:
    told = await edge.call("POST", "/v1/outcomes", list(outcomes), **named)
    assert told.status == 200, told.body
    return [(one["status"], one.get("detail", "")) for one in told.body["outcomes"]]


def journaled(edge: Whole) -> list[Any]:
    return [one for lane, _, body in edge.journal.frames if lane is Lane.OUTCOMES for one in decode_outcomes(body)]


# ------------------------------------------------------------ POST /v1/leases


async def lease(edge: Whole, gone: trio.Event | None = None, **fields: Any) -> Answer:
    asked = {"worker_id": "puller", "max_jobs": 5, **fields}
    return await edge.call("POST", "/v1/leases", asked, kind=fields.pop("kind", JSON), gone=gone)


async def dispatch(edge: Whole) -> list[Any]:
    """As the dispatcher does for a poll that waits, up to where the store knows who has the jobs."""
    pulls = edge.api._parts.desk.pulls
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


@pytest.mark.parametrize("came", [0, 1])
async def test_jobs_that_came_in_part_are_given(edge: Whole, autojump_clock: None, came: int) -> None:
    """The store went away between two pieces of a hand-over: what it said is in the worker's hand is the worker's."""
    for _ in range(2):
        await edge.push()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await lease(edge, wait=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, *held = await dispatch(edge)
        for one in held[:came]:
            poll.arrived(one.job.id)
    (answer,) = answers
    assert answer.status == (200 if came else 503)
    assert [job["job_id"] for job in answer.body.get("jobs", [])] == [one.job.id for one in held[:came]]
    assert not poll.arrived(held[1].job.id), "nobody waits: it goes back"


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
            await to_asgi(edge.api, DoorConfig())({**scope, "headers": headers}, receive, send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        poll, held = await dispatch(edge)
        poll.arrived(held.job.id)
    assert edge.runner.lost == [(held.job.id, held.fence)]


async def test_a_poll_says_how_long_its_worker_may_be_silent_or_its_registration_does(
    edge: Whole, autojump_clock: None
) -> None:
    edge.workers.register(Card(name="w", id="puller", jobs=("mail",), max_jobs=5, heartbeat_s=9.0), peer=None)
    seen: list[float | None] = []
    said: list[dict[str, Any]] = [{}, {"heartbeat": 4}]
    for fields in said:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(lease, edge, None, wait=30, **fields))
            await trio.testing.wait_all_tasks_blocked()
            poll = edge.api._parts.desk.pulls.best("mail", 0)
            assert poll is not None
            seen.append(poll.heartbeat_s)
            nursery.cancel_scope.cancel()
    assert seen == [9.0, 4.0]


async def test_polls_that_cannot_be(edge: Whole, autojump_clock: None) -> None:
    edge.workers.register(Card(name="w", id="posted", url="http://127.0.0.1:9/", max_jobs=5), peer=None)
    for fields, status in (
        ({"worker_id": "nobody"}, 404),
        ({"worker_id": "posted"}, 409),
        ({"max_jobs": 0}, 422),
        ({"wait": "long"}, 422),
        ({"heartbeat": 0.5}, 422),
        ({"odd": 1}, 422),
    ):
        assert (await lease(edge, **fields)).status == status, fields
    edge.api._parts.desk.pulls.close()
    told = await lease(edge, wait=30)
    assert (told.status, told.headers["retry-after"]) == (503, "1"), "the daemon shuts down"


# ------------------------------------------------------------ POST /v1/outcomes


async def test_outcomes_count_each_for_itself(edge: Whole) -> None:
    good, bad, back, odd, more = [await handed(edge, keep_result=True) for _ in range(5)]
    told = await report(
        edge,
        {**good, "type": "success", "result": [1], "finished_at": "2030-01-01T00:00:00Z"},
        {**bad, "status": 422, "message": "no such address", "error": {"code": 550}},
        {**back, "type": "refused"},
        {**odd, "type": "maybe"},
        {**odd},
        {**more, "type": "success", "jobs": [{"name": "next", "priority": "high"}]},
        {**good, "type": "failure"},
        {**good, "type": "success"},
        {**odd, "type": "success", "lease_id": "٣"},
        {**odd, "job_id": "nonsense", "type": "success"},
        3,
    )
    assert [status for status, _ in told] == [200, 200, 200, 422, 422, 422, 409, 200, 409, 404, 422]
    assert "jobs: jobs/0/priority: " in told[5][1]
    assert await report(edge, {**more, "type": "success", "jobs": [{"name": "next"}]}) == [(200, "")]
    success, failure, followed = journaled(edge)
    assert msgspec.msgpack.decode(followed.follows) == ["", [{"name": "next", "job_id": f"{more['job_id']}.0"}]]
    assert (success.fate, success.result, success.worker) == (Fate.SUCCEEDED, msgspec.msgpack.encode([1]), "puller")
    assert (failure.fate, failure.status, failure.message) == (Fate.FAILED, 422, "no such address")
    assert edge.journal.synced >= edge.journal.end, "on disk before it is said to be taken"
    assert (await edge.call("GET", f"/v1/jobs/{back['job_id']}")).body["state"] == "waiting"
    assert [s for s, _ in await report(edge, {**back, "status": 500}, {**back, "type": "refused"})] == [409, 409]


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
async def test_failures_are_tried_again_or_not_as_in_an_answer(edge: Whole, kind: str) -> None:
    failure = {"type": "failure", "message": "no"}
    for said, fate, status, delay_ms in (
        ({**failure, "should_retry": False}, Fate.FAILED, 400, 0),
        ({**failure, "retry_after": 7}, Fate.RETRY, 500, 7_000),
        ({**failure, "reason": "timeout", "retry_after": 0}, Fate.RETRY, 504, 0),
        ({"status": 503, "retry_after": 0}, Fate.RETRY, 503, 0),
        ({"status": 422, "should_retry": True, "retry_after": 1}, Fate.RETRY, 422, 1_000),
        ({"type": "snooze", "retry_after": 9}, Fate.RETRY, 102, 9_000),
    ):
        claim = await handed(edge)
        assert await report(edge, {**claim, **said}, kind=kind) == [(200, "")]
        last = journaled(edge)[-1]
        assert (last.fate, last.status, last.delay_ms) == (fate, status, delay_ms)


async def test_the_first_verdict_wins_before_the_store_knows_it(edge: Whole) -> None:
    claim = await handed(edge)
    failed = {**claim, "type": "failure", "should_retry": False, "message": "no"}
    edge.journal.hold = trio.Event()
    first: list[list[tuple[int, str]]] = []

    async def say(outcome: dict[str, Any]) -> None:
        first.append(await report(edge, outcome))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say, failed)
        await trio.testing.wait_all_tasks_blocked()
        edge.store.touch = _gone  # type: ignore[method-assign]
        assert [status for status, _ in await report(edge, {**failed, "message": "other"})] == [409]
        nursery.start_soon(say, failed)
        await trio.testing.wait_all_tasks_blocked()
        assert not first, "nor does who repeats it hear before it is on disk"
        edge.journal.hold.set()
    assert first == [[(200, "")], [(200, "")]]
    assert len(journaled(edge)) == 1


async def _gone(*_: Any, **__: Any) -> Any:
    raise StoreAway("gone for a moment")


async def test_what_nobody_can_say_is_to_be_sent_again(edge: Whole) -> None:
    claim = await handed(edge)
    outcome = {**claim, "type": "success"}
    edge.store.touch = _gone  # type: ignore[method-assign]
    told = await edge.call("POST", "/v1/outcomes", [outcome])
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert [status for status, _ in await report(edge, outcome, {**outcome, "job_id": "x"})] == [503, 404]
    del edge.store.touch
    edge.journal.refuse = JournalRefused("no space left", full=True)
    assert (await edge.call("POST", "/v1/outcomes", [outcome])).status == 507
    edge.journal.refuse = None
    assert await report(edge, outcome) == [(200, "")], "it had not been taken"


async def test_a_lease_whose_job_the_store_is_told_of_later_is_no_stale_one(edge: Whole) -> None:
    """After a wipe: hand-overs are told before anything counts, their jobs need not be."""
    edge.cancels_first = True  # the lane of jobs stands still
    told = await edge.call("POST", "/v1/jobs", {"name": "mail"})
    job = Job(told.body["job_id"], "mail", NIL)
    await edge.hand(Held(job, fence=7, attempt=1))
    outcome = {"job_id": job.id, "lease_id": "7", "type": "success"}
    (status, why), _ = await report(edge, outcome, {**outcome, "job_id": "x"})
    assert (status, "send it again" in why) == (503, True)
    edge.cancels_first = False
    await edge.apply()
    assert await report(edge, outcome) == [(200, "")]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ("touch", StoreAway("its partition is away"), "success"),
        ("release_entrusted", StoreAway("its partition is away"), "refused"),
        ("touch", StoreUnsettled("a journal may know better of it"), "success"),
    ],
)
async def test_what_nobody_can_say_of_one_job_refuses_no_other(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, call: str, error: StoreAway, said: str
) -> None:
    claims = [await handed(edge) for _ in range(5)]
    lost = claims[3]["job_id"]
    ask = getattr(edge.store, call)

    async def asked(named: list[tuple[str, int]], **how: Any) -> Any:
        if lost in dict(named):
            raise error
        return await ask(named, **how)

    monkeypatch.setattr(edge.store, call, asked)
    if not isinstance(error, StoreUnsettled):
        desk = edge.api._parts.desk
        monkeypatch.setattr(type(desk), "where", lambda _, *ids: frozenset(int(each == lost) for each in ids))
    told = await report(edge, *({**claim, "type": said} for claim in claims))
    assert [status for status, _ in told] == [200, 200, 200, 503, 200]


async def test_arrays_that_are_none(edge: Whole) -> None:
    for body, status in ((b"{}", 422), (b"[]", 400), (b"[", 400), (msgspec.json.encode([1] * 10_001), 413)):
        assert (await edge.call("POST", "/v1/outcomes", body, kind=JSON)).status == status, body[:10]
    assert (await edge.call("POST", "/v1/outcomes", b"\x90")).status == 400


async def test_what_is_wrong_is_said_of_the_first_of_many_outcomes(edge: Whole) -> None:
    claim = await handed(edge)
    wrong = [{"job_id": 5, "lease_id": 5}] * (SAID_MAX + 50)
    told = await report(edge, *wrong, {**claim, "type": "success"}, *wrong[:50])
    assert [status for status, _ in told] == [422] * len(wrong) + [200] + [422] * 50
    assert ["of the first" in detail for _, detail in told[: len(wrong)]] == [False] * SAID_MAX + [True] * 50


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
