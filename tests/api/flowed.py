"""Flows over the edge: jobs pushed with parents, and told of their ends."""

from typing import Any

from jqd.service.walk import CHILDREN_MAX
from jqd.store.links import ParentNote
from tests.api.whole import Whole


async def pushed(edge: Whole, **fields: Any) -> str:
    """Push a job that is in the journal only."""
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", **fields})
    assert told.status == 201, told.body
    return str(told.body["job_id"])


async def push_all(edge: Whole, jobs: list[dict[str, Any]]) -> None:
    assert (await edge.call("POST", "/v1/jobs", [{"name": "mail", **job} for job in jobs])).status == 201
    await edge.link()


async def tell_children(edge: Whole) -> int:
    """Tell some children that their parent ended, as the loop does; these are listed last from then on."""
    (one,) = (await edge.whole.take_links(100, 5.0)).ended
    await edge.whole.note_parents([ParentNote(each, one.id, one.how, stage=one.stage) for each in one.children])
    await edge.whole.drop_links({one.entry: one.children}, 0, {one.entry: one.stage})
    return len(one.children)


async def with_many_children(edge: Whole) -> set[str]:
    children = [f"c{n:03}" for n in range(3 * CHILDREN_MAX)]
    await push_all(edge, [{"job_id": "root"}])
    for at in range(0, len(children), CHILDREN_MAX):
        await push_all(edge, [{"job_id": each, "after": ["root"]} for each in children[at : at + CHILDREN_MAX]])
    return {"root", *children}
