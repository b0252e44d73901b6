"""What workers report of jobs that they hold: each for itself, and the first verdict stands."""

from typing import Any

import msgspec
import pytest
import trio

from jqd.api.v1.leases import DESCRIBED_MAX
from jqd.domain.errors import JournalRefused, StoreAway, StoreUnsettled
from jqd.domain.job import NIL, Fate, Held, Job
from jqd.runner.lease_handover import Given
from jqd.service.recent_outcomes import RecentOutcomes
from tests.api.edge import JSON, MSGPACK
from tests.api.fakes import outcome
from tests.api.lent import begun, handed, journaled, report
from tests.api.whole import Whole


@pytest.fixture(name="edge")
async def _edge() -> Whole:
    return await begun()


async def test_the_store_is_not_asked_of_successes_in_leases_that_were_given_here(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds such a job by now, it did run, and the store decides. Of all else it is asked who has it."""
    claims, touch, asked = [await handed(edge, keep_result=True) for _ in range(5)], edge.store.touch, list[Any]()
    known = [(one["job_id"], int(one["lease_id"])) for one in claims[:4]]
    for claim, seen in zip(known, await touch(known), strict=True):
        assert seen.held is not None
        edge.runner.given[claim] = Given(seen.held, seen.worker, edge.clock.boot_s() + 60)

    async def noting(named: Any, *, rows: bool) -> Any:
        asked.append((len(named), rows))
        return await touch(named, rows=rows)

    monkeypatch.setattr(edge.store, "touch", noting)
    first, second, third, failed, unknown = claims
    success = {"type": "success", "result": 1}
    told = await report(edge, *({**each, **success} for each in (first, second, first)))
    assert [status for status, _ in told] == [200] * 3
    assert asked == [(1, False)], "of what was reported before"
    assert [status for status, _ in await report(edge, {**failed, "type": "failure"})] == [200]
    assert [status for status, _ in await report(edge, {**third, "type": "failure"}, {**third, **success})] == [200] * 2
    assert [status for status, _ in await report(edge, {**unknown, **success})] == [200]
    assert asked[1:] == [(1, False), (2, False), (1, True)]
    assert [one.fate for one in journaled(edge)] == [Fate.SUCCEEDED] * 2 + [Fate.RETRY] * 2 + [Fate.SUCCEEDED] * 2
    assert {(one.result, one.worker) for one in journaled(edge) if one.fate is Fate.SUCCEEDED} == {(b"\x01", "puller")}


async def test_a_success_after_its_lease_was_over_is_asked_about(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another daemon may have ended the job meanwhile, and told so."""
    claim = await handed(edge)
    known = claim["job_id"], int(claim["lease_id"])
    (seen,) = await edge.store.touch([known])
    assert seen.held is not None
    edge.runner.given[known] = Given(seen.held, seen.worker, edge.clock.boot_s())
    monkeypatch.setattr(edge.store, "touch", _gone)
    assert (await edge.call("POST", "/v1/outcomes", [{**claim, "type": "success"}])).status == 503
    assert not journaled(edge)


async def test_what_was_given_back_here_is_asked_about(edge: Whole) -> None:
    claim = await handed(edge)
    known = claim["job_id"], int(claim["lease_id"])
    (seen,) = await edge.store.touch([known])
    assert seen.held is not None
    edge.runner.given[known] = Given(seen.held, seen.worker, edge.clock.boot_s() + 60)
    assert [status for status, _ in await report(edge, {**claim, "type": "refused"})] == [200]
    assert known not in edge.runner.given


async def test_a_success_that_cannot_be_kept_is_asked_about(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no success then, and whether a failure counts the store alone knows."""
    claim = await handed(edge, keep_result="required")
    known = claim["job_id"], int(claim["lease_id"])
    (seen,) = await edge.store.touch([known])
    assert seen.held is not None
    edge.runner.given[known] = Given(seen.held, seen.worker, edge.clock.boot_s() + 60)
    monkeypatch.setattr(edge.store, "touch", _gone)
    told = await edge.call("POST", "/v1/outcomes", [{**claim, "type": "success", "result": "x" * 2_000_000}])
    assert told.status == 503
    assert not journaled(edge)


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
    next_job = {"name": "next", "job_id": f"{more['job_id']}.0", "parent": more["job_id"]}
    assert msgspec.msgpack.decode(followed.follows) == ["", [next_job]]
    assert (success.fate, success.result, success.worker) == (Fate.SUCCEEDED, msgspec.msgpack.encode([1]), "puller")
    assert (failure.fate, failure.status, failure.message) == (Fate.FAILED, 422, "no such address")
    assert (success.by_worker_at_ms, failure.by_worker_at_ms) == (1_893_456_000_000, None)
    assert edge.journal.synced >= edge.journal.written, "on disk before it is said to be taken"
    assert (await edge.call("GET", f"/v1/jobs/{back['job_id']}")).body["state"] == "waiting"
    assert [s for s, _ in await report(edge, {**back, "status": 500}, {**back, "type": "refused"})] == [409, 409]


@pytest.mark.parametrize("full", [False, True])
async def test_the_same_twice_is_taken_neither_time_when_the_journal_refuses(
    edge: Whole, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is no repeat of something that stands: the first stands nowhere."""
    one, other = [await handed(edge) for _ in range(2)]
    rows = [{**each, "type": "success"} for each in (one, one, other, one)]

    def refuse(*_: object, **__: object) -> int:
        raise JournalRefused("the disk refuses", full=full)

    with monkeypatch.context() as patched:  # writes alone: what was synced before stays so
        patched.setattr(edge.journal, "write", refuse)
        told = await report(edge, *rows, {"job_id": "nobody", "type": "success"})  # else all of it is refused
        assert [status for status, _ in told] == [507 if full else 503] * 4 + [422]
    assert [status for status, _ in await report(edge, *rows)] == [200] * 4
    assert [told.job_id for told in journaled(edge)] == [one["job_id"], other["job_id"]]


async def test_many_that_jobs_follow_are_more_than_one_frame(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those jobs grow by their names: a report that may be sent is no frame that may be written."""
    edge.journal.frame_bytes_max = 2_000
    monkeypatch.setattr("jqd.service.recent_outcomes.FRAME_BYTES", 1_000)
    held = [await handed(edge) for _ in range(9)]
    follows = [{"name": "x"}] * 10
    told = await report(edge, *({**each, "type": "success", "jobs": follows} for each in held))
    assert told == [(200, "")] * 9
    assert [one.job_id for one in journaled(edge)] == [each["job_id"] for each in held]
    assert edge.journal.synced == edge.journal.written


async def test_a_frame_that_the_disk_refused_is_not_taken_for_the_last_one(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is late takes a look at the store, and a frame of its own: a journal goes on after a refusal."""
    monkeypatch.setattr("jqd.service.recent_outcomes.FRAME_BYTES", 1)
    held = [await handed(edge, keep_result=True) for _ in range(3)]
    seen, wsync = list[int | None](), edge.journal.wsync

    async def first_is_void(position: int | None = None, **how: Any) -> None:
        seen.append(position)
        if position == seen[0]:
            raise JournalRefused("no space left", full=True)
        await wsync(position, **how)

    with monkeypatch.context() as patched:
        patched.setattr(edge.journal, "wsync", first_is_void)
        rows = [{**each, "type": "success", "result": 1} for each in held]
        told = await report(edge, *rows, rows[0], {"job_id": "nobody", "type": "success"})
        assert [status for status, _ in told] == [507, 200, 200, 507, 422]
    assert [status for status, _ in await report(edge, *rows)] == [200] * 3


def test_what_the_disk_refused_is_forgotten_and_breaks_no_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.service.recent_outcomes.ROWS_MAX", 2)
    recent = RecentOutcomes()
    tried = [outcome("j", fence=fence) for fence in (1, 2)]
    recent.note(tried[:1], 10)
    recent.note(tried[1:], 20)
    recent.forget(tried[1:])
    recent.note([outcome(str(number)) for number in range(4)], 30)
    recent.note([outcome("last")], 40)
    assert (recent.find("j", 2), recent.last("last"), recent.last("j")) == (None, 40, 0)


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
        ({"type": "refused", "interrupted": True, "retry_after": 9}, Fate.RETRY, 503, 0),
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
        services = edge.api._parts.services
        monkeypatch.setattr(type(services), "where", lambda _, *ids: frozenset(int(each == lost) for each in ids))
    told = await report(edge, *({**claim, "type": said} for claim in claims))
    assert [status for status, _ in told] == [200, 200, 200, 503, 200]


async def test_arrays_that_are_none(edge: Whole) -> None:
    for body, status in ((b"{}", 422), (b"[]", 400), (b"[", 400), (msgspec.json.encode([1] * 10_001), 413)):
        assert (await edge.call("POST", "/v1/outcomes", body, kind=JSON)).status == status, body[:10]
    assert (await edge.call("POST", "/v1/outcomes", b"\x90")).status == 400


async def test_what_is_refused_says_of_which_job_where_that_can_be_read(edge: Whole) -> None:
    held = await handed(edge)
    wrong = [
        {**held, "lease_id": "nope", "type": "success"},
        held,  # neither type nor status
        {**held, "job_id": "nonsense", "type": "success"},
        {"job_id": 5, "lease_id": "7", "type": "success"},
    ]
    for outcomes in (wrong[:3], wrong):  # the last one has all of them read one by one
        told = (await edge.call("POST", "/v1/outcomes", outcomes)).body["outcomes"]
        expected = [(409, held["job_id"]), (422, held["job_id"]), (404, "nonsense"), (422, None)]
        assert [(one["status"], one.get("job_id")) for one in told] == expected[: len(outcomes)]


async def test_what_is_wrong_is_said_of_the_first_of_many_outcomes(edge: Whole) -> None:
    claim = await handed(edge)
    wrong = [{"job_id": 5, "lease_id": 5}] * (DESCRIBED_MAX + 50)
    told = await report(edge, *wrong, {**claim, "type": "success"}, *wrong[:50])
    assert [status for status, _ in told] == [422] * len(wrong) + [200] + [422] * 50
    assert ["of the first" in detail for _, detail in told[: len(wrong)]] == [False] * DESCRIBED_MAX + [True] * 50


@pytest.mark.parametrize("first", ["told before", "told meanwhile", "in a daemon's hand"])
async def test_the_first_verdict_wins_while_the_store_learns_of_it(edge: Whole, first: str) -> None:
    """The store said that the lease stands, and what ended it was applied before that answer came."""
    claim, touch = await handed(edge), edge.store.touch
    success = {**claim, "type": "success"}
    if first == "in a daemon's hand":
        await edge.push(name="own")
        (held,) = await edge.claim("own")
        claim = {"job_id": held.job.id, "lease_id": str(held.fence)}
        edge.runner.untold[held.job.id] = outcome(held.job.id, fence=held.fence, fate=Fate.SUCCEEDED)
    elif first == "told before":
        assert await report(edge, success) == [(200, "")]
    answered, goes_on = trio.Event(), trio.Event()

    async def slow(*named: Any, **how: Any) -> Any:
        seen = await touch(*named, **how)
        answered.set()
        await goes_on.wait()
        return seen

    told: list[tuple[int, str]] = []

    async def fail() -> None:
        told.extend(await report(edge, {**claim, "type": "failure"}))

    async with trio.open_nursery() as nursery:
        edge.store.touch = slow  # type: ignore[method-assign]
        nursery.start_soon(fail)
        await answered.wait()
        edge.store.touch = touch  # type: ignore[method-assign]
        if first == "told meanwhile":
            assert await report(edge, success) == [(200, "")]
        await edge.apply()
        edge.runner.untold.clear()
        goes_on.set()
    assert [status for status, _ in told] == [409]
    assert Fate.RETRY not in {one.fate for one in journaled(edge)}
