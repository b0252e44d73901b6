"""Cancel, retry and clean of many jobs, in bounded pieces, to the end in the store."""

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from jqd.domain.dates import iso
from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.job import Exit, Fate, State
from jqd.domain.tenant import annotate
from jqd.service import bulk
from tests.api.edge import JSON, MSGPACK
from tests.api.whole import Whole

DAY_S = 86_400


@pytest.fixture
async def edge(monkeypatch: pytest.MonkeyPatch) -> Whole:
    monkeypatch.setattr(bulk, "STEP_JOBS", 4)
    monkeypatch.setattr(bulk, "STEPS_MAX", 3)
    return await Whole().begin()


async def states(edge: Whole) -> dict[str, int]:
    page = await edge.whole.list_jobs(None, None, None, 1_000, "")
    counts: dict[str, int] = {}
    for view in page.jobs:
        counts[view.state.value] = counts.get(view.state.value, 0) + 1
    return counts


async def all_of(edge: Whole, path: str, body: dict[str, Any]) -> tuple[int, int, int]:
    """Ask until that was all: matched, changed, requests."""
    matched = changed = requests = 0
    cursor = ""
    while True:
        told = await edge.call("POST", path, body | ({"cursor": cursor} if cursor else {}))
        assert told.status == 200, told.body
        matched, changed, requests = matched + told.body["matched"], changed + told.body["changed"], requests + 1
        cursor = told.body["cursor"]
        if not cursor:
            return matched, changed, requests


# ------------------------------------------------------------ cancel


@pytest.mark.parametrize("dry_run", [True, False])
async def test_jobs_of_a_name_are_cancelled_piece_by_piece(edge, dry_run):
    for _ in range(30):
        await edge.push()
    await edge.push(name="other")
    assert await all_of(edge, "/v1/jobs/cancel", {"name": "mail", "dry_run": dry_run}) == (
        *(30, 0 if dry_run else 30),
        3 if dry_run else 5,  # what is cancelled now is met once more, among what ended
    )
    assert await states(edge) == ({"waiting": 31} if dry_run else {"cancelled": 30, "waiting": 1})
    assert len(edge.journal.cancels()) == (0 if dry_run else 30)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ({"tag": "red"}, {"cancelled": 1, "waiting": 1, "scheduled": 1, "running": 1}),
        ({"state": "scheduled"}, {"cancelled": 1, "waiting": 2, "running": 1}),
        ({"state": "waiting", "tag": "blue"}, {"waiting": 2, "scheduled": 1, "running": 1}),
        ({"state": "waiting"}, {"cancelled": 2, "scheduled": 1, "running": 1}),
        ({"name": "run"}, {"waiting": 2, "scheduled": 1, "running": 1}),
    ],
)
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_filters_hold_together(edge, wanted, left, kind):
    await edge.push(tags=["red", "green"])
    await edge.push()
    await edge.push(delay=9, tags=["blue"])
    await edge.push(name="run")
    await edge.claim("run")
    told = await edge.call("POST", "/v1/jobs/cancel", wanted, kind=kind)
    assert told.status == 200
    assert await states(edge) == left
    assert told.body["changed"] == (1 if wanted == {"name": "run"} else left.get("cancelled", 0))


@pytest.mark.parametrize(
    ("call", "state", "may"),
    [
        ("cancel", "succeeded", "waiting, scheduled, blocked, running, retrying"),
        ("retry", "waiting", "failed, cancelled"),
        ("delete", "waiting", "succeeded, failed, cancelled"),
        ("delete", "retrying", "succeeded, failed, cancelled"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"job_ids": ["a"]}, {"dry_run": True}])
async def test_a_state_that_no_job_to_be_changed_has_is_refused(edge, call, state, may, more):
    """It matched 0, as if there were no such jobs."""
    await edge.push(job_id="a")
    told = await edge.call("POST", f"/v1/jobs/{call}", {"state": state, **more}, accept=JSON)
    assert told.status == 422
    assert told.body["errors"][0]["pointer"] == "/state"
    assert f"state must be one of {may}, not '{state}'" in told.body["detail"]
    assert await states(edge) == {"waiting": 1}
    told = await edge.call("POST", f"/v1/jobs/{call}", {"state": "queued"}, accept=JSON)
    assert (told.status, "state must be one of waiting, scheduled" in told.body["detail"]) == (422, True)


