"""Children of a parent that begins anew learn that it has not ended, then its new end, in any order of these."""

import itertools
from collections.abc import Sequence

import pytest

from jqd.domain.job import ChangeKind, Fate, Held, Job, State
from jqd.store.links import NEW, Parent, ParentNote, ParentsState, WatchPair
from jqd.testing.store import FakeStore
from tests.contract.bench import ORDERS_PART, StoreBench, changed, outcome
from tests.contract.test_store_links import OPEN, REST_S, WELL, ask, blocked, due, end, parents_and_child, release, tell


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


async def retry(bench: StoreBench, parent: Job) -> Job:
    """Its content, as it begins anew."""
    again = changed(parent, await bench.store.reserve_change(parent.id), ChangeKind.RETRY)
    await bench.add(again)
    return again


async def told(bench: StoreBench, ended: Sequence[Parent]) -> dict[str, ParentsState]:
    """What another loop took is told now."""
    standing: dict[str, ParentsState] = {}
    for each in ended:
        notes = [ParentNote(child, each.id, each.how, stage=each.stage) for child in each.children]
        said = await bench.store.note_parents(notes)
        standing |= {child: one._replace(mark="") for child, one in said.items()}
    return standing


async def test_a_retry_makes_void_what_a_child_was_told_of_the_end(store_bench: StoreBench) -> None:
    (one, _), child = await parents_and_child(store_bench, 2)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    assert await tell(store_bench) == {child.id: ParentsState(False, one.id)}
    await retry(store_bench, one)
    assert await tell(store_bench) == {child.id: OPEN}, "it has not ended"
    await end(store_bench)
    assert await tell(store_bench) == {child.id: OPEN}
    await end(store_bench)
    assert await tell(store_bench) == {child.id: WELL}
    assert await tell(store_bench) == {}


async def test_a_parent_that_ends_again_before_anybody_noticed_has_its_new_end(store_bench: StoreBench) -> None:
    (one, other), child = await parents_and_child(store_bench, 2)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    assert await tell(store_bench) == {child.id: ParentsState(False, one.id)}
    await store_bench.cancel(other.id)
    await retry(store_bench, one)
    await end(store_bench)
    assert await tell(store_bench) == {child.id: ParentsState(True, other.id)}, (
        "the first that did not succeed is another"
    )


async def test_an_end_that_overtakes_its_retry_is_told_with_it(store_bench: StoreBench) -> None:
    """Outcomes and changes are lanes of their own: no end came in between that a lane could have noted."""
    (one, _), child = await parents_and_child(store_bench, 2)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    await tell(store_bench)
    revision = await store_bench.store.reserve_change(one.id)
    again = changed(one, revision, ChangeKind.RETRY)
    held = (await store_bench.claim(await store_bench.join(), limit=1))[0]
    await store_bench.settle(outcome(Held(again, revision + 1, 1, generation=revision), Fate.SUCCEEDED))
    await store_bench.add(again)
    assert await store_bench.state(one) is State.SUCCEEDED
    assert await tell(store_bench) == {child.id: OPEN}
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    assert await tell(store_bench) == {child.id: WELL}


async def test_notes_of_an_earlier_content_come_too_late_in_any_order(store_bench: StoreBench) -> None:
    (one, other), child = await parents_and_child(store_bench, 2)
    notes = [
        ParentNote(child.id, one.id, how, stage=stage) for how, stage in (("failed", 1), ("", 4), ("succeeded", 5))
    ]
    step = 1 if isinstance(store_bench.store, FakeStore) else ORDERS_PART
    for order in list(itertools.permutations(2 * notes))[::step]:
        await store_bench.store.note_parents([ParentNote(child.id, size=NEW), ParentNote(child.id, other.id, size=2)])
        for note in order:
            await store_bench.store.note_parents([note])
        ended = ParentNote(child.id, other.id, "succeeded")
        assert await store_bench.store.note_parents([ended]) == {child.id: WELL}, order


