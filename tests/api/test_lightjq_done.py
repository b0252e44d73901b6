"""LightJQ's reports of workers: POST /done."""

import msgspec
import pytest

from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate, State
from jqd.domain.record import Lane, decode_outcomes
from jqd.runner import Report
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.fakes import outcome

pack = msgspec.msgpack.encode


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def test_a_success(edge):
    body = {"job_id": "J", "type": "success", "finished_at": "2030-01-31T08:00:00Z", "result": {"n": 1}}
    assert (await edge.call("POST", "/done", body, headers={"worker-id": "w1"})).status == 204
    ((worker_id, job_id, report),) = edge.runner.reports
    told = Report(status=200, result=pack({"n": 1}), ended_at_ms=1_896_076_800_000)
    assert (worker_id, job_id, report) == ("w1", "J", told)


@pytest.mark.parametrize(
    ("said", "at_ms"),
    [
        ("2030-01-31T17:00:00+09:00", 1_896_076_800_000),
        (1_896_076_800.25, 1_896_076_800_250),
        ("2030-01-31T08:00:00", None),
        ("now", None),
        (-1, None),
        (1e300, None),
        (2**63, None),
        (True, None),
        ([], None),
        (None, None),
        ("9" * 100_000, None),
    ],
)
async def test_the_date_of_an_end_is_kept_where_it_is_one_and_refuses_nothing(edge, said, at_ms):
    for kind in ("success", "failure"):
        body = {"job_id": "J", "type": kind, "reason": "other", "should_retry": True, "message": "m"}
        told = await edge.call("POST", "/done", {**body, "finished_at": said}, headers={"worker-id": "w1"})
        assert told.status == 204
        assert edge.runner.reports[-1][2].ended_at_ms == at_ms


@pytest.mark.parametrize(("reason", "status"), [("timeout", 504), ("other", 500)])
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_a_failure(edge, reason, status, kind):
    body = {"job_id": "J", "type": "failure", "reason": reason, "should_retry": False, "message": "m", "error": [1]}
    assert (await edge.call("POST", "/done", body, kind=kind, headers={"worker-id": "w1"})).status == 204
    report = edge.runner.reports[0][2]
    assert (report.status, report.should_retry, report.reason, report.message) == (status, False, reason, "m")
    assert report.error == pack([1])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"job_id": "J"},
        {"job_id": "J", "type": "maybe"},
        {"type": "success"},
        {"job_id": "J", "type": "failure", "reason": "other", "message": "m"},
        {"job_id": "J", "type": "failure", "reason": "bad", "should_retry": True, "message": "m"},
        {"job_id": "J", "type": "failure", "should_retry": True, "message": "m"},
        {"job_id": 3, "type": "success"},
        [],
    ],
    ids=str,
)
async def test_reports_that_are_not_understood(edge, body):
    assert (await edge.call("POST", "/done", body, headers={"worker-id": "w1"})).status == 400
    assert edge.runner.reports == []


async def test_a_report_of_a_job_not_in_its_hand(edge):
    edge.runner.knows = False
    done = {"type": "success"}
    headers = {"worker-id": "w1"}
    assert (await edge.call("POST", "/done", {"job_id": "nonsense", **done}, headers=headers)).status == 404
    job_id = edge.add(State.SUCCEEDED)
    edge.move(job_id, State.SUCCEEDED, outcome=outcome(job_id, worker="w1", fate=Fate.SUCCEEDED))
    assert (await edge.call("POST", "/done", {"job_id": job_id, **done}, headers=headers)).status == 204, "said twice"
    assert (await edge.call("POST", "/done", {"job_id": job_id, **done}, headers={"worker-id": "w2"})).status == 404


@pytest.mark.parametrize(("full", "status"), [(False, 503), (True, 507)])
@pytest.mark.parametrize("again", [False, True])
async def test_a_report_that_is_not_on_disk_is_not_taken(edge, full, status, again):
    edge.runner.knows = not again
    job_id = edge.add(State.RUNNING)
    edge.runner.untold[job_id] = outcome(job_id, worker="w1", fate=Fate.SUCCEEDED)
    edge.runner.unnoted = JournalRefused("kept in memory", full=full)
    told = await edge.call("POST", "/done", {"job_id": job_id, "type": "success"}, headers={"worker-id": "w1"})
    assert told.status == status
    assert told.body["detail"] == "kept in memory"


