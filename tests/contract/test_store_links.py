"""Jobs that wait for others: whatever comes first, and however often, each end counts once, and none is missed."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jqd.domain.flow import AFTER_MAX, BLOCKED_MS, Flow
from jqd.domain.job import ChangeKind, Fate, Job, State
from jqd.store.links import NEW, Due, ParentNote, ParentsState, WatchPair
from jqd.store.methods import STEP_JOBS
from jqd.testing.store import FakeStore
from tests.contract.bench import ORDERS_PART, StoreBench, changed, outcome
from tests.contract.test_store_counts import counts

REST_S = 5.0
WELL = ParentsState(True, "")
OPEN = ParentsState(False, "")


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


def blocked(bench: StoreBench, *parents: Job, **fields: Any) -> Job:
    """A job that waits for these."""
    flow = Flow(after=tuple(parent.id for parent in parents))
    return bench.make("sum", flow=flow, eligible_at_ms=BLOCKED_MS, **fields)


async def parents_and_child(bench: StoreBench, number: int) -> tuple[list[Job], Job]:
    parents = [bench.make() for _ in range(number)]
    child = blocked(bench, *parents)
    await bench.add(*parents, child)
    return parents, child


async def due(bench: StoreBench) -> Due:
    return await bench.store.take_links(100, REST_S)


async def ask(bench: StoreBench, child: Job) -> ParentsState:
    """As the loop does for a blocked child."""
    assert child.flow is not None
    await bench.store.note_parents([ParentNote(child.id, size=NEW, mark=(mark := child.flow.mark))])
    found = await bench.store.watch_parents([WatchPair(child.id, "", parent, "") for parent in child.flow.after])
    notes = [ParentNote(child.id, one.id, one.how or "", stage=one.stage, mark=mark) for one in found]
    notes[-1] = notes[-1]._replace(size=len(notes))
    return (await bench.store.note_parents(notes))[child.id]._replace(mark="")


async def tell(bench: StoreBench) -> dict[str, ParentsState]:
    """As the loop does for all parents that ended."""
    standing: dict[str, ParentsState] = {}
    for each in (await due(bench)).ended:
        notes = [ParentNote(child, each.id, each.how, stage=each.stage) for child in each.children]
        standing |= {child: one._replace(mark="") for child, one in (await bench.store.note_parents(notes)).items()}
        await bench.store.drop_links({each.entry: each.children}, stages={each.entry: each.stage})
    return standing


async def end(bench: StoreBench, fate: Fate = Fate.SUCCEEDED) -> Job:
    """The next parent begins and ends."""
    held = await bench.claim_one(await bench.join())
    await bench.settle(outcome(held, fate))
    return held.job


async def release(bench: StoreBench, child: Job, **fields: Any) -> None:
    """Its content once it waits no more."""
    revision = await bench.store.reserve_change(child.id)
    await bench.add(changed(child, revision, ChangeKind.EDIT, **{"eligible_at_ms": 0} | fields))


async def test_a_job_that_waits_is_blocked_and_counts_so(store_bench: StoreBench) -> None:
    _, child = await parents_and_child(store_bench, 1)
    assert await store_bench.state(child) is State.BLOCKED
    assert await counts(store_bench, "sum") == {"blocked": 1}
    page = await store_bench.store.list_jobs(State.BLOCKED, None, None, 10, "")
    assert [job.id for job in page.jobs] == [child.id]
    assert (await store_bench.store.list_jobs(State.SCHEDULED, None, None, 10, "")).jobs == []
    assert await store_bench.claim(await store_bench.join(), "sum") == []
    await release(store_bench, child)
    assert await counts(store_bench, "sum") == {"waiting": 1}
    assert [one.job.id for one in await store_bench.claim(await store_bench.join(), "sum")] == [child.id]


async def test_what_is_taken_and_not_done_is_found_again(store_bench: StoreBench) -> None:
    _, child = await parents_and_child(store_bench, 1)
    (given,) = (await due(store_bench)).blocked
    assert (given.job.id, given.job.flow) == (child.id, child.flow)
    again = await due(store_bench)
    assert (again.blocked, again.wait_s) == ([], REST_S)
    store_bench.clock.advance(REST_S)
    assert [one.entry for one in (await due(store_bench)).blocked] == [given.entry]
    await store_bench.store.drop_links({given.entry: ()})
    store_bench.clock.advance(REST_S)
    assert (await due(store_bench)).blocked == []


async def test_rows_with_many_parents_come_a_few_at_a_time(store_bench: StoreBench) -> None:
    flow = Flow(after=tuple(f"{number:026}" for number in range(AFTER_MAX)))
    children = [store_bench.make("sum", flow=flow, eligible_at_ms=BLOCKED_MS) for _ in range(5)]
    for child in children:
        await store_bench.add(child)
    taken: list[int] = []
    while some := (await due(store_bench)).blocked:
        taken.append(len(some))
    assert taken == [2, 2, 1]


async def test_in_any_order_of_ends_and_steps_all_are_known_in_the_end(store_bench: StoreBench) -> None:
    """Each parent ends, all are asked once or twice, and children are told at any moment."""

    async def ends(child: Job) -> ParentsState:
        await end(store_bench)
        return OPEN

    async def asks(child: Job) -> ParentsState:
        return await ask(store_bench, child)

    async def tells(child: Job) -> ParentsState:
        return (await tell(store_bench)).get(child.id, OPEN)

    steps: dict[str, Callable[[Job], Awaitable[ParentsState]]] = {"end": ends, "ask": asks, "tell": tells}
    orders = sorted(set(itertools.permutations(2 * list(steps))))
    step = 6 if isinstance(store_bench.store, FakeStore) else 6 * ORDERS_PART  # all are in chaining/test_flow_walks.py
    for order in orders[::step]:
        _, child = await parents_and_child(store_bench, 2)
        stood = OPEN
        for name in order:
            now = await steps[name](child)
            stood = now if now.is_done else stood
        last = (await tell(store_bench)).get(child.id, stood)
        assert last == WELL, order
        assert await tell(store_bench) == {}, "nobody is told twice"
        await release(store_bench, child)
        held = await store_bench.claim_one(await store_bench.join(), "sum")
        assert held.job.id == child.id
        await store_bench.settle(outcome(held, Fate.SUCCEEDED))


@pytest.mark.parametrize("when", ["dropped", "taken by another"])
async def test_a_question_that_comes_late_voids_nothing_that_was_noted_since(
    store_bench: StoreBench, when: str
) -> None:
    """A call that its caller gave up lay on the way for seconds: the child was blocked for ever."""
    (one, two), child = await parents_and_child(store_bench, 2)
    note = store_bench.store.note_parents
    late = ParentNote(child.id, size=NEW, stage=(await due(store_bench)).rest_until_ms)
    store_bench.clock.advance(REST_S)
    again = await due(store_bench)
    assert [each.job.id for each in again.blocked] == [child.id]
    asked = [
        late._replace(stage=again.rest_until_ms),
        ParentNote(child.id, one.id),
        ParentNote(child.id, two.id, size=2),
    ]
    await note([*asked, ParentNote(child.id, one.id, "succeeded")])
    if when == "dropped":
        await store_bench.store.drop_links({each.entry: () for each in again.blocked}, again.rest_until_ms)
    assert await note([late]) == {child.id: OPEN}
    assert await note([ParentNote(child.id, two.id, "succeeded")]) == {child.id: WELL}


async def test_an_end_that_is_noted_twice_is_one_and_a_success_beats_a_failure_in_any_order(
    store_bench: StoreBench,
) -> None:
    (one, two), child = await parents_and_child(store_bench, 2)
    note = store_bench.store.note_parents
    await note([ParentNote(child.id, size=NEW), ParentNote(child.id, one.id), ParentNote(child.id, two.id, size=2)])
    failed = ParentNote(child.id, one.id, "failed")
    for how in ("failed", "cancelled", ""):
        assert await note([failed, failed._replace(how=how)]) == {child.id: ParentsState(False, one.id)}
    for how in ("succeeded", "failed", "cancelled", ""):
        assert await note([failed._replace(how=how)]) == {child.id: ParentsState(False, "")}
    assert await note([ParentNote(child.id, two.id, "succeeded")]) == {child.id: ParentsState(True, "")}


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("asked_first", [True, False])
async def test_children_learn_how_a_parent_ended(store_bench: StoreBench, how: str, asked_first: bool) -> None:
    (parent,), child = await parents_and_child(store_bench, 1)
    stands = await ask(store_bench, child) if asked_first else OPEN
    assert stands == OPEN
    if how == "cancelled":
        await store_bench.cancel(parent.id)
    else:
        await end(store_bench, Fate.SUCCEEDED if how == "succeeded" else Fate.FAILED)
    stands = (await tell(store_bench))[child.id] if asked_first else await ask(store_bench, child)
    assert stands == ParentsState(True, "" if how == "succeeded" else parent.id)


async def test_children_learn_that_a_parent_expired(store_bench: StoreBench) -> None:
    parent = store_bench.make(expires_at_ms=store_bench.clock.wall_ms() + 1_000)
    child = blocked(store_bench, parent)
    await store_bench.add(parent, child)
    await ask(store_bench, child)
    store_bench.clock.advance(2.0)
    await store_bench.store.promote(10)
    assert await store_bench.state(parent) is State.FAILED
    assert await tell(store_bench) == {child.id: ParentsState(True, parent.id)}


async def test_an_attempt_that_failed_is_no_end(store_bench: StoreBench) -> None:
    _, child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    held = await store_bench.claim_one(await store_bench.join())
    await store_bench.settle(outcome(held, Fate.RETRY))
    assert await tell(store_bench) == {}


async def test_a_blocked_job_that_expires_is_asked_for_no_more(store_bench: StoreBench) -> None:
    parent = await store_bench.push()
    child = blocked(store_bench, parent, expires_at_ms=store_bench.clock.wall_ms() + 1_000)
    await store_bench.add(child)
    store_bench.clock.advance(2.0)
    await store_bench.store.promote(10)
    assert await store_bench.state(child) is State.FAILED
    assert await counts(store_bench, "sum") == {"failed": 1}
    assert [one.is_blocked for one in (await due(store_bench)).blocked] == [False], "its parent is only to know of it"


async def test_a_failed_child_that_is_retried_asks_its_parents_again(store_bench: StoreBench) -> None:
    (parent,), child = await parents_and_child(store_bench, 1)
    await end(store_bench, Fate.FAILED)
    assert await ask(store_bench, child) == ParentsState(True, parent.id)
    await store_bench.cancel(child.id)
    assert [one.is_blocked for one in (await due(store_bench)).blocked] == [False]
    revision = await store_bench.store.reserve_change(parent.id)
    await store_bench.add(changed(parent, revision, ChangeKind.RETRY))
    revision = await store_bench.store.reserve_change(child.id)
    await store_bench.add(changed(child, revision, ChangeKind.RETRY))
    assert await counts(store_bench, "sum") == {"blocked": 1}
    store_bench.clock.advance(REST_S)
    assert [(one.job.id, one.is_blocked) for one in (await due(store_bench)).blocked] == [(child.id, True)]
    assert await ask(store_bench, child) == OPEN, "it has not ended since"
    await end(store_bench)
    assert await tell(store_bench) == {child.id: WELL}


async def test_of_a_child_that_waits_no_more_nothing_is_kept(store_bench: StoreBench) -> None:
    _, child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await store_bench.cancel(child.id)
    await due(store_bench)
    await store_bench.store.delete_dead([child.id])
    await end(store_bench)
    await tell(store_bench)
    keys = store_bench.keys()
    assert not [key for key in keys if key.endswith(f"parents:{child.id}".encode())]


async def test_a_parent_is_deleted_only_when_its_children_were_told(store_bench: StoreBench) -> None:
    (parent,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    await store_bench.join()
    assert await store_bench.store.delete_dead([parent.id]) == []
    assert await tell(store_bench) == {child.id: ParentsState(True, parent.id)}
    assert await store_bench.store.delete_dead([parent.id]) == [parent.id]
    (one,) = await store_bench.store.watch_parents([WatchPair(child.id, "", parent.id, "")])
    assert one.how is None, "nobody knows it any more"


async def test_what_ended_is_not_purged_before_its_children_were_told(store_bench: StoreBench) -> None:
    (parent,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await end(store_bench)
    store_bench.clock.advance(100 * 86_400)
    await store_bench.join()
    await store_bench.store.purge(100)
    assert await store_bench.state(parent) is State.SUCCEEDED
    await tell(store_bench)
    store_bench.clock.advance(100 * 86_400)
    await store_bench.join()
    await store_bench.store.purge(100)
    assert await store_bench.store.get_job(parent.id) is None


async def test_parents_have_own_ids_and_tenants(store_bench: StoreBench) -> None:
    other = await store_bench.push("acme\x1fmail")
    pairs = [WatchPair("child", "", given, "") for given in ("=nobody", other.id, "0" * 26)]
    assert [one.how for one in await store_bench.store.watch_parents(pairs)] == [None, None, None]
    (own,) = await store_bench.store.watch_parents([WatchPair("child", "acme", other.id, "")])
    assert (own.id, own.how) == (other.id, "")


async def test_all_blocked_jobs_ask_again_once_in_each_life_of_a_partition(store_bench: StoreBench) -> None:
    parent = await store_bench.push()
    children = [blocked(store_bench, parent) for _ in range(STEP_JOBS + 2)]
    await store_bench.push(eligible_at_ms=store_bench.clock.wall_ms() + 9_000)
    for some in (children[:300], children[300:]):
        await store_bench.add(*some)

    async def asked() -> set[str]:
        found: set[str] = set()
        while entries := [one.entry for one in (await store_bench.store.take_links(1_000, REST_S)).blocked]:
            found.update(entries)
            await store_bench.store.drop_links(dict.fromkeys(entries, ()))
        return found

    everyone = {f"w{child.id}" for child in children}
    assert await asked() == everyone
    await store_bench.store.ask_again(1, "run.first")
    assert await asked() == everyone
    await store_bench.store.ask_again(1, "run.first")
    assert await asked() == set()
    await store_bench.store.ask_again(1, "run.second")
    assert await asked() == everyone


async def test_who_was_asked_for_before_is_told_though_a_later_answer_was_lost(store_bench: StoreBench) -> None:
    """One daemon asked and was done; another, which had taken the same child, asks after the end, and dies."""
    (parent,), child = await parents_and_child(store_bench, 1)
    assert await ask(store_bench, child) == OPEN
    await end(store_bench)
    await store_bench.store.watch_parents([WatchPair(child.id, "", parent.id, "")])
    assert await tell(store_bench) == {child.id: WELL}


async def test_who_was_told_by_an_answer_that_was_lost_is_told_again(store_bench: StoreBench) -> None:
    """The first answer is lost. The next asker is told of no end, as a daemon is about to come through; it is done."""
    (parent,), child = await parents_and_child(store_bench, 1)
    await end(store_bench)
    (lost,) = await store_bench.store.watch_parents([WatchPair(child.id, "", parent.id, "")])
    assert lost.how == "succeeded"
    await store_bench.store.reserve_sysid("late", previous_epoch_dead=True, through=False)
    assert await ask(store_bench, child) == OPEN
    await store_bench.store.renew_sysid(await store_bench.join("late"), through=True, settle=True)
    store_bench.clock.advance(REST_S)
    assert await tell(store_bench) == {child.id: WELL}


async def test_what_comes_just_now_is_not_behind_all_that_rested(store_bench: StoreBench) -> None:
    """Parents of many lay in a partition that was away: each step of a chain elsewhere waited for all of these."""
    bench, store = store_bench, store_bench.store
    await store.look(fresh=True)
    waits = [bench.make(eligible_at_ms=BLOCKED_MS, flow=Flow(after=("away",))) for _ in range(30)]
    await bench.add(*waits)
    met, rounds = set[str](), 0
    while len(met) < len(waits):
        met |= {each.job.id for each in (await store.take_links(7, 5.0)).blocked}
        rounds += 1
    assert rounds == 5, "none twice"
    bench.clock.advance(6)
    late = await bench.push(eligible_at_ms=BLOCKED_MS, flow=Flow(after=("here",)))
    taken = [each.job.id for each in (await store.take_links(7, 5.0)).blocked]
    assert (len(taken), late.id in taken) == (7, True)


async def test_what_came_while_others_rested_waits_for_none_of_them(store_bench: StoreBench) -> None:
    """It stood between what came due before it and what came due after it, and of neither half."""
    bench, store = store_bench, store_bench.store
    await store.look(fresh=True)
    await bench.add(*(bench.make(eligible_at_ms=BLOCKED_MS, flow=Flow(after=("away",))) for _ in range(20)))
    await store.take_links(10, 5.0)
    bench.clock.advance(1)
    assert (await store.take_links(10, 5.0)).wait_s == 4, "the first of what rests"
    bench.clock.advance(4.5)
    late = [await bench.push(eligible_at_ms=BLOCKED_MS, flow=Flow(after=("here",))) for _ in range(2)]
    bench.clock.advance(0.6)
    taken = {each.job.id for each in (await store.take_links(4, 5.0)).blocked}
    assert (len(taken), {job.id for job in late} <= taken) == (4, True)


@pytest.mark.parametrize("ahead_ms", [0, 60_000])
async def test_jobs_that_may_not_be_deleted_yet_hide_none_from_who_cleans(
    store_bench: StoreBench, ahead_ms: int
) -> None:
    """Two that owed their end to a child were a step of a clean, which deleted none: that was all, it said."""
    owner = await store_bench.join()
    parents, child = await parents_and_child(store_bench, 2)
    await ask(store_bench, child)
    await store_bench.add(*(store_bench.make() for _ in range(5)))
    for held in sorted(await store_bench.claim(owner), key=lambda held: held.job.id):
        await store_bench.settle(outcome(held, Fate.SUCCEEDED))
        store_bench.clock.advance(1)
    store_bench.clock.advance(60)
    gone, before_ms = 0, store_bench.clock.wall_ms() + ahead_ms
    while (cleaned := await store_bench.store.clean_ended(before_ms, 2)).examined:
        gone, before_ms = gone + cleaned.gone, cleaned.before_ms
    assert gone == 5
    assert [await store_bench.state(parent) for parent in parents] == [State.SUCCEEDED] * 2
