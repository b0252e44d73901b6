"""Views of flows and groups: whoever pushed here sees it, or is told that it is on its way."""

import random
from typing import Any
from urllib.parse import quote

import pytest
import trio

from jqd.domain.job import Fate, State
from jqd.service import walk
from jqd.service.walk import CHILDREN_MAX, NEAR_MAX, PIECE, WALK_KEPT_S, WALKS
from tests.api.flowed import push_all, pushed, tell_children, with_many_children
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


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
    assert told.body["counts"] == {**{state.value: 0 for state in State}, "waiting": 1}
    await pushed(edge, group="g")
    edge.apply_fails = True
    told = await edge.call("GET", "/v1/groups/g")
    assert told.body["counts"] == {**{state.value: 0 for state in State}, "waiting": 1, "unknown": 1}
    edge.apply_fails = False
    assert (await edge.call("POST", "/v1/groups/g/cancel")).body["matched"] == 2


async def test_to_close_a_group_that_never_was_makes_it(edge: Whole) -> None:
    told = await edge.call("POST", "/v1/groups/none/close")
    assert (told.status, told.body) == (200, {"group": "none", "then": None, "closed": True})
    told = await edge.call("GET", "/v1/groups/none")
    assert (told.body["jobs"], told.body["closed"]) == (0, True)
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail", "group": "none"})).status == 409


@pytest.mark.parametrize("name", [".", "..", "a/b"])
async def test_a_group_has_a_name_that_can_stand_in_a_url(edge: Whole, name: str) -> None:
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", "group": name})
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/group")
    assert "stands in URLs" in told.body["errors"][0]["detail"]


