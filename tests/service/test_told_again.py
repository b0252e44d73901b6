"""The store was emptied and is settled: all endings are told. Ordinary jobs, which nobody waits for, are not."""

import msgspec
import pytest
import trio

from jqd.chaining.links import Links
from jqd.domain.errors import NotFound, StoreUnsettled
from jqd.domain.job import Job, State
from jqd.domain.jobid import IdSource
from jqd.domain.record import Lane, decode_jobs
from jqd.service import groups
from jqd.service.cancel import cancel
from jqd.service.find import find
from jqd.service.parents import unknown_parents
from jqd.store import Owner
from tests.contract.bench import OTHER_JOURNAL
from tests.service.test_push_links import Here

THEN = msgspec.Raw(msgspec.msgpack.encode({"name": "sum"}))


class Emptied(Here):
    """The daemon d2 has jobs to tell again."""

    async def empty(self) -> None:
        self.jobs = [job for lane, _, body in self.journal.frames if lane is Lane.JOBS for job in decode_jobs(body)]
        self.store.wipe()
        await self.store.look(fresh=True)
        self.owner: Owner = await self.store.reserve_sysid("d2", True, through=False)
        assert (await self.store.renew_sysid(self.owner, through=True, settle=True, restored=False)).settled

    async def tell(self, *jobs: Job) -> None:
        """The next of its jobs come."""
        await Links(0, self.store, 1).write_groups(jobs)
        at = (await self.store.applied(OTHER_JOURNAL))[Lane.JOBS]
        await self.store.apply_jobs(OTHER_JOURNAL, at, at + 1, jobs)

    async def restored(self) -> None:
        await self.store.renew_sysid(self.owner, through=True)


@pytest.fixture
async def here() -> Emptied:
    made = Emptied()
    await made.store.look(fresh=True)
    return made


async def test_a_unique_key_is_given_to_nobody_before_all_jobs_are_told(here: Emptied, autojump_clock: None) -> None:
    await here.push(unique="k", delay=3600)
    await here.empty()
    with pytest.raises(StoreUnsettled, match="unique key"):
        await here.push(unique="k", delay=3600)
    await here.push()  # others go on
    await here.tell(*here.jobs)
    await here.restored()
    assert (await here.push(unique="k", delay=3600)).duplicates == [here.jobs[0].id]


async def test_a_push_waits_for_a_moment(here: Emptied, autojump_clock: None) -> None:
    await here.push(unique="k")
    await here.empty()
    async with trio.open_nursery() as nursery:

        async def tell() -> None:
            await trio.sleep(0.5)
            await here.tell(*here.jobs)
            await here.restored()

        nursery.start_soon(tell)
        assert (await here.push(unique="k")).duplicates == [here.jobs[0].id]


async def test_a_group_is_closed_over_all_its_members(here: Emptied, autojump_clock: None) -> None:
    for _ in range(3):
        await here.push(group="g")
    await here.empty()
    await here.tell(*here.jobs[:1])
    with pytest.raises(StoreUnsettled):
        await groups.close(here.services, "g", THEN, None)
    await here.tell(*here.jobs[1:])
    await here.restored()
    await groups.close(here.services, "g", THEN, None)
    (waits,) = [job for lane, _, body in here.journal.frames if lane is Lane.CHANGES for job in decode_jobs(body)]
    assert waits.flow is not None
    assert sorted(waits.flow.after) == sorted(job.id for job in here.jobs)


async def test_a_job_that_is_not_told_yet_is_on_its_way(here: Emptied) -> None:
    """Its daemon copied it behind others, so the last id that came says nothing of it."""
    ids = IdSource(journal=int(OTHER_JOURNAL[:8], 16) & 0xFFFF, salt=7, clock=here.clock)
    first, later = Job(ids.take(1).first, "mail"), Job(ids.take(1).first, "mail")
    await here.empty()
    await here.tell(later)
    assert (await find(here.services, first.id)).state is State.WAITING
    assert await unknown_parents(here.services, [first.id]) == set()
    await cancel(here.services, first.id)
    assert Lane.CANCELS in [lane for lane, _, _ in here.journal.frames]
    await here.restored()
    with pytest.raises(NotFound):
        await find(here.services, first.id)
