"""Why a job stands where it stands: a test for each reason, and which of several is told."""

import shlex
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import Raw
from msgspec.msgpack import encode as packb

from jqd.domain.job import State
from jqd.domain.pauses import PAUSE, body_of
from jqd.domain.queue_name import FAILED, WITHIN
from jqd.domain.settings import CONSTRAINT, Setting
from jqd.domain.tenant import annotate
from jqd.rate_limits import constraints
from jqd.rate_limits.constraints import Constraint, Constraints
from jqd.runner import Running, WorkerHealth
from jqd.store import OnItsWay, QueuePlace
from tests.api.edge import JSON, Edge
from tests.api.fakes import outcome
from tests.api.whole import Whole

READY = QueuePlace(0, True, 0, False, 0, [])
ADDRESS = "http://127.0.0.1:9"


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def why(edge: Edge, job_id: str, status: int = 200) -> dict[str, Any]:
    told = await edge.call("GET", f"/v1/jobs/{job_id}/why", accept=JSON)
    assert told.status == status, told.body
    body: dict[str, Any] = told.body
    return body


def later(edge: Edge, seconds: float) -> int:
    return edge.clock.wall_ms() + round(seconds * 1000)


async def works(edge: Edge, **fields: Any) -> str:
    body = {"name": "w", "url": ADDRESS, "max_jobs": 1, "jobs": ["mail"], **fields}
    told = await edge.call("POST", "/v1/workers", body, accept=JSON)
    assert told.status == 201, told.body
    worker_id: str = told.body["worker_id"]
    return worker_id


async def test_not_ingested(edge: Edge) -> None:
    told = await edge.call("POST", "/v1/jobs", {"name": "mail"}, accept=JSON)
    edge.store.applied_id = ""
    body = await why(edge, told.body["job_id"])
    assert body == {
        "job_id": told.body["job_id"],
        "reason": "not_ingested",
        "text": "it is in the journal of a daemon, or about to be, and not in the store yet: it comes in its turn",
    }
    edge.control.not_running = "the store does not answer"
    assert (await why(edge, told.body["job_id"]))["text"].endswith("not in the store yet: the store does not answer")
    assert OnItsWay("").held is False


async def test_store_away(edge: Edge) -> None:
    job_id = edge.add(State.WAITING)
    edge.store.away = True
    body = await why(edge, job_id)
    assert body["reason"] == "store_away"
    assert body["text"].startswith("nobody can tell how it stands, for the store is away: the store at redis://fake")


async def test_no_such_job(edge: Edge) -> None:
    edge.store.knows_journals = False
    await why(edge, "nobody", 404)


async def test_scheduled_until(edge: Edge) -> None:
    at_ms = later(edge, 60)
    body = await why(edge, edge.add(State.SCHEDULED, eligible_at_ms=at_ms))
    assert (body["reason"], body["state"], body["name"]) == ("scheduled", "scheduled", "mail")
    assert body["text"] == f"it is not to begin before {body['until']}"
    assert body["until"] == "2027-01-15T08:01:00.000Z"


async def test_retrying_at(edge: Edge) -> None:
    last = outcome("j", message="Traceback\nValueError: no such cake", attempt=2)
    body = await why(edge, edge.add(State.RETRYING, attempts=2, eligible_at_ms=later(edge, 5), outcome=last))
    assert body["reason"] == "retrying"
    assert body["text"].startswith(
        "attempt 2 failed (ValueError: no such cake), and the next one is not to begin before"
    )


async def test_paused_by_whom_and_since_when(edge: Edge) -> None:
    job_id = edge.add(State.WAITING)
    await edge.call("POST", "/v1/types/mail/pause")
    body = await why(edge, job_id)
    assert (body["reason"], body["since"]) == ("paused", "2027-01-15T08:00:00.000Z")
    assert body["text"] == f"'mail' is paused since {body['since']}: `jqd types resume mail`"
    said = edge.workers.settings.make({(PAUSE, "mail"): body_of(1_000, "ops")}, now_ms=later(edge, 1), origin=1)
    edge.workers.settings.take(said)
    body = await why(edge, job_id)
    assert (body["by"], body["since"]) == ("ops", "1970-01-01T00:00:01.000Z")
    assert "is paused by ops since" in body["text"]


