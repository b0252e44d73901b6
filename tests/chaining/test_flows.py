"""The loop that lets children go on: each once, after all parents, whatever is repeated, refused or away meanwhile."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from jqd.chaining.flows import ALONE_S, COMPLAIN_S, GATHER_S, LOOK_S, OLD_MS, REST_S
from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import ChangeKind, Fate
from jqd.domain.record import cancel_of
from jqd.store.links import WatchPair
from tests.chaining.flow_room import Faulty, Room, one_round, room, running
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, changed

__all__ = ["room", "running"]


async def test_an_end_that_comes_alone_is_told_at_once_and_others_together(
    autojump_clock: None, running: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a chain waits for it."""
    parents = [await running.parent() for _ in range(3)]
    await trio.sleep(LOOK_S / 2)
    rounds, take_links = list[int](), running.stores[0].take_links

    async def taken(limit: int, rest_s: float, **named: Any) -> Any:
        due = await take_links(limit, rest_s, **named)
        rounds.extend([len(due.blocked)] if due.blocked else [])
        return due

    monkeypatch.setattr(running.stores[0], "take_links", taken)
    began_s = trio.current_time()
    await running.child(parents[0])
    running.flows.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert (rounds, trio.current_time()) == ([1], began_s)
    for parent in parents:
        await running.child(parent)
        running.flows.wake()
        await trio.testing.wait_all_tasks_blocked()
    assert rounds == [1]
    await trio.sleep(2 * ALONE_S)
    assert rounds == [1, 3]
    await running.child(parents[0])
    running.flows.wake()
    await trio.sleep(GATHER_S / 2)
    assert rounds == [1, 3], "where several come, more may"
    await trio.sleep(GATHER_S)
    assert rounds == [1, 3, 1]


async def test_it_is_complained_of_children_whose_parents_do_not_come(autojump_clock: None, running: Room) -> None:
    late = running.make(1)
    child = await running.child(late)
    await trio.sleep(COMPLAIN_S - LOOK_S)
    assert running.flows.complaint is None
    await trio.sleep(REST_S + 2 * LOOK_S)
    assert (running.flows.complaint or "").startswith(f"job {child.id} and 0 others wait")
    await running.benches[1].add(late)
    await running.end()
    await trio.sleep(2 * REST_S)
    assert (running.released, running.flows.complaint) == ([child.id], None)


async def test_a_parent_that_nobody_knows_has_ended_once_its_partition_was_told_all(
    autojump_clock: None, running: Room
) -> None:
    gone, later = running.make(1), running.make(1)
    await running.benches[1].add(later)  # of the same journal
    running.unsettled.add(1)
    child = await running.child(gone)
    await trio.sleep(4 * REST_S)
    assert running.released == []
    running.unsettled.clear()
    await trio.sleep(2 * REST_S)
    assert (running.released, running.failed) == ([child.id], [""])


async def test_a_parent_that_comes_while_the_answer_is_on_its_way_has_not_ended(
    autojump_clock: None, room: Room, nursery: trio.Nursery
) -> None:
    """Its partition had not been told all when it was asked: that it is whole now says nothing of that answer."""
    late, later = room.make(1), room.make(1)
    room.unsettled.add(1)

    class Slow(Faulty):
        async def watch_parents(self, pairs: Sequence[WatchPair]) -> Any:
            answer = await self.store.watch_parents(pairs)
            if room.unsettled:
                await room.benches[1].add(late)
                room.unsettled.clear()
            return answer

    await room.benches[1].add(later)  # of the same journal
    await nursery.start(room.loop(wrap=Slow).run)
    child = await room.child(late)
    await trio.sleep(3 * REST_S)
    assert room.released == []
    await room.end()
    await room.end()
    await one_round(room.loop(1))
    assert room.released == [child.id]


async def test_a_journal_that_tells_nothing_is_waited_for_no_longer_than_that(
    autojump_clock: None, running: Room
) -> None:
    child = await running.child(running.make(1))
    await trio.sleep(OLD_MS / 1000 - REST_S)
    assert running.released == []
    await trio.sleep(3 * REST_S)
    assert running.released == [child.id]