async def test_a_loop_that_lagged_tells_an_old_end_in_vain(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    late = await due(store_bench)
    await retry(store_bench, one)
    store_bench.clock.advance(REST_S)
    assert await tell(store_bench) == {child.id: OPEN}
    assert await told(store_bench, late.ended) == {child.id: OPEN}
    await store_bench.store.drop_links(
        {f"e{one.id}": [child.id]}, late.rest_until_ms, {f"e{one.id}": late.ended[0].stage}
    )
    await end(store_bench)
    assert await tell(store_bench) == {child.id: WELL}, "what that one did is done for the old end alone"


async def test_what_was_noted_since_it_was_taken_stays_however_late_it_is_dropped(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    slow = await due(store_bench)
    store_bench.clock.advance(2 * REST_S)
    await retry(store_bench, one)
    entry = slow.ended[0].entry
    await store_bench.store.drop_links({entry: [child.id]}, slow.rest_until_ms, {entry: slow.ended[0].stage})
    assert await tell(store_bench) == {child.id: OPEN}


async def test_an_asked_parent_tells_of_its_present_content(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    await end(store_bench, Fate.FAILED)
    await retry(store_bench, one)
    assert await ask(store_bench, child) == OPEN
    await end(store_bench)
    assert await ask(store_bench, child) == WELL
    assert await tell(store_bench) == {child.id: WELL}, "the answer may have been lost"


async def test_children_learn_that_the_name_of_a_parent_went_to_another(store_bench: StoreBench) -> None:
    """As daemons push under one own id that got it in lives of the store that are gone: the later one has it."""
    one, other = store_bench.make(name="mine"), store_bench.make(name="mine")
    child = blocked(store_bench, one)
    await store_bench.add(changed(one, 5, ChangeKind.NEW, digest="d"), child)
    assert await ask(store_bench, child) == OPEN
    await store_bench.add(changed(other, 9, ChangeKind.NEW, digest="d2"))
    assert await store_bench.state(one) is State.CANCELLED
    assert await tell(store_bench) == {child.id: ParentsState(True, one.id)}


async def test_children_learn_what_ended_as_a_dead_hand_was_emptied(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    owner = await store_bench.join("dies")
    await store_bench.claim_one(owner)
    await store_bench.cancel(one.id)  # it is asked for
    member = (await store_bench.members(await store_bench.join("lives")))["dies"]
    await store_bench.store.reap("dies", member, 10)
    assert await store_bench.state(one) is State.CANCELLED
    assert await tell(store_bench) == {child.id: ParentsState(True, one.id)}


async def test_a_child_that_was_released_stays_so(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await end(store_bench)
    assert await tell(store_bench) == {child.id: WELL}
    await release(store_bench, child)
    await retry(store_bench, one)  # of a success: it is not begun anew, as no API allows
    await tell(store_bench)
    assert await store_bench.state(child) is State.WAITING


async def test_a_parent_owes_its_new_end_before_it_is_deleted(store_bench: StoreBench) -> None:
    (one, _), child = await parents_and_child(store_bench, 2)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    await tell(store_bench)
    await retry(store_bench, one)
    await end(store_bench, Fate.FAILED)
    await store_bench.join()
    assert await store_bench.store.delete_dead([one.id]) == [], "whoever waits was told of the first end only"
    assert await tell(store_bench) == {child.id: ParentsState(False, one.id)}
    assert await store_bench.store.delete_dead([one.id]) == [one.id]
    gone = ParentNote(child.id, one.id, "gone")
    said = await store_bench.store.note_parents([gone])
    assert said[child.id]._replace(mark="") == ParentsState(False, one.id), "it had failed before"


async def test_a_parent_that_is_gone_is_not_waited_for_again(store_bench: StoreBench) -> None:
    (one, other), child = await parents_and_child(store_bench, 2)
    note = store_bench.store.note_parents
    await note([ParentNote(child.id, size=NEW), ParentNote(child.id, one.id), ParentNote(child.id, other.id, size=2)])
    await note([ParentNote(child.id, one.id, "gone"), ParentNote(child.id, one.id, stage=4)])
    assert await note([ParentNote(child.id, other.id, "succeeded")]) == {child.id: WELL}


async def test_an_end_counts_only_once_no_change_of_the_job_is_on_its_way(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    pair = WatchPair(child.id, "", one.id, "")
    await end(store_bench, Fate.FAILED)
    await store_bench.join()
    given = await store_bench.store.reserve_edit(one.id, 0)
    assert given is not None
    (asked,) = await store_bench.store.watch_parents([pair])
    assert (asked.how, asked.is_coming) == (None, True)
    assert (await due(store_bench)).ended == [], "nor is it told"
    await store_bench.add(changed(one, given.revision, ChangeKind.RETRY))
    (asked,) = await store_bench.store.watch_parents([pair])
    assert (asked.how, asked.is_coming) == ("", False)


async def test_no_end_is_told_before_the_store_was_told_all(store_bench: StoreBench) -> None:
    (one,), child = await parents_and_child(store_bench, 1)
    await ask(store_bench, child)
    await end(store_bench, Fate.FAILED)
    await store_bench.store.reserve_sysid("late", previous_epoch_dead=True, through=False)
    assert (await due(store_bench)).ended == []
    (asked,) = await store_bench.store.watch_parents([WatchPair(child.id, "", one.id, "")])
    assert (asked.how, asked.is_coming) == (None, True)
    await store_bench.store.renew_sysid(await store_bench.join("late"), through=True, settle=True)
    store_bench.clock.advance(REST_S)
    assert await tell(store_bench) == {child.id: ParentsState(True, one.id)}


async def test_a_child_counts_the_parents_that_it_waits_for_now_alone(store_bench: StoreBench) -> None:
    """It was replaced: one parent is told of, and asked about, that it waited for before; another is told of early."""
    (before, one, two), child = await parents_and_child(store_bench, 3)
    note = store_bench.store.note_parents
    await note([ParentNote(child.id, size=NEW, mark="old"), ParentNote(child.id, before.id, mark="old")])
    await note([ParentNote(child.id, size=NEW, mark="new")])
    early = [ParentNote(child.id, before.id, "failed"), ParentNote(child.id, one.id, "succeeded")]
    assert await note(early) == {child.id: ParentsState(False, "", "new")}
    asked = [ParentNote(child.id, one.id, mark="new"), ParentNote(child.id, two.id, size=2, mark="new")]
    assert await note(asked) == {child.id: ParentsState(False, "", "new")}
    late = ParentNote(child.id, before.id, "failed", size=1, mark="old")
    assert await note([late]) == {child.id: ParentsState(False, "", "new")}
    failed = ParentNote(child.id, two.id, "failed", stage=1)
    assert await note([failed]) == {child.id: ParentsState(True, two.id, "new")}
    assert await note([failed._replace(how="", stage=2)]) == {child.id: ParentsState(False, "", "new")}, "of one beside"
    assert await note([failed._replace(how="succeeded", stage=3)]) == {child.id: ParentsState(True, "", "new")}