async def test_a_version_that_is_gone(edge: Edge) -> None:
    await edge.call("PUT", "/v1/handlers/mail", {"lang": "http", "body": ADDRESS})
    body = await why(edge, edge.add(State.WAITING, jobtype="mail@7"))
    assert body["reason"] == "version_gone"
    assert body["text"].startswith("handler 'mail' never had a version 7: these jobs wait until it has")


async def test_no_worker_none_of_its_priority_or_all_down(edge: Edge) -> None:
    job_id = edge.add(State.WAITING, priority=5)
    assert (await why(edge, job_id))["reason"] == "no_worker"
    worker_id = await works(edge, priority_max=3)
    body = await why(edge, job_id)
    assert (body["reason"], body["priority"]) == ("other_priorities", 5)
    assert body["text"] == "no worker takes these jobs with priority 5: w takes -2147483648 to 3"
    await works(edge, worker_id=worker_id)
    edge.control.views[worker_id] = WorkerHealth("backed_off", 0, why="it answered 429", until_ms=later(edge, 9))
    body = await why(edge, job_id)
    assert (body["reason"], body["until"]) == ("workers_down", "2027-01-15T08:00:09.000Z")
    assert body["workers"] == [
        {"name": "w", "state": "backed_off", "why": f"gets no jobs until {body['until']}: it answered 429"}
    ]
    assert body["text"] == f"worker w {body['workers'][0]['why']}"
    edge.control.views[worker_id] = WorkerHealth("backed_off", 0, why="it answered 429", until_ms=later(edge, -9))
    body = await why(edge, job_id)
    assert body["text"] == "worker w gets only one job at first, as a probe: it answered 429"
    assert body.get("until") is None, "it is over"


@pytest.mark.parametrize(
    ("place", "not_ready", "reason", "text"),
    [
        (READY, None, "next", "it is the next of its type: a worker takes it as soon as one has a free hand"),
        (None, None, "next", "its date has come, and it becomes ready in a moment"),
        (None, "no seat", "not_ready", "its date has come, and it becomes ready in a moment: no seat"),
        (READY, "another daemon is waited for", "not_ready", "another daemon is waited for"),
        (READY._replace(ahead=1), None, "behind", "it waits behind 1 job of 'mail'"),
        (READY._replace(ahead=300, exact=False), None, "behind", "it waits behind at most 300 jobs of 'mail'"),
        (
            READY._replace(ahead=2, better_types=3, better=[("bill", 7), ("a\x1fb", 1)]),
            None,
            "behind",
            "it waits behind 2 jobs of 'mail', better ones of 'bill' (7 ready), better ones of 'b' (1 ready),"
            " of 1 more types",
        ),
        (
            READY._replace(limited_by="slow", until_ms=1_800_000_000_000, holds=("j1", "j2"), ahead=9, exact=False),
            "no matter",
            "limited",
            "it is limited by constraint 'slow' until about 2027-01-15T08:00:00.000Z, which counts j1, j2 in flight",
        ),
        (
            READY._replace(limited_by="shut", until_ms=9_000_000_000_000_000),
            "no matter",
            "limited",
            "it is limited by constraint 'shut', a pause without an end, until that is set anew or deleted",
        ),
        (
            READY._replace(limited_by=f"slow one{WITHIN}=acme"),
            "no matter",
            "limited",
            "it is limited by constraint 'slow one' for its key 'acme'",
        ),
        (
            READY._replace(limited_by=f"slow{WITHIN}!", ahead=9, exact=False),
            "no matter",
            "limited",
            "constraint 'slow' could not be asked about it, and holds such jobs up: it waits until the constraint is"
            " said anew or deleted",
        ),
        (
            READY._replace(suspect=True, deaths=2),
            "no matter",
            "suspect",
            "it was in flight when 2 daemons died, so it runs alone: it waits until a daemon that comes to it has"
            " nothing else in flight",
        ),
    ],
)
async def test_in_its_turn(edge: Edge, place: QueuePlace | None, not_ready: str | None, reason: str, text: str) -> None:
    await works(edge)
    job_id = edge.add(State.WAITING)
    if place is not None:
        edge.store.places[job_id] = place
    edge.control.not_running = not_ready
    body = await why(edge, job_id)
    assert (body["reason"], body["text"]) == (reason, text)
    if place is not None:
        assert (body["ahead"], body["exact"]) == (place.ahead, place.exact), "a guess is said to be one"
        assert body.get("more_better", 0) == (1 if place.better and reason == "behind" else 0)