async def test_a_journal_that_its_partition_knows_is_waited_for_however_long_it_tells_nothing(
    autojump_clock: None, running: Room
) -> None:
    """Its daemon may stand still with jobs that it took while the partition was away."""
    parents = running.stores[1]
    await parents.applied(JOURNAL)
    late, gone = running.make(1), running.make(1)
    children = [await running.child(late), await running.child(gone)]
    await trio.sleep(3 * OLD_MS / 1000)
    assert running.released == []
    await running.benches[1].add(late)
    await running.end()
    await one_round(running.loop(1))
    assert running.released == [children[0].id]
    await parents.save_kept(JOURNAL, 0, 0, gone.id)  # it tells that nothing is left of it up to here
    await trio.sleep(2 * REST_S)
    assert running.released == [child.id for child in children]


async def test_how_long_a_journal_tells_nothing_counts_from_when_its_partition_was_there(
    autojump_clock: None, room: Room, nursery: trio.Nursery
) -> None:
    """However long it was away: its first round may be before all journals begin to tell it of their jobs."""
    room.unsettled.add(1)
    await nursery.start(room.flows.run)
    child = await room.child(room.make(1))
    await trio.sleep(2 * OLD_MS / 1000)
    room.unsettled.clear()
    await trio.sleep(OLD_MS / 1000 - REST_S)
    assert room.released == []
    await trio.sleep(3 * REST_S)
    assert room.released == [child.id]


async def test_a_partition_that_is_away_is_asked_and_told_when_it_is_back(autojump_clock: None, running: Room) -> None:
    parent = await running.parent()
    running.stores[1].away = "cable pulled"
    child = await running.child(parent)
    await trio.sleep(4 * REST_S)
    running.stores[1].away = None
    await trio.sleep(4 * REST_S)
    assert running.released == []
    await running.end(Fate.FAILED)
    flows = running.loop(1)  # of the partition that tells
    while await one_round(flows) == 0.0:
        pass
    assert (running.released, running.failed) == ([child.id], [parent.id])


@pytest.mark.parametrize("refuses", [True, JournalRefused("the disk is full", full=True), StoreAway("cable pulled")])
async def test_a_release_that_is_refused_is_tried_again(
    autojump_clock: None, running: Room, refuses: Exception | bool
) -> None:
    await running.parent()
    await running.end()
    running.refuses = refuses
    child = await running.child(*[job for job in running.made.values() if job.jobtype != "sum"][-1:])
    running.flows.wake()
    await trio.sleep(3 * REST_S)
    assert running.released == []
    running.refuses = None
    await trio.sleep(3 * REST_S)
    assert running.released == [child.id]


