"""Jobs that were in flight when daemons died, and what is given back without an outcome."""

import dataclasses

import pytest

from jqd.domain.errors import StoreAway
from jqd.domain.job import ChangeKind, Fate, Held, State, Wanted
from jqd.store import Owner, Release, Suspects, members
from tests.contract.bench import StoreBench, changed, holds, ids, outcome
from tests.contract.limited import KEYED, claim, item, setting

SUSPECTS = 700  # more than one claim takes


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told: it gives names at once."""
    await store_bench.store.look(fresh=True)
    return store_bench


# ---------------------------------------------------------------- deaths in flight


async def die(bench: StoreBench, sysid: str, step: int = 100) -> list[int]:
    """A daemon dies with what it holds, and another one notices; how many were taken from it at each step."""
    watcher = await bench.join("watcher")
    seen = (await bench.members(watcher))[sysid]
    moved = []
    while count := await bench.store.reap(sysid, seen, step):
        moved.append(count)
    return moved


async def company(bench: StoreBench, owner: Owner) -> list[Held]:
    """A claim by somebody who waited long enough for his hand to be empty."""
    return await bench.claim(owner, limit=5, suspects=Suspects.COMPANY)


async def test_a_job_in_hand_at_two_deaths_runs_alone_and_its_neighbours_go_on(store_bench: StoreBench) -> None:
    poison, friend = await store_bench.push(), await store_bench.push()
    for number in range(2):
        owner = await store_bench.join(f"dies-{number}")
        assert ids(await store_bench.claim(owner)) == [poison.id, friend.id] if number == 0 else True
        if number:
            friend = await store_bench.push()
            assert poison.id in ids(await store_bench.claim(owner, limit=1))
        await die(store_bench, f"dies-{number}")
    (row,) = await store_bench.store.get_waiting_jobtypes([Wanted()], 10)
    assert (row.head_id, row.suspect) == (poison.id, True)
    busy = await store_bench.join("busy")
    first = await store_bench.claim(busy, limit=3)
    assert ids(first) == [poison.id], "an empty hand takes it by itself"
    assert await store_bench.claim(busy) == [], "and nothing beside it"
    other = await store_bench.join("other")
    assert poison.id not in ids(await store_bench.claim(other)), "the rest runs elsewhere meanwhile"


async def test_a_suspect_may_be_taken_in_company_and_others_after_a_while(store_bench: StoreBench) -> None:
    suspect = await store_bench.push()
    for number in range(2):
        await store_bench.claim(await store_bench.join(f"dies-{number}"))
        await die(store_bench, f"dies-{number}")
    owner = await store_bench.join("one")
    await store_bench.push("other")
    await store_bench.claim(owner, "other")
    behind = await store_bench.push()
    assert ids(await store_bench.claim(owner, limit=1)) == [behind.id], "the hand is not empty: it is passed over"
    assert ids(await store_bench.claim(owner)) == []
    by_itself = await store_bench.join("empty")
    assert await store_bench.claim(by_itself, suspects=Suspects.NONE) == [], "its turn is another time"
    assert ids(await company(store_bench, owner)) == [suspect.id]
    await store_bench.store.release_jobs(owner, await store_bench.store.get_held(owner))
    assert suspect.id in ids(await store_bench.claim(owner, limit=1))
    assert await store_bench.claim(owner) == []
    store_bench.clock.advance(61)
    assert ids(await store_bench.claim(owner)) == [behind.id], "whatever kills does so at once"


async def test_a_job_alone_in_hand_at_three_deaths_goes_to_the_dead_set(store_bench: StoreBench) -> None:
    poison = await store_bench.push()
    for number in range(3):
        assert await store_bench.state(poison) is State.WAITING
        await store_bench.claim(await store_bench.join(f"dies-{number}"))
        await die(store_bench, f"dies-{number}")
    view = await store_bench.view(poison)
    assert view.state is State.FAILED
    assert view.outcome is not None
    assert (view.outcome.reason, view.outcome.fate) == ("crash", Fate.DEAD)
    assert "3 daemons died" in view.outcome.message
    await store_bench.add(changed(poison, await store_bench.store.reserve_change(poison.id), ChangeKind.EDIT))
    assert await store_bench.state(poison) is State.FAILED, "an edit that was agreed to while it waited"
    await store_bench.add(changed(poison, await store_bench.store.reserve_change(poison.id), ChangeKind.RETRY))
    assert await store_bench.state(poison) is State.WAITING


async def test_a_death_in_company_is_not_laid_to_a_suspect_though_its_hand_had_nothing_else(
    store_bench: StoreBench,
) -> None:
    suspect = await store_bench.push()
    for number in range(6):
        owner = await store_bench.join(f"dies-{number}")
        assert ids(await company(store_bench, owner)) == [suspect.id], "jobs of another partition may be beside it"
        await die(store_bench, f"dies-{number}")
    assert await store_bench.state(suspect) is State.WAITING
    assert ids(await store_bench.claim(await store_bench.join("dies-6"))) == [suspect.id]
    await die(store_bench, "dies-6")
    assert await store_bench.state(suspect) is State.FAILED, "two before it was suspected, and one alone"


async def test_a_neighbour_of_poison_never_dies_of_it(store_bench: StoreBench) -> None:
    jobs = [await store_bench.push() for _ in range(2)]
    for number in range(5):
        owner = await store_bench.join(f"dies-{number}")
        held: list[Held] = []
        while more := await company(store_bench, owner):
            held += more
        assert len(held) == 2
        await die(store_bench, f"dies-{number}")
    assert [await store_bench.state(job) for job in jobs] == [State.WAITING] * 2


async def test_the_last_job_of_a_hand_that_is_emptied_in_steps_was_not_alone(store_bench: StoreBench) -> None:
    last = [await store_bench.push(priority=priority) for priority in (0, 0, -1)][-1]
    for number in range(2):
        assert len(await store_bench.claim(await store_bench.join(f"dies-{number}"))) == 3
        assert await die(store_bench, f"dies-{number}", step=2) == [2, 1]
    for number in range(2, 4):
        assert ids(await store_bench.claim(await store_bench.join(f"dies-{number}"))) == [last.id]
        await die(store_bench, f"dies-{number}")
        assert await store_bench.state(last) is State.WAITING, "twice in company, and not yet three times alone"


async def test_what_a_rejoin_left_that_broke_off_was_not_alone(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "STEP_JOBS", 1)
    store_bench.store._config = dataclasses.replace(store_bench.store._config, crash_limit=1)
    await store_bench.push()
    last = await store_bench.push(priority=3)
    assert len(await store_bench.claim(await store_bench.join("one"))) == 2
    real, steps = store_bench.store._left, list[int]()

    async def break_off(name: str, *arguments: object) -> int:
        if steps:
            raise StoreAway("the second step")
        steps.append(await real(name, *arguments))
        return steps[0]

    monkeypatch.setattr(store_bench.store, "_left", break_off)
    with pytest.raises(StoreAway):
        await store_bench.join("one")
    monkeypatch.setattr(store_bench.store, "_left", real)
    assert steps == [1]
    await store_bench.join("one")
    assert await store_bench.state(last) is State.WAITING


async def test_a_hand_that_goes_on_under_a_new_epoch_is_counted_anew(store_bench: StoreBench) -> None:
    """It was emptied in part, its daemon came back before the rest, and has one job when it dies for good."""
    poison, _ = await store_bench.push(), await store_bench.push()
    owner = await store_bench.join("one")
    assert len(await store_bench.claim(owner)) == 2
    assert await store_bench.store.reap("one", (await store_bench.members(owner))["one"], 1) == 1
    owner = await store_bench.store.reserve_sysid("one", previous_epoch_dead=True, through=False)
    await store_bench.store.renew_sysid(owner, through=True, settle=True)
    await store_bench.store.release_jobs(owner, await store_bench.store.get_held(owner))
    for sysid in ("one", "two", "three"):
        assert await store_bench.state(poison) is State.WAITING
        owner = owner if sysid == "one" else await store_bench.join(sysid)
        assert ids(await store_bench.claim(owner, limit=1)) == [poison.id]
        await die(store_bench, sysid)
    assert await store_bench.state(poison) is State.FAILED, "three times alone"


async def test_a_daemon_that_comes_back_after_its_death_counts_as_dead_once(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    for _ in range(2):
        await store_bench.claim(await store_bench.join("one"))
    await store_bench.join("one")
    (row,) = await store_bench.store.get_waiting_jobtypes([Wanted()], 10)
    assert (row.head_id, row.suspect) == (job.id, True)


async def test_an_orderly_leave_is_no_death(store_bench: StoreBench) -> None:
    await store_bench.push()
    for _ in range(4):
        owner = await store_bench.join("one")
        assert len(await store_bench.claim(owner)) == 1
        await store_bench.store.release_sysid(owner)
    (row,) = await store_bench.store.get_waiting_jobtypes([Wanted()], 10)
    assert not row.suspect


# ---------------------------------------------------------------- giving back


@pytest.mark.parametrize("how", list(Release))
async def test_jobs_are_given_back_in_all_ways(store_bench: StoreBench, how: Release) -> None:
    job = await store_bench.push()
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.store.release_jobs(owner, holds([held]), how)
    assert await store_bench.state(job) is State.WAITING
    assert [Held(one.job, 0, one.attempt) for one in await store_bench.claim(owner)] == [Held(job, 0, 1)]


@pytest.mark.parametrize("limit", [1, 10, 500])
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
async def test_any_number_of_suspects_hides_no_healthy_job(store_bench: StoreBench, limit: int, keyed: bool) -> None:
    """Two daemons died with much in flight: that stops no jobtype until the suspects have run one by one."""
    await setting(store_bench, "r", concurrency=10_000)
    queue = KEYED + item("r") if keyed else ""
    suspects = [store_bench.make(queue=queue) for _ in range(SUSPECTS)]
    await store_bench.add(*suspects)
    for number in range(2):
        owner = await store_bench.join(f"dies-{number}")
        while await claim(store_bench, owner, 500):
            continue
        await die(store_bench, f"dies-{number}", step=500)
    healthy = [store_bench.make(queue=queue) for _ in range(5)]
    await store_bench.add(*healthy)
    other = await store_bench.join("other")
    wanted = [job.id for job in healthy[:limit]]
    assert ids(await claim(store_bench, other, limit, suspects=Suspects.NONE)) == wanted
    (alone,) = await claim(store_bench, await store_bench.join("empty"), limit, suspects=Suspects.ALONE)
    assert alone.job.id == suspects[0].id, "and they run, one by one"


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED])
async def test_a_job_that_ended_is_no_suspect_any_more(store_bench: StoreBench, fate: Fate) -> None:
    """Each claim reads all rows of deaths, and as many more jobs: 5,000 that had succeeded took six milliseconds."""
    await store_bench.push()
    for number in range(2):
        await store_bench.claim(await store_bench.join(f"dies-{number}"))
        await die(store_bench, f"dies-{number}")
    (held,) = await store_bench.claim(await store_bench.join("other"), suspects=Suspects.COMPANY)
    assert [key for key in (*store_bench.keys(),) if key.endswith(b":deaths")]
    await store_bench.settle(outcome(held, fate))
    assert not [key for key in (*store_bench.keys(),) if key.endswith(b":deaths")]