@pytest.fixture
def calls(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each call of the store told of."""
    asked, told = edge.whole.list_links, list[int]()

    async def list_links(*args: Any) -> Any:
        found = await asked(*args)
        told.append(len(found))
        return found

    monkeypatch.setattr(edge.whole, "list_links", list_links)
    return told


async def pages(edge: Whole, job_id: str, limit: int) -> list[list[dict[str, Any]]]:
    """All pages of a flow."""
    told, cursor = list[list[dict[str, Any]]](), ""
    while not told or cursor:
        page = await edge.call("GET", f"/v1/jobs/{job_id}/flow?limit={limit}&cursor={cursor}")
        assert page.status == 200, page.body
        told, cursor = [*told, page.body["jobs"]], page.body["cursor"]
    assert page.body["whole"]
    return told


async def test_further_pages_go_on_with_the_walk_of_the_first(edge: Whole, calls: list[int]) -> None:
    first = await edge.push(group="g")
    children = [await edge.push(group="g") for _ in range(4)]
    told = await pages(edge, first, 2)
    assert [job["job_id"] for page in told for job in page] == [first, *children]
    once = len(calls)
    assert sum(calls) == 5, "each job was looked at once"
    page = (await edge.call("GET", f"/v1/jobs/{first}/flow?limit=2&cursor=!2")).body
    assert [job["job_id"] for job in page["jobs"]] == children[1:3]
    assert len(calls) == 2 * once, "what was told is looked at anew"
    edge.clock.advance(WALK_KEPT_S + 1)
    page = (await edge.call("GET", f"/v1/jobs/{first}/flow?limit=2&cursor=!4")).body
    assert ([job["job_id"] for job in page["jobs"]], page["cursor"]) == ([children[3]], "")
    assert len(calls) == 3 * once, "who comes back late has it looked at again"
    for job_id in (first, *children[:WALKS]):
        await edge.call("GET", f"/v1/jobs/{job_id}/flow?limit=2")
    before = len(calls)
    await edge.call("GET", f"/v1/jobs/{first}/flow?limit=2&cursor=!2")
    assert len(calls) > before, "others pushed it out"


async def test_pages_are_the_same_in_whatever_order_the_store_answers(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that is walked again, for another page, has other jobs before it."""
    ids = [f"m{n:03}" for n in range(2 * PIECE)]
    await push_all(edge, [{"job_id": each, "group": "g"} for each in ids])
    asked, later = edge.whole.list_links, trio.Event()

    async def list_links(given: Any, *more: Any) -> Any:
        found = await asked(given, *more)
        if len(given) == PIECE and not later.is_set():
            await later.wait()
        later.set() if len(given) > 1 else None
        return found

    monkeypatch.setattr(edge.whole, "list_links", list_links)
    page = (await edge.call("GET", f"/v1/jobs/{ids[0]}/flow?limit=50")).body
    assert [job["job_id"] for job in page["jobs"]] == ids[:50]
    assert later.is_set()


@pytest.mark.parametrize("limit", [50, 200])
async def test_pages_of_a_walk_that_was_kept_and_of_one_made_anew_fit_together(edge: Whole, limit: int) -> None:
    """What is looked at for the sake of one page only, as are the names of its children, comes no earlier for that."""
    chance, jobs = random.Random(3), list[dict[str, Any]]([{"job_id": "j000"}])
    for n in range(1, 600):
        after = chance.sample(jobs[-200:], k=min(len(jobs), chance.choice((1, 1, 2, 3))))
        jobs.append({"job_id": f"j{n:03}", "after": [each["job_id"] for each in after]})
    for at in range(0, len(jobs), 300):
        await push_all(edge, jobs[at : at + 300])
    told, cursor, number = list[str](), "", 0
    while number == 0 or cursor:
        page = (await edge.call("GET", f"/v1/jobs/j000/flow?limit={limit}&cursor={cursor}")).body
        told, cursor, number = [*told, *(job["job_id"] for job in page["jobs"])], page["cursor"], number + 1
        near = {each for job in page["jobs"] for each in (*job["parents"], *job["children"])}
        assert near <= {job["job_id"] for job in jobs}, "ids that pushers gave"
        if number % 2 == 0:
            edge.clock.advance(WALK_KEPT_S + 1)
    assert sorted(told) == [job["job_id"] for job in jobs]


async def test_no_child_is_passed_over_that_is_told_of_its_parents_end_between_two_pages(edge: Whole) -> None:
    every = await with_many_children(edge)
    page = (await edge.call("GET", "/v1/jobs/root/flow?limit=100")).body
    told = [job["job_id"] for job in page["jobs"]]
    (held,) = await edge.claim(limit=1)
    await edge.end(held, Fate.SUCCEEDED)
    assert await tell_children(edge) == CHILDREN_MAX
    while page["cursor"]:
        page = (await edge.call("GET", f"/v1/jobs/root/flow?limit=100&cursor={page['cursor']}")).body
        told += [job["job_id"] for job in page["jobs"]]
    assert (sorted(told), page["whole"]) == (sorted(every), True)


async def test_a_job_with_more_children_than_are_listed_is_told_as_not_whole(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to whom only some of them may be shown, who gets less than the most jobs of a flow."""
    await with_many_children(edge)
    monkeypatch.setattr(walk, "FURTHER_MAX", CHILDREN_MAX + 1)
    page = (await edge.call("GET", "/v1/jobs/root/flow")).body
    assert (len(page["jobs"]), page["whole"]) == (CHILDREN_MAX + 2, False)


async def test_a_cursor_means_the_beginning_to_a_daemon_that_takes_ids(edge: Whole) -> None:
    """It tells of the jobs whose ids are greater: behind a balancer it repeats, and leaves out nothing."""
    last = await edge.push(after=[await edge.push()])
    cursor = (await edge.call("GET", f"/v1/jobs/{last}/flow?limit=1")).body["cursor"]
    assert "" < cursor < "0"


async def test_jobs_of_a_page_that_wait_for_the_same_parents_ask_for_these_once(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [await edge.push(job_id=f"p{n:03}") for n in range(NEAR_MAX + 50)]
    children = [await pushed(edge, after=parents) for _ in range(5)]
    await edge.link()
    for held in await edge.claim(limit=NEAR_MAX + 20):
        await edge.end(held, Fate.SUCCEEDED)
    asked, given = edge.whole.unfinished, list[str]()

    async def unfinished(job_ids: Any, **more: Any) -> Any:
        given.extend(job_ids)
        return await asked(job_ids, **more)

    monkeypatch.setattr(edge.whole, "unfinished", unfinished)
    told = [job for page in await pages(edge, children[0], 500) for job in page]
    waits = [job["waits_for"] for job in told if job["job_id"] in children]
    assert waits == [parents[NEAR_MAX + 20 :]] * 5
    assert len(given) == len(set(given)) > 0


async def test_one_look_takes_no_more_links_than_are_kept(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred jobs that wait for 10,000 parents each would take the memory of millions."""
    monkeypatch.setattr(walk, "LINKS_MAX", 3_000)
    parents = [f"p{n:03}" for n in range(500)]
    await push_all(edge, [{"job_id": "root", "group": "g"}])
    await push_all(edge, [{"job_id": each} for each in parents])
    await push_all(edge, [{"job_id": f"w{n}", "after": parents, "group": "g"} for n in range(20)])
    asked, links = edge.whole.list_links, list[int]()

    async def list_links(*args: Any) -> Any:
        found = await asked(*args)
        links.append(sum(len(row.job.flow.after) for row in found if row and row.job.flow))
        return found

    monkeypatch.setattr(edge.whole, "list_links", list_links)
    page = (await edge.call("GET", "/v1/jobs/root/flow")).body
    assert not page["whole"]
    assert sum(links) <= 4_000 + 500, "one call of the store"


async def test_the_first_page_looks_no_further_than_it_tells(edge: Whole, calls: list[int]) -> None:
    """The nearest jobs come first, from wherever the flow is looked at, and each once."""
    ids = [f"s{n:03}" for n in range(3 * PIECE)]
    await push_all(edge, [{"job_id": each, **({"after": [f"s{n - 1:03}"]} if n else {})} for n, each in enumerate(ids)])
    middle = len(ids) // 2
    page = (await edge.call("GET", f"/v1/jobs/{ids[middle]}/flow?limit=9")).body
    assert [job["job_id"] for job in page["jobs"]] == ids[middle - 4 : middle + 5]
    assert page["jobs"][0]["parents"] == [ids[middle - 5]]
    assert page["jobs"][-1]["children"] == [ids[middle + 5]]
    assert sum(calls) <= PIECE
    calls.clear()
    told = await pages(edge, ids[middle], 100)
    assert sorted(job["job_id"] for page in told for job in page) == ids
    assert len(calls) < 9, "a chain is walked by some hundred jobs in one call"


async def test_a_wide_flow_is_told_whole(edge: Whole) -> None:
    """Its middle has more children than one call tells, and more parents than are told of one job."""
    parents = [f"p{n}" for n in range(NEAR_MAX + 9)]
    children = [f"c{n}" for n in range(CHILDREN_MAX + 9)]
    await push_all(edge, [{"job_id": each} for each in parents])
    await push_all(edge, [{"job_id": "middle", "after": parents}])
    await push_all(edge, [{"job_id": each, "after": ["middle"]} for each in children])
    for end in (parents[3], "middle", children[-1]):
        told = [job["job_id"] for page in await pages(edge, end, 50) for job in page]
        assert sorted(told) == sorted([*parents, "middle", *children])


async def test_a_job_names_those_of_very_many_parents_that_it_waits_for(edge: Whole) -> None:
    """They may be none of its first, which are told with it."""
    parents = [await edge.push(job_id=f"p{n:04}") for n in range(NEAR_MAX + 2)]
    child = await pushed(edge, after=parents)
    for held in await edge.claim(limit=len(parents) - 1):
        await edge.end(held, Fate.SUCCEEDED)
    page = (await edge.call("GET", f"/v1/jobs/{child}/flow?limit=1")).body
    assert page["jobs"][0]["parents"] == parents[:NEAR_MAX]
    assert page["jobs"][0]["waits_for"] == parents[-1:]


async def test_a_job_that_was_cancelled_for_one_of_very_many_parents_names_it(edge: Whole) -> None:
    bad = await edge.ended(Fate.FAILED)
    parents = [await edge.push() for _ in range(NEAR_MAX + 1)]
    child = await edge.push(after=[*parents, bad], on_parent_failure="cancel")
    assert (await edge.call("DELETE", f"/v1/jobs/{child}")).status == 204, "as jqd does it for the parent"
    page = (await edge.call("GET", f"/v1/jobs/{child}/flow?limit=1")).body
    assert page["jobs"][0]["cancelled_for"] == bad


async def test_a_flow_is_looked_at_up_to_a_number_of_jobs_and_links(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ids = "first", {"first", *(f"c{n}" for n in range(9))}
    await push_all(edge, [{"job_id": each, **({"after": [first]} if each != first else {})} for each in sorted(ids)])
    monkeypatch.setattr(walk, "FLOW_MAX", 10)
    page = (await edge.call("GET", f"/v1/jobs/{first}/flow")).body
    assert (len(page["jobs"]), page["whole"], page["cursor"]) == (10, True, "")
    monkeypatch.setattr(walk, "FLOW_MAX", 7)
    page = (await edge.call("GET", f"/v1/jobs/{first}/flow")).body
    assert (len(page["jobs"]), page["whole"], page["cursor"]) == (7, False, "")
    monkeypatch.setattr(walk, "FLOW_MAX", 10)
    monkeypatch.setattr(walk, "LINKS_MAX", 5)
    page = (await edge.call("GET", f"/v1/jobs/{first}/flow")).body
    assert ({job["job_id"] for job in page["jobs"]} <= ids, page["whole"]) == (True, False)


@pytest.mark.parametrize("cursor", ["x", "-1", "9", "!", "!-1", "!²", "!" + "9" * 99])
async def test_a_cursor_that_no_answer_gave_is_refused(edge: Whole, cursor: str) -> None:
    told = await edge.call("GET", f"/v1/jobs/{await edge.push()}/flow?cursor={quote(cursor)}")
    assert (told.status, "leave it out" in told.body.get("detail", "")) == (422, True)


@pytest.mark.parametrize(
    ("fates", "goes_on", "attempts"),
    [
        ([], False, 0),
        ([], True, 1),
        ([Fate.SUCCEEDED], False, 1),
        ([Fate.DEAD], False, 1),
        ([Fate.RETRY], False, 1),
        ([Fate.RETRY], True, 2),
        ([Fate.RETRY, Fate.SUCCEEDED], False, 2),
        ([Fate.RETRY, Fate.DEAD], False, 2),
    ],
)
async def test_a_flow_says_of_a_job_what_the_job_says(edge: Whole, fates: list[Fate], goes_on: bool, attempts: int):
    """Also how often it was tried: the numbers of the two come from different places."""
    job_id = await edge.push(max_retry=3)
    for fate in fates:
        (held,) = await edge.claim()
        await edge.end(held, fate, delay_ms=0)
    if goes_on:
        (held,) = await edge.claim()
    job = (await edge.call("GET", f"/v1/jobs/{job_id}")).body
    (row,) = (await edge.call("GET", f"/v1/jobs/{job_id}/flow")).body["jobs"]
    assert {field: job[field] for field in ("job_id", "name", "state", "attempts")} == {
        field: row[field] for field in ("job_id", "name", "state", "attempts")
    }
    assert row["attempts"] == attempts
