"""Lists of jobs, jobtypes and daemons through ASGI, and jobs by their pushers' own ids."""

from urllib.parse import quote

import msgspec
import pytest

from jqd.api.v1.job_views import BRIEF_MESSAGE_LENGTH_MAX
from jqd.api.v1.listing import LIST_JOBS, LIST_JOBS_MAX
from jqd.domain.job import State
from jqd.domain.lease import Peer
from jqd.domain.record import Lane
from jqd.service.rates import Rates
from jqd.store import TypeView
from jqd.store.counts import Counts, Totals
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.fakes import outcome

pack = msgspec.msgpack.encode
OWN = ["order 17", "a/b", "ünï-códe", "100%", "x" * 128, "result", "?&#"]


@pytest.fixture
def edge() -> Edge:
    return Edge()


# ------------------------------------------------------------ jobs


async def test_jobs_are_listed_newest_first_page_by_page(edge):
    ids = [edge.add(State.WAITING) for _ in range(5)]
    first = await edge.call("GET", "/v1/jobs?limit=3", accept=JSON)
    assert first.status == 200
    assert [job["job_id"] for job in first.body["jobs"]] == ids[:1:-1]
    rest = await edge.call("GET", f"/v1/jobs?limit=3&cursor={first.body['cursor']}", accept=MSGPACK)
    assert [job["job_id"] for job in rest.body["jobs"]] == ids[1::-1]
    assert rest.body["cursor"] == ""


async def test_what_is_asked_goes_to_the_store(edge):
    edge.add(State.FAILED, jobtype="mail", tags=("red",))
    told = await edge.call("GET", "/v1/jobs?state=failed&name=mail&tag=red")
    assert len(told.body["jobs"]) == 1
    assert edge.store.asked == [(State.FAILED, "mail", "red", LIST_JOBS, "")]


async def test_a_job_of_a_list_is_told_in_brief(edge):
    long = "x" * 1_000 + "ValueError: no such address"
    job_id = edge.journal.ids.take(1).first
    last = outcome(job_id, message=long, error=pack("e" * 1_000), worker="w1", finished_at_ms=4_000)
    edge.add(State.FAILED, id=job_id, outcome=last, history=[last], keep_result=True, result=pack("r"), tags=("red",))
    (job,) = (await edge.call("GET", "/v1/jobs", accept=JSON)).body["jobs"]
    assert job.keys() == {
        *("job_id", "name", "state", "priority", "attempts", "max_retry", "created_at", "eligible_at", "started_at"),
        *("finished_at", "code", "exitcode", "worker", "daemon", "message", "tags"),
    }
    assert job["message"].endswith("ValueError: no such address")
    assert len(job["message"]) == BRIEF_MESSAGE_LENGTH_MAX + 2
    assert (job["worker"], job["tags"], job["finished_at"]) == ("w1", ["red"], "1970-01-01T00:00:04.000Z")


