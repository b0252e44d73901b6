"""Views of flows and groups: whoever pushed here sees it, or is told that it is on its way."""

from typing import Any

import pytest

from jqd.api.v1 import flows
from jqd.domain.errors import NotYet, StoreAway
from jqd.domain.job import Fate
from jqd.service import flow
from jqd.service.act_on_each import act_on_each
from jqd.service.edit import change
from jqd.service.flow import LOOK_S, LOOKS
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def pushed(edge: Whole, **fields: Any) -> str:
    """Push a job that is in the journal only."""
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", **fields})
    assert told.status == 201, told.body
    return str(told.body["job_id"])


async def test_a_flow_has_what_was_just_pushed(edge: Whole) -> None:
    first = await edge.push()
    last = await pushed(edge, after=[first])
    told = await edge.call("GET", f"/v1/jobs/{last}/flow")
    assert {job["job_id"] for job in told.body["jobs"]} == {first, last}
    assert told.body["whole"]


async def test_a_flow_of_which_something_is_on_its_way_says_so(edge: Whole) -> None:
    first = await edge.push()
    await pushed(edge, after=[first])
    edge.apply_fails = True
    told = await edge.call("GET", f"/v1/jobs/{first}/flow")
    assert (len(told.body["jobs"]), told.body["whole"]) == (1, False)


async def test_a_group_has_what_was_just_pushed(edge: Whole) -> None:
    await pushed(edge, group="g")
    told = await edge.call("GET", "/v1/groups/g")
    assert told.body["counts"] == {"waiting": 1}
    await pushed(edge, group="g")
    edge.apply_fails = True
    told = await edge.call("GET", "/v1/groups/g")
    assert told.body["counts"] == {"waiting": 1, "unknown": 1}
    edge.apply_fails = False
    assert (await edge.call("POST", "/v1/groups/g/cancel")).body["matched"] == 2


async def test_a_dry_run_counts_and_changes_nothing(edge: Whole) -> None:
    first = await edge.push(group="g")
    last = await edge.push(after=[first], group="g")
    for path in (f"/v1/jobs/{last}/flow", "/v1/groups/g"):
        told = await edge.call("POST", f"{path}/cancel", {"dry_run": True})
        assert (told.status, told.body) == (200, {"matched": 2, "changed": 0, "cursor": ""})
        assert (await edge.call("POST", f"{path}/retry", {"dry_run": True})).body["matched"] == 0
        for what in ("cancel", "retry"):
            told = await edge.call("POST", f"{path}/{what}", {"dryrun": True})
            assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/dryrun")
    assert (await edge.call("GET", f"/v1/jobs/{first}")).body["state"] == "waiting"
    assert (await edge.call("POST", f"/v1/jobs/{last}/flow/cancel")).body["changed"] == 2


async def test_further_pages_are_of_the_same_look(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "PAGE", 2)
    first = await edge.push(group="g")
    children = [await edge.push(group="g") for _ in range(4)]
    asked = edge.whole.list_links
    calls = 0

    async def list_links(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await asked(*args)

    monkeypatch.setattr(edge.whole, "list_links", list_links)
    told, cursor, seen = list[str](), "", list[int]()
    while not told or cursor:
        page = (await edge.call("GET", f"/v1/jobs/{first}/flow?cursor={cursor}")).body
        told, cursor = [*told, *(job["job_id"] for job in page["jobs"])], page["cursor"]
        seen.append(calls)
    assert told == sorted([first, *children])
    assert seen == [seen[0]] * 3, "it was looked at once"
    edge.clock.advance(LOOK_S + 1)
    page = (await edge.call("GET", f"/v1/jobs/{first}/flow?cursor={told[1]}")).body
    assert [job["job_id"] for job in page["jobs"]] == told[2:4]
    assert calls > seen[0], "who comes back late has it looked at again"
    for job_id in children[:LOOKS]:
        await edge.call("GET", f"/v1/jobs/{job_id}/flow")
    before = calls
    await edge.call("GET", f"/v1/jobs/{first}/flow?cursor={told[1]}")
    assert calls > before, "others pushed it out"


async def test_what_was_cancelled_for_a_parent_is_tried_anew_after_the_parent_alone_was(edge: Whole) -> None:
    first = await edge.ended(Fate.FAILED)
    last = await edge.push(after=[first], on_parent_failure="cancel")
    assert (await edge.call("DELETE", f"/v1/jobs/{last}")).status == 204, "as jqd does it for the parent"
    edge.clock.advance(1)
    assert (await edge.call("POST", f"/v1/jobs/{first}/retry")).status == 200
    (held,) = await edge.claim()
    await edge.end(held, Fate.SUCCEEDED)
    told = await edge.call("POST", f"/v1/jobs/{last}/flow/retry")
    assert told.body == {"matched": 1, "changed": 1, "cursor": ""}
    assert (await edge.call("GET", f"/v1/jobs/{last}")).body["state"] == "blocked"


@pytest.mark.parametrize("error", [NotYet("it is being changed"), StoreAway("no answer")], ids=["slow", "away"])
async def test_one_that_cannot_be_tried_anew_yet_ends_no_retry_of_the_others(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What waits for it is left, too; the answer says so, and the same call goes on."""
    slow, other = [await edge.ended(Fate.FAILED, group="g") for _ in range(2)]
    child = await edge.push(after=[slow], on_parent_failure="cancel", group="g")
    assert (await edge.call("DELETE", f"/v1/jobs/{child}")).status == 204, "as jqd does it for the parent"

    async def stuck(services: Any, view: Any, kind: Any) -> Any:
        if view.id == slow:
            raise error
        return await change(services, view, kind)

    edge.clock.advance(1)
    monkeypatch.setattr(flow, "change", stuck)
    told = await edge.call("POST", "/v1/groups/g/retry")
    assert (told.status, told.body["matched"], told.body["changed"]) == (200, 3, 1)
    refused = {each["job_id"]: each for each in told.body["refused"]}
    assert {job_id: each["status"] for job_id, each in refused.items()} == {slow: 503, child: 503}
    assert str(error) in refused[child]["detail"]
    told = await edge.call("POST", "/v1/groups/g/retry")
    assert (told.status, told.body["detail"]) == (503, str(error)), "nothing was changed"
    monkeypatch.setattr(flow, "change", change)
    told = await edge.call("POST", "/v1/groups/g/retry")
    assert told.body == {"matched": 2, "changed": 2, "cursor": ""}
    states = [(await edge.call("GET", f"/v1/jobs/{each}")).body["state"] for each in (slow, other, child)]
    assert states == ["waiting", "waiting", "blocked"]


async def test_a_retry_with_something_late_begins_no_more_when_its_time_is_over(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away would have thousands of jobs wait for it one after another."""
    monkeypatch.setattr(flow, "WALK_S", 0.0)
    failed = [await edge.ended(Fate.FAILED, group="g") for _ in range(3)]
    tried = []

    async def stuck(services: Any, view: Any, kind: Any) -> Any:
        tried.append(view.id)
        raise StoreAway("no answer")

    monkeypatch.setattr(flow, "change", stuck)
    monkeypatch.setattr(flow, "act_on_each", lambda items, act, at_once=1: act_on_each(items, act, 1))
    told = await edge.call("POST", "/v1/groups/g/retry")
    assert (told.status, told.body["detail"]) == (503, "no answer")
    assert len(failed) == 3
    assert len(tried) == 1
