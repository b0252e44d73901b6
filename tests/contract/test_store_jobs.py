"""What becomes of jobs, on the fake and on a real Valkey."""

from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from jqd.domain.errors import PositionMismatch
from jqd.domain.job import Change, ChangeKind, Fate, Outcome, State, Wanted
from jqd.domain.jobid import IdSource, journal_number
from jqd.domain.record import Lane
from jqd.domain.tenant import annotate
from jqd.store import OnItsWay, Promoted, WaitingType
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench, ids, outcome, outcome_of
from tests.contract.limited import KEYED, item


async def test_a_job_comes_back_as_it_was_pushed(store_bench: StoreBench) -> None:
    argument = msgspec.msgpack.encode({"to": "søren", "raw": b"\x00\xff\xc1"})
    job = await store_bench.push(
        argument=argument,
        priority=-5,
        max_retry=3,
        timeout=1.5,
        keep_result=True,
        created_at_ms=17,
        name="øre",
        tags=("a", "b"),
    )
    (held,) = await store_bench.claim(await store_bench.join())
    assert held.job == job
    assert held.attempt == 1


async def test_jobs_run_by_priority_then_age(store_bench: StoreBench) -> None:
    jobs = [store_bench.make(priority=priority) for priority in (3, 1, 2, 1, 3)]
    await store_bench.add(*jobs)
    held = await store_bench.claim(await store_bench.join())
    assert ids(held) == [jobs[at].id for at in (1, 3, 2, 0, 4)]