async def test_running_here_there_or_at_a_worker_alone(edge: Edge) -> None:
    job_id = edge.add(State.RUNNING, daemon="d2", started_at_ms=1_000, attempts=2, cancel_asked=True)
    body = await why(edge, job_id)
    assert (body["reason"], body["since"], body["daemon"]) == ("running", "1970-01-01T00:00:01.000Z", "d2")
    assert body["text"] == f"it runs since {body['since']} for daemon d2, attempt 2 of 6; it was asked to stop"
    edge.runner.at_work[job_id] = Running("w1", 2_000)
    body = await why(edge, job_id)
    assert (body["by"], body["since"]) == ("w1", "1970-01-01T00:00:02.000Z")
    assert "at worker w1 for daemon" in body["text"]
    alone = await why(edge, edge.add(State.RUNNING, worker="w9", started_at_ms=1_000, attempts=1))
    assert alone["text"] == "it runs since 1970-01-01T00:00:01.000Z at worker w9, attempt 1 of 6"


async def test_ended(edge: Edge) -> None:
    last = outcome("j", message="a\nKeyError: 5", finished_at_ms=3_000)
    body = await why(edge, edge.add(State.FAILED, outcome=last))
    at = "1970-01-01T00:00:03.000Z"
    assert (body["reason"], body["since"]) == ("ended", at)
    assert body["text"] == f"it has ended: failed at {at} (KeyError: 5)"
    assert (await why(edge, edge.add(State.CANCELLED)))["text"] == "it has ended: cancelled"
    edge.control.shelves["acme"] = 3
    waits = await why(edge, edge.add(State.SUCCEEDED, jobtype="acme\x1fmail"))
    assert "what follows 3 jobs waits for the quota of its tenant" in waits["text"]


async def test_a_job_is_followed_through_its_life() -> None:
    """With the scripts of the store."""
    edge = await Whole().begin()
    job_ids = [await edge.push(name="mail", job_id=f"own-{number}") for number in range(3)]
    assert (await why(edge, "own-2"))["reason"] == "no_worker"
    await works(edge)
    body = await why(edge, "own-2")
    assert (body["reason"], body["ahead"], body["job_id"]) == ("behind", 2, "own-2")
    assert (await why(edge, "own-0"))["reason"] == "next"
    assert len(job_ids) == 3


@pytest.mark.parametrize(
    ("constraint", "tenant", "held"),
    [("slow", "acme", None), (annotate("acme", "slow"), "acme", ["j1"]), ("slow", None, ["j1"])],
)
async def test_a_tenant_is_told_no_ids_of_others_that_a_constraint_counts(
    edge: Edge, constraint: str, tenant: str | None, held: list[str] | None
) -> None:
    headers = {} if tenant is None else {"jqd-tenant": tenant}
    body = {"name": "w", "url": ADDRESS, "max_jobs": 1, "jobs": ["mail"]}
    assert (await edge.call("POST", "/v1/workers", body, headers={"jqd-tenant": "acme"})).status == 201
    job_id = edge.add(State.WAITING, jobtype=annotate("acme", "mail"), argument=packb({}))
    edge.store.places[job_id] = READY._replace(limited_by=constraint, holds=("j1",))
    told = (await edge.call("GET", f"/v1/jobs/{job_id}/why", accept=JSON, headers=headers)).body
    assert (told["reason"], told.get("holds"), "j1" in told["text"]) == ("limited", held, held is not None)
    packed = constraints.body_of(Constraint("true", key="job.argument.SECRET", concurrency=1))
    said = Setting(CONSTRAINT, constraint, 1, 0, Raw(packed))
    edge.workers.settings.take([said])
    edge.store.places[job_id] = READY._replace(limited_by=f"{constraint}{WITHIN}{FAILED}")
    told = (await edge.call("GET", f"/v1/jobs/{job_id}/why", accept=JSON, headers=headers)).body
    assert ("SECRET" in told["text"]) == (held is not None), "it is what the constraint asks for, whosever that is"


