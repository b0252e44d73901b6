"""Parents of jobs that wait: as who asks why sees them, and circles of jobs that would wait for each other."""

from typing import Any

import pytest

from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def why(edge: Whole, job_id: str, **headers: str) -> str:
    told = await edge.call("GET", f"/v1/jobs/{job_id}/why", headers=headers)
    assert told.body["reason"] == "blocked", told.body
    return str(told.body["text"])


async def pushed(edge: Whole, *jobs: dict[str, Any], **headers: str) -> Any:
    told = await edge.call("POST", "/v1/jobs", [{"name": "mail", **job} for job in jobs], headers=headers)
    await edge.apply()
    return told


async def test_the_operator_is_told_why_a_job_of_a_tenant_waits(edge: Whole) -> None:
    acme = {"jqd-tenant": "acme"}
    told = await pushed(edge, {"job_id": "first"}, {"after": ["first"]}, **acme)
    child = told.body["job_ids"][1]
    assert await why(edge, child, **acme) == "it waits for its parent: first (waiting)"
    assert await why(edge, child) == "it waits for its parent: first (waiting)"


async def test_a_replacement_that_a_parent_waits_for_is_refused(edge: Whole) -> None:
    await pushed(edge, {"job_id": "a"}, {"job_id": "b", "after": ["a"]}, {"job_id": "c", "after": ["b"]})
    told = await pushed(edge, {"job_id": "a", "replace": True, "after": ["c"]})
    assert told.status == 422, told.body
    assert told.body["errors"][0]["pointer"] == "/0/after"
    assert "it would wait for itself, by a → c → b → a" in told.body["errors"][0]["detail"]
    both = await pushed(edge, {"job_id": "d", "after": ["c"]}, {"job_id": "a", "replace": True, "after": ["d"]})
    assert [error["detail"].partition(", by ")[2][:17] for error in both.body["errors"]] == ["a → d → c → b → a"]
    good = await pushed(edge, {"job_id": "e"}, {"job_id": "c", "replace": True, "after": ["e"]})
    assert good.status == 201, good.body


async def test_a_circle_that_came_about_all_the_same_is_named(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pushes beside each other see nothing of each other."""
    await pushed(edge, {"job_id": "a"}, {"job_id": "b", "after": ["a"]})

    async def nothing(*_: object) -> dict[int, Any]:
        return {}

    monkeypatch.setattr("jqd.service.push_checks.replaced_circles", nothing)
    await pushed(edge, {"job_id": "a", "replace": True, "after": ["b"]})
    for job_id, way in (("a", "a → b → a"), ("b", "b → a → b")):
        assert (await why(edge, job_id)).startswith(f"it waits for itself, by {way}, and never begins")


async def test_without_the_store_a_push_that_may_make_a_circle_is_refused(edge: Whole) -> None:
    await pushed(edge, {"job_id": "a"})
    edge.whole.away = "cable pulled"
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", "job_id": "b", "replace": True, "after": ["a"]})
    assert told.status == 503, told.body


@pytest.mark.parametrize(("field", "value"), [("result_into", "all"), ("on_parent_failure", "run")])
async def test_what_is_said_of_parents_that_a_job_has_not_is_refused(edge: Whole, field: str, value: str) -> None:
    told = await pushed(edge, {field: value}, {})
    assert (told.status, told.body["errors"][0]["pointer"]) == (207, f"/0/{field}")
    assert "this job waits for none: say after" in told.body["errors"][0]["detail"]