async def test_named_jobs_are_cancelled_by_either_id(edge):
    ours, coming = await edge.push(), None
    await edge.push(job_id="a/b")
    done = await edge.ended(Fate.SUCCEEDED, name="mail", priority=-9)
    coming = (await edge.call("POST", "/v1/jobs", {"name": "late"})).body["job_id"]
    ids = [ours, "a/b", "nobody's", done, coming, ours]
    told = await edge.call("POST", "/v1/jobs/cancel", {"job_ids": ids})
    body = told.body
    refused = body.pop("refused")
    assert body == {"matched": 3, "changed": 3, "cursor": ""}
    assert sorted((row["job_id"], row["status"]) for row in refused) == sorted([("nobody's", 404), (done, 409)])
    assert f"job {done} is succeeded" in [row["detail"] for row in refused]
    assert await states(edge) == {"cancelled": 3, "succeeded": 1}
    told = await edge.call("POST", "/v1/jobs/cancel", {"job_ids": [coming], "name": "mail"})
    assert told.body["matched"] == 0


async def test_jobs_on_their_way_are_known_by_id_only(edge):
    coming = (await edge.call("POST", "/v1/jobs", {"name": "late"})).body["job_id"]
    told = await edge.call("POST", "/v1/jobs/cancel", {"job_ids": [coming], "name": "late"})
    assert told.body["matched"] == 0, "what it is called stands in the journal still"


# ------------------------------------------------------------ retry


async def test_all_that_failed_is_tried_anew(edge):
    for fate in (Fate.FAILED, Fate.DEAD, Fate.SUCCEEDED) * 5:
        await edge.ended(fate, argument=7)
    gone = await edge.push()
    await edge.call("DELETE", f"/v1/jobs/{gone}")
    assert await all_of(edge, "/v1/jobs/retry", {"name": "mail"}) == (10, 10, 1)
    assert await states(edge) == {"waiting": 10, "succeeded": 5, "cancelled": 1}
    held = await edge.claim()
    assert {each.job.argument for each in held} == {b"\x07"}, "a list tells no arguments; they are not lost"
    assert (await edge.call("POST", "/v1/jobs/retry", {"state": "cancelled"})).body["changed"] == 1


async def test_what_somebody_else_changed_meanwhile_is_not_counted(edge, monkeypatch):
    first, second = await edge.ended(Fate.FAILED), await edge.ended(Fate.FAILED)
    real = edge.whole.list_jobs

    async def late(*given: Any, **named: Any) -> Any:
        page = await real(*given, **named)
        await edge.whole.delete_dead([second])
        assert (await edge.call("POST", f"/v1/jobs/{first}/retry")).status == 200
        monkeypatch.setattr(edge.whole, "list_jobs", real)
        return page

    monkeypatch.setattr(edge.whole, "list_jobs", late)
    told = await edge.call("POST", "/v1/jobs/retry", {"state": "failed"})
    assert told.body == {"matched": 2, "changed": 0, "cursor": ""}


@pytest.mark.parametrize("error", [StoreAway("gone"), JournalRefused("no space", full=True)])
async def test_an_error_half_way_says_what_was_done(edge, monkeypatch, error):
    for _ in range(6):
        await edge.ended(Fate.FAILED)
    real, calls = edge.whole.reserve_edit, 0

    async def fail(wanted: str, seen: int) -> object:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise error
        return await real(wanted, seen)

    monkeypatch.setattr(edge.whole, "reserve_edit", fail)
    told = await edge.call("POST", "/v1/jobs/retry", {"state": "failed"}, accept=JSON)
    assert told.status == (503 if isinstance(error, StoreAway) else 507)
    assert told.headers["retry-after"] == "1"
    assert told.body["detail"].startswith("5 jobs were changed before this: ")
    monkeypatch.undo()
    assert (await edge.call("POST", "/v1/jobs/retry", {"state": "failed"})).body["changed"] == 1


async def test_an_error_at_once_is_that_error(edge):
    edge.whole.away = "cable pulled"
    told = await edge.call("POST", "/v1/jobs/retry", {"state": "failed"}, accept=JSON)
    assert (told.status, "were changed" in told.body["detail"]) == (503, False)


# ------------------------------------------------------------ by what went wrong, and when