async def test_each_job_that_a_constraint_fails_on_is_told_its_own_failure(edge: Edge) -> None:
    await works(edge)
    wish = {
        "match": "job.name == 'mail'",
        "rate": {"limit": 10, "burst": 5},
        "key": "job.argument.k",
        "cost": "job.argument.c",
    }
    assert (await edge.call("PUT", "/v1/constraints/cr", wish)).status == 201
    failures = [
        ({"k": 9, "c": 100}, "cost: job.argument.c is 100, more than limit and burst, 15, allow at all"),
        ({"k": 9, "c": -1}, "cost: job.argument.c is -1, and must be 0 or more"),
        ({"k": 9}, "cost: job.argument.c: there is no field c"),
        ({"c": 1}, "key: job.argument.k: there is no field k"),
        ({"k": 9, "c": "x"}, "cost: job.argument.c is STRING, not INT"),
        ({"k": 9, "c": 1.5}, "cost: job.argument.c is DOUBLE, not INT"),
    ]
    known = edge.api._parts.services.feature(Constraints).known["cr"]
    known.failed, known.error = 1, "of the last one"
    for argument, failure in failures:
        job_id = edge.add(State.WAITING, argument=packb(argument))
        edge.store.places[job_id] = READY._replace(limited_by=f"cr{WITHIN}{FAILED}")
        assert (await why(edge, job_id))["text"] == (
            f"constraint 'cr' could not be asked about it ({failure}), and holds such jobs up: it waits until the"
            " constraint is said anew or deleted"
        )
    assert (known.failed, known.error) == (1, "of the last one"), "to ask why counts for nothing"
    edge.store.places[job_id] = READY._replace(limited_by=f"cr{WITHIN}{FAILED}")
    edge.move(job_id, State.WAITING, argument=packb({"k": 9, "c": 1}))
    told = (await why(edge, job_id))["text"]
    assert told.startswith("constraint 'cr' could not be asked about it, and holds"), "it was said anew meanwhile"


async def test_a_pause_is_told_with_the_command_that_ends_it(edge: Edge) -> None:
    job_id = edge.add(State.WAITING, jobtype=annotate("acme", "mail"))
    own = {"jqd-tenant": "acme"}
    assert (await edge.call("POST", "/v1/types/mail/pause", headers=own)).status == 200
    assert (await why(edge, job_id))["text"].endswith("`jqd --tenant acme types resume mail`")
    told = await edge.call("GET", f"/v1/jobs/{job_id}/why", accept=JSON, headers=own)
    assert told.body["text"].endswith("`jqd types resume mail`")


@pytest.mark.parametrize("name", ["a; touch /tmp/x $(id)", "it's `id`", "--all"])
async def test_a_command_that_ends_a_pause_is_one_for_any_name(edge: Edge, name: str) -> None:
    job_id = edge.add(State.WAITING, jobtype=name)
    assert (await edge.call("POST", f"/v1/types/{quote(name, safe='')}/pause")).status == 200
    command = (await why(edge, job_id))["text"].split(": `", 1)[1].removesuffix("`")
    assert [word for word in shlex.split(command) if word != "--"] == ["jqd", "types", "resume", name]
    assert ("--" in shlex.split(command)) == name.startswith("-"), "else it would resume all"