async def test_a_late_success_that_is_said_again_is_taken_again(edge):
    edge.runner.knows = False
    job_id = edge.add(State.SUCCEEDED)
    given_up, succeeded = (
        outcome(job_id, worker="w1", **ended) for ended in (GIVEN_UP, {"fate": Fate.SUCCEEDED, "fence": 7})
    )
    edge.move(job_id, State.SUCCEEDED, history=[given_up], outcome=succeeded)
    for known_by_runner in (False, True):
        if known_by_runner:
            edge.runner.untold[job_id] = given_up
        for report, status in ((OK, 204), (NO_ROUTE, 404), (AGAIN, 404)):
            told = await edge.call("POST", "/done", {"job_id": job_id, **report}, headers={"worker-id": "w1"})
            assert told.status == status, told.body
    assert edge.journal.frames == []


GIVEN_UP = {"fate": Fate.RETRY, "fence": 7, "attempt": 2, "message": "TIMEOUT: no outcome", "reason": "timeout"}


FAILED = {"fate": Fate.FAILED, "fence": 7, "message": "no route"}


OK = {"type": "success", "result": [1]}


NO_ROUTE = {"type": "failure", "reason": "other", "should_retry": False, "message": "no route"}


AGAIN = {**NO_ROUTE, "should_retry": True}


@pytest.mark.parametrize(
    ("state", "attempt", "report", "status", "counts"),
    [
        (State.RETRYING, GIVEN_UP, OK, 204, True),
        (State.RUNNING, GIVEN_UP, OK, 204, True),
        (State.RETRYING, {**GIVEN_UP, "keep_result": True}, OK, 204, True),
        (State.RETRYING, {**GIVEN_UP, "keep_result": "required"}, {**OK, "result": "x" * 99}, 400, False),
        (State.CANCELLED, GIVEN_UP, OK, 204, True),
        (State.FAILED, {**GIVEN_UP, "fate": Fate.DEAD}, OK, 404, False),
        (State.RETRYING, GIVEN_UP, AGAIN, 404, False),
        (State.RETRYING, {**GIVEN_UP, "message": "no route"}, AGAIN, 204, False),
        (State.RETRYING, {**GIVEN_UP, "message": "no route"}, NO_ROUTE, 404, False),
        (State.FAILED, FAILED, NO_ROUTE, 204, False),
        (State.FAILED, FAILED, {**NO_ROUTE, "message": "another"}, 404, False),
        (State.FAILED, FAILED, OK, 404, False),
        (State.SUCCEEDED, {"fate": Fate.SUCCEEDED, "fence": 7}, NO_ROUTE, 404, False),
        (State.WAITING, {**GIVEN_UP, "fence": 3}, OK, 404, False),
    ],
)
@pytest.mark.parametrize("known_by", ["store", "runner"])
async def test_a_report_after_the_end_of_its_attempt(edge, state, attempt, report, status, counts, known_by):
    """A late success of a job that has not ended counts; what contradicts the verdict that stands is refused."""
    edge.runner.knows = False
    job_id = edge.add(state)
    ended = outcome(job_id, worker="w1", **attempt)
    if known_by == "runner":
        edge.runner.untold[job_id] = ended
        status, counts = (204, True) if (attempt["fence"], report) == (3, OK) else (status, counts)
    fields = {"outcome": ended} if state.is_final else {"history": [outcome(job_id, worker="w2", fence=9), ended]}
    edge.move(job_id, state, generation=5, **(fields if known_by == "store" else {}))
    told = await edge.call("POST", "/done", {"job_id": job_id, **report}, headers={"worker-id": "w1"})
    assert told.status == status, told.body
    journaled = [one for lane, _, body in edge.journal.frames if lane is Lane.OUTCOMES for one in decode_outcomes(body)]
    assert len(journaled) == counts
    for one in journaled:
        assert (one.fate, one.fence, one.worker, one.reason, one.message) == (
            Fate.SUCCEEDED, ended.fence, "w1", "", "",
        )  # fmt: skip
        assert one.result == (pack([1]) if ended.keep_result else pack(None))
    assert edge.journal.synced >= edge.journal.written, "and is on disk when it is said to be taken"