async def failing(edge: Whole, message: str, fate: Fate = Fate.DEAD, **pushed: Any) -> str:
    job_id = await edge.push(**pushed)
    (held,) = await edge.claim(pushed.get("name", "mail"), limit=1)
    await edge.end(held, fate, message=message, error=msgspec.msgpack.encode({"code": len(message)}))
    return job_id


async def test_jobs_are_found_by_the_words_and_the_date_of_their_failure(edge):
    old = await failing(edge, "Traceback …\nKeyError: 'x'")
    edge.clock.advance(DAY_S)
    new = await failing(edge, "Traceback …\nKeyError: 'x'\n")
    other = await failing(edge, "out of paper")
    since = edge.clock.wall_ms() / 1000 - 60

    async def found(**query: Any) -> list[str]:
        told = await edge.call("GET", "/v1/jobs?" + urlencode(query), accept=JSON)
        return [job["job_id"] for job in told.body["jobs"]]

    assert await found(error="keyerror") == [new, old]
    assert await found(error="KeyError", since=since) == [new]
    assert await found(before="2027-01-16T00:00:00Z", limit=1) == [old], "what does not fit takes no place"
    assert await found(error='"code": 12') == [other], "what it gave as its error is looked through, too"
    told = await edge.call("GET", "/v1/jobs?since=yesterday", accept=JSON)
    assert (told.status, "since: 'yesterday' is no ISO 8601 date" in told.body["detail"]) == (422, True)
    assert await all_of(edge, "/v1/jobs/retry", {"error": "KEYERROR", "before": since}) == (1, 1, 1)
    assert await states(edge) == {"waiting": 1, "failed": 2}


async def test_what_came_into_its_state_after_a_date_is_none_of_those_before_it(edge):
    """They were pushed, or last tried, before it: 43 of 3 counted jobs were deleted."""
    early, late, begun, changed = [await edge.push(name=name) for name in ("mail", "mail", "begun", "changed")]
    failed = await failing(edge, "no", name="failed")
    ended = await failing(edge, "", Fate.SUCCEEDED, name="ended")
    waits = await edge.push(delay=9)

    async def cancel(job_id: str) -> None:
        await edge.call("DELETE", f"/v1/jobs/{job_id}")
        await edge.apply()

    async def found(**query: Any) -> set[str]:
        told = await edge.call("GET", "/v1/jobs?" + urlencode(query), accept=JSON)
        return {job["job_id"] for job in told.body["jobs"]}

    await cancel(early)
    edge.clock.advance(5)
    date = edge.clock.wall_ms() / 1000
    assert await found(before=date) == {early, late, begun, changed, failed, ended, waits}
    edge.clock.advance(5)
    await cancel(late)
    await edge.call("POST", f"/v1/jobs/{failed}/retry")
    await edge.call("PATCH", f"/v1/jobs/{changed}", {"argument": 8})
    await edge.apply()
    await edge.whole.promote(100)
    await edge.claim("begun", limit=1)
    assert await states(edge) == {"cancelled": 2, "waiting": 3, "running": 1, "succeeded": 1}
    assert await found(before=date) == {early, ended}
    assert await found(since=date) == {late, begun, changed, failed, waits}
    assert await all_of(edge, "/v1/jobs/delete", {"state": "cancelled", "before": date}) == (1, 1, 1)


async def test_more_jobs_than_were_counted_are_refused_before_any_is_changed(edge):
    for _ in range(3):
        await edge.ended(Fate.DEAD)
    wanted = {"state": "failed", "matched_max": 3}
    told = await edge.call("POST", "/v1/jobs/delete", {**wanted, "dry_run": True}, accept=JSON)
    assert (told.body["matched"], told.body["at"]) == (3, iso(edge.clock.wall_ms()))
    await edge.ended(Fate.DEAD)
    told = await edge.call("POST", "/v1/jobs/delete", wanted, accept=JSON)
    assert (told.status, "4 jobs match, and at most 3 were to be changed" in told.body["detail"]) == (409, True)
    assert await states(edge) == {"failed": 4}
    assert (await edge.call("POST", "/v1/jobs/delete", {**wanted, "matched_max": 4})).body["changed"] == 4
    told = await edge.call("POST", "/v1/jobs/delete", {"matched_max": 4}, accept=JSON)
    assert told.status == 422, "it chooses no jobs"