async def test_a_claim_keeps_within_its_limits(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    for priority in (1, 2, 3, 4):
        await store_bench.push(priority=priority, argument=b"\xc4\x64" + bytes(100))
    assert [one.job.priority for one in await store_bench.claim(owner, priority_min=2, priority_max=3)] == [2, 3]
    assert [one.job.priority for one in await store_bench.claim(owner, limit=1)] == [1]
    assert await store_bench.claim(owner, limit=0) == []
    assert await store_bench.claim(owner, "unknown") == []
    await store_bench.push(priority=9, argument=b"\xc4\x64" + bytes(100))
    assert len(await store_bench.claim(owner, bytes_max=1)) == 1, "one job is given however big it is"
    assert len(await store_bench.claim(owner, bytes_max=300)) == 1


async def test_two_jobs_fit_or_one(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    await store_bench.add(*(store_bench.make(argument=b"\xc4\x64" + bytes(100)) for _ in range(5)))
    assert len(await store_bench.claim(owner, bytes_max=200)) == 1
    assert len(await store_bench.claim(owner, bytes_max=320)) == 2


async def test_fences_grow_and_tell_the_start(store_bench: StoreBench) -> None:
    first = await store_bench.push()
    await store_bench.push()
    owner = await store_bench.join()
    one, two = await store_bench.claim_one(owner), await store_bench.claim_one(owner)
    assert owner.epoch < one.fence < two.fence
    view = await store_bench.view(first)
    assert view.state is State.RUNNING
    assert view.daemon == owner.sysid
    assert view.started_at_ms == store_bench.clock.wall_ms()
    assert view.attempts == 1


async def test_waiting_jobtypes_say_what_is_best(store_bench: StoreBench) -> None:
    a, b, c = store_bench.make("a", priority=5), store_bench.make("b", priority=1), store_bench.make("a", priority=2)
    await store_bench.add(a, b, c)
    both = [WaitingType("b", 1, b.id, 1, suspect=False, rank=1), WaitingType("a", 2, c.id, 2, suspect=False, rank=2)]
    store = store_bench.store
    assert await store.get_waiting_jobtypes([Wanted()], 10) == both
    assert await store.get_waiting_jobtypes([Wanted()], 1) == both[:1]
    assert await store.get_waiting_jobtypes([Wanted("x"), Wanted("a"), Wanted("b")], 10) == both
    assert await store.get_waiting_jobtypes([Wanted("a")], 10) == both[1:]
    assert await store.get_waiting_jobtypes([], 10) == []
    assert await store.get_waiting_jobtypes([Wanted()], 0) == []
    owner = await store_bench.join()
    await store_bench.claim(owner, "a", 1)
    assert await store.get_waiting_jobtypes([Wanted()], 10) == [
        both[0],
        WaitingType("a", 5, a.id, 1, suspect=False, rank=5),
    ]
    await store_bench.claim(owner, "a", 1)
    assert await store.get_waiting_jobtypes([Wanted()], 10) == both[:1]


async def test_what_is_not_wanted_hides_nothing_that_is(store_bench: StoreBench) -> None:
    """A worker of 10 to 20 finds its job behind better ones, whatever their number, type by type and in any."""
    store, push = store_bench.store, store_bench.push
    for number in range(150):
        await push(f"t{number}")
    behind, other = await push("t149", priority=15), await push("z", priority=12)
    await push("t149", priority=15)
    await push("t7", priority=21)
    rows = [
        WaitingType("z", 12, other.id, 1, suspect=False, rank=12),
        WaitingType("t149", 15, behind.id, 3, suspect=False, rank=15),
    ]
    assert await store.get_waiting_jobtypes([Wanted(None, 10, 20)], 64) == rows
    assert await store.get_waiting_jobtypes([Wanted(None, 10, 12)], 64) == rows[:1]
    assert await store.get_waiting_jobtypes([Wanted("t149", 10, 20), Wanted("t149", 22, 30), Wanted("z")], 64) == rows
    assert await store.get_waiting_jobtypes([Wanted("t7", 10, 20)], 64) == []
    everything = frozenset(f"t{number}" for number in range(150))
    assert await store.get_waiting_jobtypes([Wanted(besides=everything)], 64) == rows[:1]
    found = await store.get_waiting_jobtypes([Wanted(None, 10, 20), Wanted("t149")], 64)
    assert [(row.jobtype, row.priority) for row in found] == [("t149", 0), ("z", 12)], "each once, with its best"
    await store_bench.cancel(other.id)
    owner = await store_bench.join()
    assert len(await store_bench.claim(owner, "t149", 2, priority_min=10)) == 2
    assert await store.get_waiting_jobtypes([Wanted(None, 10, 20)], 64) == []


async def test_among_equals_the_oldest_is_found_however_many_jobtypes_there_are(store_bench: StoreBench) -> None:
    for number in range(99, 0, -1):
        await store_bench.push(f"t{number:02}")
    found = await store_bench.store.get_waiting_jobtypes([Wanted()], 64)
    assert [row.jobtype for row in found] == [f"t{number:02}" for number in range(99, 35, -1)]
    owner = await store_bench.join()
    (held,) = await store_bench.claim(owner, "t99")
    await store_bench.push("t99")
    assert (await store_bench.store.get_waiting_jobtypes([Wanted()], 1))[0].jobtype == "t98", "its next one is younger"
    await store_bench.store.release_jobs(owner, {held.job.id: held.fence})
    assert (await store_bench.store.get_waiting_jobtypes([Wanted()], 1))[0].head_id == held.job.id


async def test_application_is_exactly_once(store_bench: StoreBench) -> None:
    store = store_bench.store
    job, other = store_bench.make(), store_bench.make()
    assert await store.applied(JOURNAL) == dict.fromkeys(Lane, 0)
    assert await store.apply_jobs(JOURNAL, 0, 50, [job]) == 1
    assert await store.apply_jobs(JOURNAL, 0, 50, [job, other]) is None, "an answer was lost: it stands there already"
    assert await store.apply_changes(JOURNAL, 0, 50, []) == 0
    assert await store.apply_changes(JOURNAL, 0, 50, []) is None
    assert await store.get_job(other.id) is not None
    with pytest.raises(PositionMismatch) as caught:
        await store.apply_jobs(JOURNAL, 20, 80, [other])
    assert caught.value.stored == 50
    positions = {lane: 80 if lane in (Lane.JOBS, Lane.CHANGES) else 10 * lane for lane in Lane}
    for lane, position in positions.items():
        start = 50 if lane in (Lane.JOBS, Lane.CHANGES) else 0
        assert await store.skip(JOURNAL, lane, start, position) == position
    assert await store.skip(JOURNAL, Lane.CANCELS, 0, 30) is None
    with pytest.raises(PositionMismatch):
        await store.skip(JOURNAL, Lane.CANCELS, 0, 31)
    assert await store.applied(JOURNAL) == positions
    assert await store.applied(OTHER_JOURNAL) == dict.fromkeys(Lane, 0)
    assert (await store.stats()).waiting == 1


async def test_applying_again_revives_nothing(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.add(job)
    assert await store_bench.state(job) is State.RUNNING
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    await store_bench.add(job)
    assert await store_bench.state(job) is State.SUCCEEDED
    assert await store_bench.store.get_waiting_jobtypes([Wanted()], 10) == []


async def test_a_copy_is_new_only_where_its_original_was_gone(store_bench: StoreBench) -> None:
    store = store_bench.store
    gone, had, half = (store_bench.make() for _ in range(3))
    await store.skip(JOURNAL, Lane.JOBS, 0, 100)
    await store.skip(JOURNAL, Lane.JOBS, 100, 200, gone=True)
    await store.skip(JOURNAL, Lane.JOBS, 100, 200, gone=True)  # its answer was lost
    copies = [
        replace(gone, copied=(100, 199)),
        replace(had, copied=(99, 99)),  # it was here, ended, and was deleted
        replace(half, copied=(50, 150)),  # copied before, from where it was here
    ]
    await store.apply_jobs(JOURNAL, 200, 300, copies)
    assert await store.unfinished([one.id for one in copies]) == [gone.id]
    await store.apply_jobs(JOURNAL, 300, 400, [replace(had, copied=(200, 200)), half, replace(half, copied=(320, 320))])
    assert await store.unfinished([one.id for one in copies]) == [gone.id, half.id], "an original and its copy are one"
    assert (await store.stats()).waiting == 2
    named = replace(had, name="n", change=Change(7, 7, ChangeKind.NEW))
    await store.apply_changes(JOURNAL, 0, 500, [replace(named, copied=(99, 99))])
    assert await store.unfinished([had.id]) == []
    await store.apply_changes(JOURNAL, 500, 600, [replace(named, copied=(150, 150))])
    assert await store.unfinished([had.id]) == [had.id]
    newer = replace(named, argument=b"\x01", change=Change(8, 8, ChangeKind.EDIT), copied=(99, 99))
    await store.apply_changes(JOURNAL, 600, 700, [newer])
    (held,) = [one for one in await store_bench.claim(await store_bench.join()) if one.job.id == had.id]
    assert held.job.argument == b"\x01", "of a job that is here the copy of a later content counts"


async def test_of_many_losses_the_oldest_become_one(store_bench: StoreBench) -> None:
    store = store_bench.store
    for start in range(0, 2_000, 100):
        await store.skip(JOURNAL, Lane.JOBS, start, start + 50, gone=True)
        await store.skip(JOURNAL, Lane.JOBS, start + 50, start + 100)
    copies = [store_bench.make(copied=(start, start)) for start in range(0, 2_000, 100)]
    await store.apply_jobs(JOURNAL, 2_000, 2_100, copies)
    assert len(await store.unfinished([one.id for one in copies])) == 20, "what was gone stays gone"


async def test_dates(store_bench: StoreBench) -> None:
    now_ms = store_bench.clock.wall_ms()
    jobs = [store_bench.make(eligible_at_ms=now_ms + wait) for wait in (2000, 1000, 1500, -10)]
    await store_bench.add(*jobs)
    assert [await store_bench.state(job) for job in jobs] == [State.SCHEDULED] * 3 + [State.WAITING]
    assert (await store_bench.view(jobs[0])).eligible_at_ms == now_ms + 2000
    assert await store_bench.store.promote(10) == Promoted(0, 1000)
    store_bench.clock.advance(1.6)
    assert await store_bench.store.promote(1) == Promoted(1, 0)
    assert await store_bench.store.promote(10) == Promoted(1, 400)
    assert (await store_bench.store.stats())[:3] == (3, 1, 0)


async def test_ids_on_their_way(store_bench: StoreBench) -> None:
    store = store_bench.store
    never, seen, coming = (store_bench.make() for _ in range(3))
    stranger = IdSource(journal=journal_number(OTHER_JOURNAL), salt=1, clock=store_bench.clock).take(1).first
    await store_bench.add(seen)
    assert await store.get_job(never.id) is None, "its journal is past it"
    assert await store.get_job(coming.id) == OnItsWay(seen.id)
    assert await store.get_job("my-own-name") is None
    assert await store.get_job(stranger) is None, "no journal of that number ever showed up"
    await store.applied(OTHER_JOURNAL)
    assert await store.get_job(stranger) == OnItsWay("")


async def test_what_a_journal_says_it_will_not_bring_is_not_on_its_way_where_the_store_has_all_it_brought(
    store_bench: StoreBench,
) -> None:
    """Jobs that ended and were deleted from the journal before the store lost all: no later id ever passes theirs."""
    store = store_bench.store
    seen, ended, coming = (store_bench.make() for _ in range(3))
    await store_bench.add(seen)
    position = (await store.applied(JOURNAL))[Lane.JOBS]
    await store.save_kept(JOURNAL, 1, position + 1, ended.id)
    assert await store.get_job(ended.id) == OnItsWay(seen.id), "it may be in what is not applied"
    await store.save_kept(JOURNAL, 1, position, ended.id)
    assert await store.get_job(ended.id) is None
    assert await store.get_job(coming.id) == OnItsWay(ended.id)
    await store.save_kept(JOURNAL, 1, position, seen.id)
    assert await store.get_job(ended.id) is None, "it only grows"
    await store_bench.add(coming)
    assert await store_bench.state(coming) is State.WAITING
    store_bench.wipe()
    await store.look(fresh=False)
    await store.applied(JOURNAL)
    await store.save_kept(JOURNAL, 1, position, coming.id)
    assert await store.get_job(ended.id) == OnItsWay(""), "nothing was applied again yet"


async def test_a_kept_result_outlives_any_number_of_ended_jobs(store_bench: StoreBench) -> None:
    store, clock = store_bench.store, store_bench.clock
    kept = await store_bench.push(keep_result=True)
    owner = await store_bench.join()
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED, result=b"\x01"))
    for _ in range(9):
        clock.advance(1)
        await store_bench.push()
        await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    while (await store.purge(3)).rows:
        assert (await store_bench.view(kept)).result == b"\x01"
    assert (await store.stats()).ended == 5
    clock.advance(3600)
    await store.purge(10)
    assert (await store_bench.view(kept)).result is None
    assert await store_bench.state(kept) is State.SUCCEEDED


async def test_purge(store_bench: StoreBench) -> None:
    store, clock = store_bench.store, store_bench.clock
    jobs = [await store_bench.push() for _ in range(8)]
    await store_bench.push()
    owner = await store_bench.join()
    for held in (await store_bench.claim(owner))[:8]:
        clock.advance(1)
        await store_bench.settle(outcome(held, Fate.DEAD if held.job == jobs[7] else Fate.SUCCEEDED, result=b"\x01"))
    assert (await store.purge(1)).rows == 1, "five ended jobs are kept"
    assert (await store.purge(10)).rows == 1
    assert (await store.purge(10)).rows == 0
    assert await store.get_job(jobs[1].id) is None
    assert await store_bench.state(jobs[2]) is State.SUCCEEDED
    clock.advance(86_400)
    assert (await store.purge(10)).rows == 5
    stats = await store.stats()
    assert (stats.ended, stats.dead, stats.running) == (0, 1, 1)


async def test_purge_of_notes_spares_running_jobs(store_bench: StoreBench) -> None:
    store, clock = store_bench.store, store_bench.clock
    await store_bench.push()
    held = await store_bench.claim_one(await store_bench.join())
    unseen, retried = store_bench.make(), store_bench.make()
    await store_bench.cancel(held.job.id, unseen.id)
    await store_bench.settle(outcome_of(retried, Fate.RETRY))
    clock.advance(200_000)
    assert (await store.purge(10)).rows == 2
    assert (await store.purge(10)).rows == 0
    assert (await store_bench.view(held.job)).cancel_asked
    await store_bench.add(unseen, retried)
    assert await store_bench.state(unseen) is State.WAITING
    assert await store_bench.state(retried) is State.WAITING


async def test_a_job_that_moves_while_it_is_listed_stands_once(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more queues than are walked side by side, the ended are walked when all in flight is looked at already."""
    owner = await store_bench.join()
    job = await store_bench.push()
    held = await store_bench.claim_one(owner)
    for number in range(70):
        await store_bench.push(f"type-{number}")
    look = getattr(store_bench.store, "_views")  # noqa: B009
    told: list[Outcome] = [outcome(held, Fate.SUCCEEDED)]

    async def look_and_end(*args: Any, **named: Any) -> Any:
        views = await look(*args, **named)
        if told:
            await store_bench.settle(told.pop())
        return views

    monkeypatch.setattr(store_bench.store, "_views", look_and_end)
    page = await store_bench.store.list_jobs(None, None, None, 100, "")
    assert (len(page.jobs), page.cursor, told) == (71, "", [])
    assert [view.state for view in page.jobs if view.id == job.id] == [State.SUCCEEDED], "as it was seen last"


async def test_a_list_has_arguments_only_of_rows_that_are_small_enough(store_bench: StoreBench) -> None:
    small, large = store_bench.make(argument=b"\xa3abc"), store_bench.make(argument=b"\xc5\x08\0" + bytes(2_048))
    await store_bench.add(small, large)
    for row_bytes, told in ((0, [b"\xc0", b"\xc0"]), (1_024, [b"\xc0", small.argument]), (1 << 20, None)):
        page = await store_bench.store.list_jobs(None, None, None, 9, "", row_bytes=row_bytes)
        assert [view.argument for view in page.jobs] == (told or [large.argument, small.argument])


async def test_a_name_finds_the_jobs_of_each_tenant_that_is_asked_for(store_bench: StoreBench) -> None:
    bench, places = store_bench, list[tuple[State, str, str]]()

    async def push(state: State, *given: dict[str, Any]) -> list[str]:
        pushed = []
        for its, called in product(("", "acme", "other"), ("mail", "sms")):
            for more in given:
                pushed.append((await bench.push(annotate(its, called), **more)).id)
                places.append((state, its, called))
        return pushed

    ended = await push(State.SUCCEEDED, {})
    owner = await bench.join()
    for jobtype in [annotate(tenant, name) for _, tenant, name in places]:
        await bench.settle(outcome(await bench.claim_one(owner, jobtype), Fate.SUCCEEDED))
    waiting = await push(State.WAITING, {}, {"queue": KEYED}, {"queue": KEYED + item("one", key="=a")})
    later = await push(State.SCHEDULED, {"eligible_at_ms": bench.clock.wall_ms() + 60_000})
    rows = dict(zip(ended + waiting + later, places, strict=True))
    states = (None, State.WAITING, State.SCHEDULED, State.SUCCEEDED)
    for state, tenant, name in product(states, (None, "", "acme", "nobody"), (None, "mail")):
        named = None if name is None else annotate(tenant or "", name)
        page = await bench.store.list_jobs(state, named, None, 100, "", tenant)
        wanted = {
            job_id
            for job_id, (its_state, its_tenant, its_name) in rows.items()
            if state in (None, its_state) and tenant in (None, its_tenant) and name in (None, its_name)
        }
        assert {view.id for view in page.jobs} == wanted, (state, tenant, name)
