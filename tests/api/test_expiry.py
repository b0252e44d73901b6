"""`expires_in` of a push: which values it takes, what the job says of it, what changes of the job do to it."""

from typing import Any

import pytest

from jqd.domain.dates import iso
from tests.api.edge import JSON
from tests.api.whole import Whole

MINUTE = "2027-01-15T08:01:00.000Z"


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def ask(edge: Whole, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    told = await edge.call(method, path, body, accept=JSON)
    assert told.status == status, told.body
    return told.body


@pytest.mark.parametrize("wrong", [0, -1, 1e11, "5m", True])
async def test_a_number_of_seconds_above_nothing(edge: Whole, wrong: object) -> None:
    told = await ask(edge, "POST", "/v1/jobs", {"name": "mail", "expires_in": wrong}, 422)
    assert "/expires_in" in [error["pointer"] for error in told["errors"]]


async def test_it_counts_from_the_push_or_from_the_date(edge: Whole) -> None:
    now = await edge.push(name="mail", expires_in=60)
    later = await edge.push(name="mail", expires_in=30.5, delay=29.5)
    for job_id in (now, later):
        assert (await ask(edge, "GET", f"/v1/jobs/{job_id}"))["expires_at"] == MINUTE
    never = await edge.push(name="mail")
    assert "expires_at" not in await ask(edge, "GET", f"/v1/jobs/{never}")


async def test_it_is_dead_and_may_be_tried_all_the_same(edge: Whole) -> None:
    job_id = await edge.push(name="mail", expires_in=60)
    edge.clock.advance(60)
    await edge.whole.promote(10)
    told = await ask(edge, "GET", f"/v1/jobs/{job_id}")
    assert (told["state"], told["finished_at"], told["history"][-1]["reason"]) == ("failed", MINUTE, "expired")
    why = await ask(edge, "GET", f"/v1/jobs/{job_id}/why")
    assert why["text"] == f"it has ended: failed at {MINUTE} (no attempt had begun when it expired)"
    (error,) = (await ask(edge, "GET", "/v1/errors"))["errors"]
    assert (error["error"], error["count"]) == ("no attempt had begun when it expired", 1)
    told = await ask(edge, "POST", f"/v1/jobs/{job_id}/retry")
    assert (told["state"], "expires_at" in told) == ("waiting", False)


async def test_changes_of_a_job_that_waits(edge: Whole) -> None:
    job_id = await edge.push(name="mail", expires_in=60)
    edge.clock.advance(10)
    assert (await ask(edge, "PATCH", f"/v1/jobs/{job_id}", {"priority": 3}))["expires_at"] == MINUTE
    told = await ask(edge, "PATCH", f"/v1/jobs/{job_id}", {"delay": 20})
    assert told["expires_at"] == "2027-01-15T08:01:30.000Z", "a minute from its date"
    assert (await ask(edge, "PATCH", f"/v1/jobs/{job_id}", {"priority": 4}))["expires_at"] == told["expires_at"]
    assert "expires_at" not in await ask(edge, "POST", f"/v1/jobs/{job_id}/run-now")


@pytest.mark.parametrize(
    ("delay", "body", "left_s"),
    [
        (3600, {"run_at": None}, 60),
        (3600, {"delay": 0}, 60),
        (3600, {"run_at": "2027-01-15T08:05:00Z"}, 60),
        (3600, {"run_at": "2027-01-15T08:20:00Z"}, 10 * 60 + 60),
        (3600, {"run_at": "2027-01-15T10:00:00Z"}, 110 * 60 + 60),
        (570, {"run_at": None}, 30),
        (570, {"delay": 30}, 30 + 60),
    ],
)
async def test_another_date_gives_it_as_long_from_then_or_from_now_on(
    edge: Whole, delay: int, body: Any, left_s: int
) -> None:
    """Ten minutes after its push. One that may begin already has no more time by being told to begin."""
    job_id = await edge.push(name="mail", expires_in=60, delay=delay)
    edge.clock.advance(600)
    await edge.whole.promote(10)
    told = await ask(edge, "PATCH", f"/v1/jobs/{job_id}", body)
    assert told["expires_at"] == iso(edge.clock.wall_ms() + 1000 * left_s)
    edge.clock.advance(left_s - 1)
    await edge.whole.promote(10)
    assert (await ask(edge, "GET", f"/v1/jobs/{job_id}"))["state"] == "waiting"
    edge.clock.advance(2)
    await edge.whole.promote(10)
    assert (await ask(edge, "GET", f"/v1/jobs/{job_id}"))["state"] != "waiting"