async def test_more_jobs_than_were_counted_end_a_change_that_began(edge):
    for _ in range(9):
        await edge.ended(Fate.DEAD)
    told = await edge.call("POST", "/v1/jobs/delete", {"state": "failed", "matched_max": 5}, accept=JSON)
    assert told.status == 409
    assert told.body["detail"].startswith("4 jobs were changed before this: at least 8 jobs match")
    assert await states(edge) == {"failed": 5}


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_dead_are_deleted_by_what_went_wrong(edge, dry_run):
    for number in range(9):
        await failing(edge, f"no such address {number % 3}")
    kept = await edge.ended(Fate.SUCCEEDED)
    wanted = {"error": "address 1", "dry_run": dry_run}
    assert await all_of(edge, "/v1/jobs/delete", wanted) == (3, 0 if dry_run else 3, 1)
    assert await states(edge) == {"failed": 9 if dry_run else 6, "succeeded": 1}
    waiting = await edge.push()
    told = await edge.call("POST", "/v1/jobs/delete", {"job_ids": [kept, waiting], "dry_run": dry_run}, accept=JSON)
    assert (told.body["matched"], told.body["refused"]) == (
        *(1, [{"job_id": waiting, "status": 409, "detail": f"job {waiting} is waiting"}]),
    )
    assert await all_of(edge, "/v1/jobs/delete", {"name": "mail"}) == ((9, 9, 1) if dry_run else (6, 6, 1))


async def test_a_dead_job_is_mended_and_tried_anew_in_one_go(edge):
    job_id = await failing(edge, "no", argument=1, priority=7)
    told = await edge.call("POST", f"/v1/jobs/{job_id}/retry", {"argument": {"to": "ann"}}, accept=JSON)
    assert (told.status, told.body["state"], told.body["argument"], told.body["priority"]) == (
        *(200, "waiting", {"to": "ann"}),
        7,
    )
    (held,) = await edge.claim()
    assert (held.job.argument, held.attempt) == (msgspec.msgpack.encode({"to": "ann"}), 1)
    await edge.end(held, Fate.DEAD)
    told = await edge.call("POST", f"/v1/jobs/{job_id}/retry", {"delay": 60}, accept=JSON)
    assert (told.body["state"], await edge.claim()) == ("scheduled", [])
    told = await edge.call("POST", f"/v1/jobs/{job_id}/retry", {"argumnet": 1}, accept=JSON)
    assert (told.status, "did you mean 'argument'" in told.body["detail"]) == (422, True)


# ------------------------------------------------------------ clean


@pytest.mark.parametrize("dry_run", [True, False])
async def test_what_ended_before_a_date_is_deleted_but_never_the_dead(edge, dry_run):
    for fate in (Fate.FAILED, Fate.DEAD, *[Fate.SUCCEEDED] * 4) * 3:
        await edge.ended(fate)
    edge.clock.advance(2 * DAY_S)
    await edge.ended(Fate.SUCCEEDED)
    await edge.push()
    before = edge.clock.wall_ms() / 1000 - DAY_S
    matched, changed, requests = await all_of(edge, "/v1/jobs/clean", {"before": before, "dry_run": dry_run})
    assert (matched, changed) == (12, 0 if dry_run else 12)
    assert requests == 2
    gone = {} if dry_run else {"failed": 6, "succeeded": 1, "waiting": 1}
    assert await states(edge) == gone or dry_run
    assert await all_of(edge, "/v1/jobs/clean", {"before": before}) == ((12, 12, 2) if dry_run else (0, 0, 1))


@pytest.mark.parametrize("headers", [{}, {"jqd-tenant": "acme"}], ids=["all", "one"])
async def test_a_result_that_is_kept_still_is_cleaned_for_nobody(edge, headers):
    """Of one tenant's jobs it was: the store does not clean these by itself."""
    for name, job in (("a", {"keep_result": True}), ("b", {})):
        told = await edge.call("POST", "/v1/jobs", {"name": "mail", "job_id": name, **job}, headers=headers)
        assert told.status == 201
        await edge.apply()
        (held,) = await edge.claim(annotate(headers.get("jqd-tenant", ""), "mail"))
        await edge.end(held, Fate.SUCCEEDED, result=b"\x07", **job)
    before = {"before": edge.clock.wall_ms() / 1000 + 9}
    told = await edge.call("POST", "/v1/jobs/clean", before, headers=headers)
    assert told.body["changed"] == 1
    left = [(await edge.call("GET", f"/v1/jobs/{name}", headers=headers)).status for name in "ab"]
    assert left == [200, 404]