async def test_a_release_that_is_refused_at_once_rests_and_holds_up_no_other_child(
    autojump_clock: None, running: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop would do nothing else meanwhile."""
    parent = await running.parent()
    slow, *others = [await running.child(parent) for _ in range(4)]
    monkeypatch.setattr(running.stores[1], "take_links", partial(running.stores[1].take_links, children_max=2))
    running.flows.wake()
    await trio.sleep(LOOK_S)
    tried, real = list[str](), running.release

    async def release(job_id: str, failed: str, mark: str) -> bool:
        tried.append(job_id)
        return job_id != slow.id and await real(job_id, failed, mark)

    monkeypatch.setattr(running.flows, "_release", release)
    await running.end()
    telling = running.loop(1)
    monkeypatch.setattr(telling, "_release", release)
    more_s = [await one_round(telling) for _ in range(4)]
    assert sorted(running.released) == sorted(child.id for child in others)
    assert more_s[-1] > 0
    assert 1 <= tried.count(slow.id) <= 3, "once with each lot of children"
    tried.clear()
    for _ in range(3):
        await trio.sleep(REST_S / 4)
        await one_round(telling)
    assert tried == []
    monkeypatch.setattr(telling, "_release", real)
    await trio.sleep(REST_S)
    await one_round(telling)
    assert running.released[-1] == slow.id


async def test_a_partition_that_lost_all_is_asked_again(autojump_clock: None, running: Room) -> None:
    parent = await running.parent()
    child = await running.child(parent)
    await trio.sleep(LOOK_S / 2)  # not while it looks
    running.stores[1].wipe()
    await running.stores[1].look(fresh=True)
    await running.benches[1].store.apply_jobs(OTHER_JOURNAL, 0, 1, [parent])
    await running.end()
    await trio.sleep(2 * LOOK_S)
    assert running.released == [child.id], "it had ended when it was asked again"


async def test_who_asks_waits_until_parents_know_their_children(autojump_clock: None, running: Room) -> None:
    parent = await running.parent()
    for _ in range(2):
        child = await running.child(parent)
        running.flows.wake()
        await running.flows.wait_links_applied()
        (row,) = await running.stores[1].list_links([parent.id], 100)
        assert row is not None
        assert child.id in row.listed
        await running.flows.wait_links_applied()  # nothing is due: it is not waited for
    running.stores[1].away = "cable pulled"
    await running.child(parent)
    running.flows.wake()
    with trio.move_on_after(LOOK_S) as waiting:
        await running.flows.wait_links_applied()
    assert waiting.cancelled_caught


async def test_who_asks_waits_until_all_children_of_an_end_were_told(
    autojump_clock: None, room: Room, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry of the flow left out those that failed for the parent after it: with the first all was called told."""
    parent = await room.parent()
    children = [await room.child(parent) for _ in range(7)]
    await one_round(room.flows)
    monkeypatch.setattr(room.stores[1], "take_links", partial(room.stores[1].take_links, children_max=2))
    await room.end(Fate.FAILED)
    telling, turn = room.loop(1), trio.Lock()

    async def release(job_id: str, failed: str, mark: str) -> bool:
        async with turn:  # the bench applies one at a time
            return await room.release(job_id, failed, mark)

    monkeypatch.setattr(telling, "_release", release)
    await nursery.start(telling.run)
    await telling.wait_links_applied()
    assert sorted(room.released) == sorted(child.id for child in children)
    assert set(room.failed) == {parent.id}


@pytest.mark.parametrize("told", ["before", "after"])
@pytest.mark.parametrize("end", ["first", "then", "own", "failed"])
async def test_a_parent_knows_of_a_child_that_had_ended_before_it_was_asked(
    autojump_clock: None, running: Room, told: str, end: str
) -> None:
    """A store that lost everything hears of such children together with their ends: whoever looks at the flow, cancels
    it or tries it anew finds them from their parents."""
    parent = running.make(len(running.stores) - 1)
    running.unsettled.add(1)
    if told == "before":
        await running.benches[1].add(parent)
    flow = Flow(after=(parent.id,), released=end == "failed", failed=parent.id if end == "failed" else "")
    child = running.make(0, jobtype="sum", flow=flow, eligible_at_ms=BLOCKED_MS)
    came = changed(child, 5, ChangeKind.NEW) if end == "own" else child  # under its pusher's id
    if end in ("then", "failed"):
        await running.benches[0].add(came)
    if end != "failed":  # else it waits yet, and expires in a moment
        await running.benches[0].cancel(cancel_of(child.id, 5 if end == "own" else 0))
    if end in ("first", "own"):
        await running.benches[0].add(came)
    running.flows.wake()
    await trio.sleep(2 * LOOK_S)
    if told == "after":
        await running.benches[1].add(parent)
    running.unsettled.clear()
    await trio.sleep(2 * REST_S)
    (row,) = await running.stores[1].list_links([parent.id], 9)
    assert row is not None
    assert row.listed == [child.id]
    await running.end()
    await trio.sleep(2 * REST_S)
    assert running.released == []
    assert running.flows.complaint is None
    assert (await running.stores[0].take_links(9, 0.0)).blocked == [], "nothing is asked for it any more"


async def test_who_asks_for_a_flow_waits_until_a_store_that_lost_all_knows_its_links(
    autojump_clock: None, running: Room
) -> None:
    """A retry of the flow left out the child: its question was heard before the parent came, and rested."""
    await running.flows.wait_links_applied()  # all was well before
    running.unsettled.add(1)
    running.stores[1].wipe()
    await running.stores[1].look(fresh=True)
    parent = running.make(1)
    child = await running.child(parent)
    await running.benches[0].cancel(child.id)
    with trio.move_on_after(LOOK_S) as waiting:
        await running.flows.wait_links_applied()
    assert waiting.cancelled_caught, "it is asked for, and nobody knows the parent yet"
    await running.benches[1].store.apply_jobs(OTHER_JOURNAL, 0, 1, [parent])
    running.unsettled.clear()
    with trio.fail_after(LOOK_S):
        await running.flows.wait_links_applied()
    (row,) = await running.stores[1].list_links([parent.id], 9)
    assert row is not None
    assert row.listed == [child.id]


async def test_nobody_waits_for_the_parents_of_a_child_that_has_ended(autojump_clock: None, running: Room) -> None:
    gone = running.make(len(running.stores) - 1)  # it never comes
    child = await running.child(gone)
    await running.benches[0].cancel(child.id)
    running.flows.wake()
    await trio.sleep(COMPLAIN_S + 2 * REST_S)
    assert running.flows.complaint is None
    assert (await running.stores[0].take_links(9, 0.0)).blocked == []
