"""Daemons that are through and have jobs to tell again: who asks for what is not there is told later."""

from collections.abc import Awaitable, Callable

import pytest

from jqd.domain.errors import StoreUnsettled
from jqd.store import OnItsWay, Owner
from jqd.store.links import UniqueWanted, WatchPair
from tests.contract.bench import StoreBench

NOBODY = "01MCC5RM00000100000007001R"
ASKS: dict[str, Callable[[StoreBench], Awaitable[object]]] = {
    "unique key": lambda here: here.store.reserve_unique([UniqueWanted("k", "t", "ended", "")]),
    "group": lambda here: here.store.close_group("g"),
}


async def is_told(bench: StoreBench) -> bool:
    """Whether the store says of what is not there that it is nowhere; all its answers say the same."""
    (watched,) = await bench.store.watch_parents([WatchPair(NOBODY, "", NOBODY, "")])
    said = [not isinstance(await bench.store.get_job(NOBODY), OnItsWay), not watched.is_coming]
    for ask in ASKS.values():
        try:
            await ask(bench)
            said.append(True)
        except StoreUnsettled:
            said.append(False)
    assert len(set(said)) == 1, said
    return said[0]


async def behind(bench: StoreBench, sysid: str = "late") -> Owner:
    """A daemon that is through, in a settled store, with jobs left."""
    owner = await bench.store.reserve_sysid(sysid, previous_epoch_dead=True, through=False)
    told = await bench.store.renew_sysid(owner, through=True, settle=True, restored=False)
    assert (told.settled, told.behind) == (True, (sysid,))
    return owner


@pytest.fixture
async def here(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    assert await is_told(store_bench)
    return store_bench


async def test_what_is_not_there_may_come_until_all_have_told_their_jobs(here: StoreBench) -> None:
    one, two = await behind(here, "one"), await here.join("two")
    assert (await here.store.renew_sysid(two, through=True)).behind == ("one",)
    assert not await is_told(here)
    assert (await here.store.renew_sysid(one, through=True)).behind == ()
    assert await is_told(here)
    await here.store.renew_sysid(one, through=True, restored=False)
    assert await is_told(here), "it says so of its present pass alone"


async def test_each_pass_tells_anew(here: StoreBench) -> None:
    owner = await here.join("one")
    await here.store.renew_sysid(owner, through=False)
    await here.store.renew_sysid(owner, through=True, settle=True, restored=False)
    assert not await is_told(here), "it kept its seat, and the store may have forgotten"
    await here.store.renew_sysid(owner, through=True)
    assert await is_told(here)
    await behind(here, "one")
    assert not await is_told(here)


async def test_who_is_burnt_or_gone_is_not_waited_for(here: StoreBench) -> None:
    one, dead = await here.join("one"), await behind(here)
    seen = (await here.members(one))["late"]
    await here.store.reap("late", seen, 5)
    assert await is_told(here)
    await here.store.release_sysid(dead)
    assert await is_told(here)


async def test_who_died_before_it_had_told_all_is_behind_when_it_is_back(here: StoreBench) -> None:
    await here.store.release_sysid(await behind(here))
    again = await here.join("late")
    assert (await here.store.renew_sysid(again, through=True, restored=False)).behind == ("late",)
    assert not await is_told(here)
    await here.store.renew_sysid(again, through=True)
    assert await is_told(here)


async def test_who_starts_and_finds_its_retired_jobs_missing_is_behind(here: StoreBench) -> None:
    one = await here.store.reserve_sysid("one", previous_epoch_dead=True, through=True, reapply=True)
    assert not await is_told(here)
    assert (await here.store.look(fresh=False)).settled, "claims go on"
    await here.store.renew_sysid(one, through=True)
    assert await is_told(here)


async def test_those_that_never_come_back_are_not_noted_for_ever(here: StoreBench) -> None:
    for number in range(110):
        owner = await here.store.reserve_sysid(f"d{number}", previous_epoch_dead=True, through=True, reapply=True)
        await here.store.release_sysid(owner)
    assert await is_told(here)
    assert (await here.store.renew_sysid(await here.join("d0"), through=True, restored=False)).behind == ()
    assert (await here.store.renew_sysid(await here.join("d109"), through=True, restored=False)).behind == ("d109",)