async def test_how_the_last_attempt_stopped_is_a_filter_by_itself(edge):
    await edge.ended(Fate.FAILED)
    (failed,) = (await edge.whole.list_jobs(State.FAILED, None, None, 9, "")).jobs
    status = failed.outcome.status
    assert await all_of(edge, "/v1/jobs/retry", {"exitcode": 599}) == (0, 0, 1)
    assert await all_of(edge, "/v1/jobs/retry", {"code": Exit.of_status(status).code, "dry_run": True}) == (1, 0, 1)
    assert await all_of(edge, "/v1/jobs/retry", {"exitcode": status}) == (1, 1, 1)


# ------------------------------------------------------------ in time


async def test_a_request_that_takes_long_ends_with_its_step(edge, monkeypatch):
    monkeypatch.setattr(bulk, "WALK_S", 0.0)
    for _ in range(10):
        await edge.ended(Fate.FAILED)
    assert await all_of(edge, "/v1/jobs/retry", {"state": "failed"}) == (10, 10, 3)
    for _ in range(10):
        await edge.ended(Fate.SUCCEEDED)
    edge.clock.advance(DAY_S)
    assert await all_of(edge, "/v1/jobs/clean", {"before": edge.clock.wall_ms() / 1000}) == (10, 10, 4)


async def test_a_clean_that_deletes_nothing_ends_with_its_step_too(edge, monkeypatch):
    """And it comes to its end, though what stays is put where a date to come finds it again."""
    parents = [await edge.push() for _ in range(6)]
    await edge.push(after=parents)
    await edge.link()
    for held in await edge.claim():
        await edge.end(held, Fate.SUCCEEDED)
    edge.clock.advance(1)
    await edge.ended(Fate.SUCCEEDED)
    edge.clock.advance(1)
    monkeypatch.setattr(bulk, "WALK_S", 0.0)
    monkeypatch.setattr(bulk, "STEP_JOBS", 2)
    before = {"before": edge.clock.wall_ms() / 1000 + DAY_S}
    assert await all_of(edge, "/v1/jobs/clean", before) == (1, 1, 5)


# ------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("cancel", {}, "a filter of nothing is every job there is"),
        ("retry", {"dry_run": True}, "a filter of nothing"),
        ("cancel", [], "a map is wanted"),
        ("cancel", {"stat": "failed"}, "did you mean 'state'"),
        (
            "cancel",
            {"state": "dead"},
            "failed, cancelled, not 'dead'",
        ),
        ("cancel", {"job_ids": ["a"] * (bulk.IDS_MAX + 1)}, "at most 1000 ids, not an array of 1001"),
        ("cancel", {"name": "x", "cursor": "nonsense"}, "cursor 'nonsense' is none"),
        ("clean", {}, "before is required"),
        ("clean", {"before": "yesterday"}, "no ISO 8601 date"),
        ("clean", {"before": "2027-01-01"}, "no time zone"),
        ("clean", {"before": 1, "dry_run": True, "cursor": "nonsense"}, "is none"),
    ],
)
async def test_what_cannot_be_meant_is_named(edge, path, body, says):
    told = await edge.call("POST", f"/v1/jobs/{path}", body, accept=JSON)
    assert told.status == 422, told.body
    assert says in told.body["detail"]
    assert edge.journal.frames == []


async def test_without_a_journal_nothing_is_promised(edge):
    await edge.push()
    edge.journal.refuse = JournalRefused("no space", full=True)
    assert (await edge.call("POST", "/v1/jobs/cancel", {"name": "mail"})).status == 507
    assert (await edge.whole.list_jobs(State.CANCELLED, None, None, 9, "")).jobs == []


async def test_one_named_job_that_cannot_be_looked_at_stops_the_request(edge):
    await edge.push(job_id="a")
    edge.control.calm = False
    await edge.whole.reserve_sysid("d2", True, through=False)
    told = await edge.call("POST", "/v1/jobs/cancel", {"job_ids": ["a", "nobody's"]})
    assert told.status == 503, "whose that id is nobody can say while the store is told what it forgot"
    assert edge.journal.cancels() == []
