"""A flow or group is cancelled, and tried anew, as a whole."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from jqd.domain.errors import NotYet, StoreAway
from jqd.domain.job import Fate
from jqd.service import flow, walk
from jqd.service.act_on_each import act_on_each
from jqd.service.edit import change
from jqd.service.walk import CHILDREN_MAX
from tests.api.flowed import push_all, pushed, tell_children, with_many_children
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def in_parts(edge: Whole, path: str, **fields: Any) -> list[tuple[int, int]]:
    """What each call changed, until none is left: matched, changed."""
    told, cursor, is_whole = list[tuple[int, int]](), "", fields.pop("is_whole", True)
    while not told or cursor:
        answer = await edge.call("POST", path, {**fields, "cursor": cursor})
        cursor = answer.body["cursor"]
        assert (answer.status, answer.body.get("whole", True)) == (200, bool(cursor) or is_whole), answer.body
        told.append((answer.body["matched"], answer.body["changed"]))
    return told


@pytest.mark.parametrize("is_kept", [True, False], ids=["goes on", "is looked at anew"])
async def test_a_flow_of_more_jobs_than_one_call_takes_is_cancelled_in_parts(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr(walk, "FLOW_MAX", 4)
    if not is_kept:
        monkeypatch.setattr(walk, "WALK_KEPT_S", -1.0)  # another daemon answers
    ids = ["root", *(f"c{n}" for n in range(9))]
    await push_all(edge, [{"job_id": each, **({"after": ["root"]} if each != "root" else {})} for each in ids])
    path = "/v1/jobs/root/flow/cancel"
    assert await in_parts(edge, path, dry_run=True, is_whole=is_kept) == [(4, 0), (4, 0), (2, 0)]
    assert await in_parts(edge, path, is_whole=is_kept) == [(4, 4), (4, 4), (2, 2)]
    states = [(await edge.call("GET", f"/v1/jobs/{each}")).body["state"] for each in ids]
    assert states == ["cancelled"] * 10
    assert await in_parts(edge, path, is_whole=is_kept) == [(0, 0)] * 3


async def test_a_flow_is_tried_anew_in_parts_with_parents_that_lie_in_another_part(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain whose first job failed; each of the others was cancelled for the one before."""
    ids = [await edge.ended(Fate.FAILED)]
    for _ in range(8):
        ids.append(await edge.push(after=[ids[-1]], on_parent_failure="cancel"))
        assert (await edge.call("DELETE", f"/v1/jobs/{ids[-1]}")).status == 204, "as jqd does it for the parent"
    edge.clock.advance(1)
    monkeypatch.setattr(walk, "FLOW_MAX", 4)
    path = f"/v1/jobs/{ids[-1]}/flow/retry"
    assert await in_parts(edge, path, dry_run=True) == [(4, 0), (4, 0), (1, 0)], "each is counted once"
    told = await in_parts(edge, path)
    assert (len(told), sum(changed for _, changed in told)) == (3, 9)
    states = [(await edge.call("GET", f"/v1/jobs/{each}")).body["state"] for each in ids]
    assert states == ["waiting", *["blocked"] * 8]


async def test_an_act_on_a_flow_of_which_not_all_is_found_says_so(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await edge.push()
    last = await pushed(edge, after=[first])
    edge.apply_fails = True
    for act in ("cancel", "retry"):
        told = await edge.call("POST", f"/v1/jobs/{first}/flow/{act}", {"dry_run": True})
        assert (told.status, told.body["whole"], told.body["cursor"]) == (200, False, "")
    edge.apply_fails = False
    assert (await edge.call("POST", f"/v1/jobs/{last}/flow/cancel")).body == {"matched": 2, "changed": 2, "cursor": ""}
    told = await edge.call("POST", f"/v1/jobs/{first}/flow/cancel", {"cursor": "first"})
    assert (told.status, "leave it out" in told.body["detail"]) == (422, True)


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


async def test_a_flow_is_cancelled_whole_though_children_are_told_of_an_end_meanwhile(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = await with_many_children(edge)
    (held,) = await edge.claim(limit=1)
    await edge.end(held, Fate.SUCCEEDED)
    asked, told = edge.whole.list_links, list[int]()

    async def list_links(*args: Any) -> Any:
        found = await asked(*args)
        if not told:
            told.append(await tell_children(edge))
        return found

    monkeypatch.setattr(edge.whole, "list_links", list_links)
    answer = await edge.call("POST", "/v1/jobs/root/flow/cancel")
    assert (answer.body["matched"], told) == (len(every) - 1, [CHILDREN_MAX])


async def test_a_cancel_finds_what_came_into_the_flow_while_it_looked(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that runs may push on, until it is told of its cancel."""
    first = await edge.push()
    asked, came = edge.whole.list_links, list[str]()

    async def list_links(*args: Any) -> Any:
        found = await asked(*args)
        if len(came) < 2:
            came.append("")
            came[-1] = await pushed(edge, after=[first])
            await edge.link()
        return found

    monkeypatch.setattr(edge.whole, "list_links", list_links)
    answer = await edge.call("POST", f"/v1/jobs/{first}/flow/cancel")
    assert answer.body == {"matched": 3, "changed": 3, "cursor": ""}
    await edge.apply()
    states = {(await edge.call("GET", f"/v1/jobs/{each}")).body["state"] for each in (first, *came)}
    assert states == {"cancelled"}


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


async def test_a_child_that_was_refused_behind_its_push_is_none_that_was_cancelled_for_a_parent(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cancel names its own content, as one for a parent does. A retry of the flow ran it, though its pusher was
    told that it was taken back."""
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail", "job_id": "p"})).status == 201
    await edge.apply()
    (held,) = await edge.claim()
    await edge.end(held, Fate.SUCCEEDED)

    async def late(_: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
        await trio.lowlevel.checkpoint()
        return [job_id for token, job_id in pairs if token and job_id]

    child = {"name": "mail", "job_id": "c", "group": "g", "after": ["p"], "on_parent_failure": "cancel"}
    with monkeypatch.context() as patched:
        patched.setattr(edge.whole, "confirm_members", late)
        assert (await edge.call("POST", "/v1/jobs", child)).status == 503
        await edge.apply()
    await edge.link()
    assert (await edge.call("GET", "/v1/jobs/c")).body["state"] == "cancelled"
    assert (await edge.call("POST", "/v1/jobs/p/flow/retry")).body["changed"] == 0