async def test_of_a_long_stack_a_list_tells_the_line_with_the_error(edge):
    stack = "TypeError: x is not a function\n" + "    at process.processTicksAndRejections (node:internal:95:5)\n" * 9
    job_id = edge.journal.ids.take(1).first
    edge.add(State.FAILED, id=job_id, outcome=outcome(job_id, message=stack))
    (job,) = (await edge.call("GET", "/v1/jobs", accept=JSON)).body["jobs"]
    assert job["message"] == "… TypeError: x is not a function"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("state=dead", "state must be one of waiting, scheduled"),
        ("state=null", "state must be one of waiting, scheduled"),
        ("limit=0", "limit must be a whole number from 1 to 1000, not '0'"),
        (f"limit={LIST_JOBS_MAX + 1}", "limit must be a whole number"),
        ("limit=-1", "limit must be a whole number"),
        ("limit=ten", "'ten'"),
        ("limit=", "limit must be a whole number"),
        ("limit=" + "9" * 5_00, "limit must be a whole number"),
        ("cursor=nonsense", "cursor 'nonsense' is none that an answer gave"),
        ("sate=failed", "there is no query parameter 'sate'; did you mean 'state'?"),
    ],
)
async def test_what_cannot_be_listed_is_named(edge, query, says):
    told = await edge.call("GET", f"/v1/jobs?{query}", accept=JSON)
    assert (told.status, told.headers["content-type"]) == (422, "application/problem+json")
    assert says in told.body["detail"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/types", "/v1/daemons", "/v1/jobs/own"])
async def test_without_the_store_nobody_can_tell(edge, path):
    edge.store.away = True
    told = await edge.call("GET", path)
    assert (told.status, told.headers["retry-after"]) == (503, "1")


# ------------------------------------------------------------ types and daemons


async def test_types_that_have_work(edge):
    now_ms = edge.clock.wall_ms()
    edge.store.types = [
        TypeView("mail", Counts(3, 4, 2, 1, 7, 6, 5, 8), now_ms - 1_500, Totals(160, 130, 115, 3)),
        TypeView("pdf", Counts(running=1)),
        TypeView("x", Counts(waiting=1), now_ms + 9),
    ]
    before = TypeView("mail", totals=Totals(100, 100, 100, 1))
    edge.api._parts.services.feature(Rates).note(await edge.store.stats(), [before])
    told = await edge.call("GET", "/v1/types", accept=JSON)
    mail, pdf, ahead = told.body["types"]
    assert mail == {
        "name": "mail",
        "waiting": 3,
        "running": 2,
        "scheduled": 4,
        "retrying": 1,
        "succeeded": 7,
        "failed": 6,
        "cancelled": 5,
        "blocked": 8,
        "per_minute": {"pushed": 60, "started": 30, "ended": 15, "failed": 2},
        "oldest_at": "2027-01-15T07:59:58.500Z",
        "oldest_s": 1.5,
        "rate": 0.25,
        "handler": None,
        "options": None,
        "options_by": None,
        "paused_at": None,
        "paused_for": None,
        "note": "no worker takes these jobs",
        "workers": 0,
    }
    assert pdf["note"] is None, "none waits"
    assert (pdf["oldest_at"], pdf["oldest_s"]) == (None, None)
    assert ahead["oldest_s"] == 0, "by the clock of a daemon that is ahead"
    for jobs in (["mail", "tar"], ["mail"], ["x"]):
        body = {"name": "w", "url": f"http://127.0.0.1:9/{len(jobs)}{jobs[0]}", "max_jobs": 1, "jobs": jobs}
        assert (await edge.call("POST", "/v1/workers", body)).status == 201
    rows = (await edge.call("GET", "/v1/types", accept=JSON)).body["types"]
    assert [(row["workers"], row["note"]) for row in rows] == [(2, None), (0, None), (1, None)]


async def test_daemons_of_the_store(edge):
    edge.control.peers = [
        Peer("d1", 7, True, True, True, 0.12345),
        Peer("d2", 9, False, False, True, 30.0),
        Peer("d3", 0, False, False, False, 99.0),
        Peer("d4", 9, False, None, True, 13.0),
    ]
    edge.control.held = {"d1": 2, "d2": None}
    told = await edge.call("GET", "/v1/daemons", accept=MSGPACK)
    ours, gone, burnt, unknown = told.body["daemons"]
    known = {"daemon": "d1", "this": True, "living": True, "through": True, "last_seen_s": 0.123, "in_flight": 2}
    assert ours == {**known, "drained_at": None}
    assert (gone["in_flight"], gone["living"]) == (None, False), "nobody can tell now"
    assert (burnt["in_flight"], unknown["living"]) == (0, None)


# ------------------------------------------------------------ own ids


@pytest.mark.parametrize("own", OWN)
async def test_a_job_answers_to_its_pushers_own_id(edge, own):
    job_id = edge.add(State.SUCCEEDED, name=own, keep_result=True, result=pack(7))
    edge.store.names[own] = job_id
    path = f"/v1/jobs/{quoted(own)}"
    told = (await edge.call("GET", path)).body
    assert (told["job_id"], told["id"], told["state"]) == (own, job_id, "succeeded")
    assert (await edge.call("GET", f"{path}/result?consume=1")).body == {"result": 7}
    assert edge.store.dropped == [job_id]
    by_ours = (await edge.call("GET", f"/v1/jobs/{job_id}")).body
    assert (by_ours["job_id"], by_ours["id"]) == (own, job_id)
    assert (await edge.call("DELETE", path)).status == 409


async def test_a_job_is_cancelled_by_its_own_id(edge):
    job_id = edge.add(State.WAITING, name="own")
    edge.store.names["own"] = job_id
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    assert (await edge.call("DELETE", "/v1/jobs/own")).status == 204
    running = edge.add(State.RUNNING, name="run")
    edge.store.names["run"] = running
    told = await edge.call("DELETE", "/v1/jobs/run")
    assert (told.status, told.body["job_id"]) == (202, "run")


async def test_an_own_id_whose_job_is_on_its_way(edge):
    edge.store.names["own"] = edge.journal.ids.take(1).first
    told = await edge.call("GET", "/v1/jobs/own")
    assert (told.status, told.body["job_id"], told.body["state"]) == (200, "own", "waiting")


async def test_an_own_id_is_on_its_way_though_jobs_with_later_ids_have_come(edge):
    # Its id is taken before the store is asked for the name: what is pushed meanwhile may be journaled before it.
    edge.store.names["own"], later = (edge.journal.ids.take(1).first for _ in range(2))
    edge.store.applied_id = later
    told = await edge.call("GET", "/v1/jobs/own")
    assert (told.status, told.body["job_id"], told.body["state"]) == (200, "own", "waiting")
    assert (await edge.call("GET", "/v1/jobs/own/result")).status == 200
    assert (await edge.call("POST", "/v1/jobs/own/retry")).status == 503, "in a moment it can be told whether it ended"
    assert (await edge.call("POST", "/v1/jobs/cancel", {"job_ids": ["own"], "dry_run": True})).body["matched"] == 1
    assert (await edge.call("DELETE", "/v1/jobs/own")).status == 204


async def test_nobody_can_say_whose_an_own_id_is_while_the_store_is_told_what_it_forgot(edge):
    edge.control.calm = False
    edge.store.unsettled = 1_000
    told = await edge.call("GET", "/v1/jobs/own")
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    edge.control.calm = True
    told = await edge.call("GET", "/v1/jobs/own")
    assert told.status == 503, "it is waited for a second, not for ever"
    edge.store.unsettled = 3
    assert (await edge.call("GET", "/v1/jobs/own")).status == 404


@pytest.mark.parametrize("own", ["x" * 129, "tab\t", "\x00", "\ue000", "a/\ue000"])
async def test_ids_that_nobody_can_have_chosen(edge, own):
    edge.store.away = True
    assert (await edge.call("GET", f"/v1/jobs/{quoted(own)}")).status == 404


# ------------------------------------------------------------ purge


async def test_what_has_ended_is_deleted_for_good(edge):
    job_id = edge.add(State.FAILED)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}?purge=1")).status == 204
    assert edge.store.views == {}
    edge.store.applied_id = job_id
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}?purge=1")).status == 404
    assert edge.journal.frames == [], "nothing is cancelled by it"


@pytest.mark.parametrize("state", [State.WAITING, State.SCHEDULED, State.RUNNING, State.RETRYING])
async def test_what_has_not_ended_is_not_deleted(edge, state):
    job_id = edge.add(state)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}?purge=1", accept=JSON)
    assert told.status == 409
    assert f"it is {state.value}; cancel it first" in told.body["detail"]
    assert job_id in edge.store.views


def quoted(own: str) -> str:
    return quote(own, safe="")


async def test_a_job_whose_children_are_being_told_is_deleted_a_moment_later(edge, monkeypatch):
    job_id = edge.add(State.FAILED)

    async def too_late(job_ids: object) -> list[str]:
        return []

    monkeypatch.setattr(edge.store, "delete_dead", too_late)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}?purge=1")
    assert (told.status, told.headers["retry-after"]) == (503, "1")
