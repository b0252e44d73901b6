"""The edge over a store of several partitions: what concerns one does not ask the others, and lists need them all."""

from dataclasses import replace
from typing import Any

import pytest

from jqd.domain.job import State
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.domain.record import split_cancel
from jqd.store import PartitionedStore
from tests.api.edge import JSON, Edge
from tests.api.fakes import FakeStore

PARTS = 3


class Parted(Edge):
    """An Edge over three fakes, whose numbers tell which of them gave one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stores = [FakeStore() for _ in range(PARTS)]
        for number, store in enumerate(self.stores):
            store.changes = 1_000 * number
        several: list[Any] = list(self.stores)
        parts = self.api._parts
        services = replace(parts.services, store=PartitionedStore(several, servers=PARTS), partitions=PARTS)
        self.api._parts = replace(parts, services=services)

    async def push(self, *jobtypes: str) -> list[str]:
        """Their ids: in the journal, and not in the store yet."""
        told = await self.call("POST", "/v1/jobs", [{"name": name} for name in jobtypes])
        return [str(job_id) for job_id in told.body["job_ids"]]

    def settle_in(self, job_id: str, state: State) -> None:
        """Have it in the store, where it belongs."""
        self.add(state, id=job_id)
        self.stores[partition_of(job_id, PARTS)].views[job_id] = self.store.views.pop(job_id)


@pytest.fixture
def edge() -> Parted:
    return Parted()


def types_of(partition: int, count: int) -> list[str]:
    """Jobtypes that live there."""
    return [name for i in range(1000) if partition_of_name(name := f"t{i}", PARTS) == partition][:count]


async def test_jobs_on_their_way_are_cancelled_under_a_number_of_their_own_partition(edge: Parted) -> None:
    ids = await edge.push(*(name for number in range(PARTS) for name in types_of(number, 4)))
    told = await edge.call("POST", "/v1/jobs/cancel", {"job_ids": ids})
    assert (told.status, told.body["changed"]) == (200, len(ids))
    records = [split_cancel(record) for record in edge.journal.cancels()]
    assert dict(records) == {job_id: 1_000 * partition_of(job_id, PARTS) + 1 for job_id in ids}, (
        "each was asked once, for all that are its own"
    )


async def test_a_cancel_is_promised_whatever_the_other_partitions_do(edge: Parted) -> None:
    (here,), (there,) = await edge.push(*types_of(0, 1)), await edge.push(*types_of(1, 1))
    edge.stores[1].away = True
    assert (await edge.call("DELETE", f"/v1/jobs/{here}")).status == 204
    assert (await edge.call("DELETE", f"/v1/jobs/{there}")).status == 202


async def test_a_change_is_numbered_where_its_job_lives(edge: Parted) -> None:
    (job_id,) = await edge.push(*types_of(2, 1))
    edge.settle_in(job_id, State.WAITING)
    await edge.call("PATCH", f"/v1/jobs/{job_id}", {"priority": 3})
    assert [store.changes for store in edge.stores] == [0, 1_000, 2_001]


async def test_a_list_says_which_partition_is_away(edge: Parted) -> None:
    (job_id,) = await edge.push(*types_of(0, 1))
    edge.settle_in(job_id, State.WAITING)
    told = await edge.call("GET", "/v1/jobs", accept=JSON)
    assert [job["job_id"] for job in told.body["jobs"]] == [job_id]
    edge.stores[2].away = True
    told = await edge.call("GET", "/v1/jobs", accept=JSON)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "partition 2 of 3" in told.body["detail"]
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 200
    assert (await edge.call("GET", "/v1/types")).status == 503
    told = await edge.call("GET", "/v1/stats", accept=JSON)
    assert (told.status, told.body["store"]["unreachable"], told.body["store"]["waiting"]) == (200, [2], 2)


async def test_a_page_goes_on_where_the_last_one_ended(edge: Parted) -> None:
    ids = await edge.push(*(name for number in range(PARTS) for name in types_of(number, 3)))
    for job_id in ids:
        edge.settle_in(job_id, State.WAITING)
    told: list[str] = []
    cursor = ""
    while True:
        page = await edge.call("GET", f"/v1/jobs?limit=2&cursor={cursor}")
        told += [job["job_id"] for job in page.body["jobs"]]
        cursor = page.body["cursor"]
        if not cursor:
            break
    assert told == sorted(ids, reverse=True)
    assert (await edge.call("GET", "/v1/jobs?cursor=abc")).status == 422
