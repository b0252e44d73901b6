"""Contents of one job that come late, or in any order: the latest one stays, and nothing deleted begins anew."""

import itertools
import random
from typing import Any

import msgspec
import pytest

from jqd.domain.job import ChangeKind, Fate, Held, Job, State
from jqd.domain.record import cancel_of
from jqd.store import JobView, NameState, OnItsWay, Owner
from tests.contract.bench import StoreBench, changed, outcome
from tests.contract.change import LATER_MS, ask, confirm, push_named
from tests.contract.lent import BEAT_S, forget, handed, mark


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told: it gives names at once."""
    await store_bench.store.look(fresh=True)
    return store_bench


@pytest.mark.parametrize("when", ["ready", "in flight", "ended"])
async def test_a_replacement_that_comes_late_runs_though_the_older_content_was_claimed_after_it(
    store_bench: StoreBench, when: str
) -> None:
    """Its daemon died with it, or has a backlog: the claim bears a later number than the replacement."""
    job = await push_named(store_bench, argument=b"\x01")
    given = await ask(store_bench, "X", "d2", replace=True)
    assert await confirm(store_bench, job, "d2", given.revision) is True
    owner = await store_bench.join()
    replacement = changed(job, given.revision, ChangeKind.REPLACE, digest="d2", argument=b"\x02")
    if when != "ready":
        old = await store_bench.claim_one(owner)
        assert old.fence > given.revision
        if when == "ended":
            await store_bench.settle(outcome(old, Fate.SUCCEEDED))
        await store_bench.add(replacement)
        if when == "in flight":
            assert await store_bench.settle(outcome(old, Fate.SUCCEEDED)) == [job.id], "that was of the old content"
    else:
        await store_bench.add(replacement)
    new = await store_bench.claim_one(owner)
    assert (new.job.argument, new.generation) == (b"\x02", given.revision)
    await store_bench.settle(outcome(new, Fate.SUCCEEDED))
    assert await store_bench.state(job) is State.SUCCEEDED
    assert await store_bench.claim(owner) == []


async def test_what_was_acknowledged_under_a_name_and_is_on_its_way_is_the_last_word(store_bench: StoreBench) -> None:
    job = await push_named(store_bench)
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    given = await ask(store_bench, "X", "d2", replace=True)
    assert (await store_bench.view(job)).state is State.RUNNING, "it may never be journaled"
    await confirm(store_bench, job, "d2", given.revision)
    assert await store_bench.store.get_job(job.id) == OnItsWay("", held=True, is_promised=True)
    await store_bench.settle(outcome(held, Fate.FAILED))
    assert await store_bench.store.get_job(job.id) == OnItsWay("", is_promised=True)
    (brief,) = (await store_bench.store.list_jobs(None, None, None, 10, "")).jobs
    assert brief.state is State.FAILED, "a list shows what is there"
    # Nothing is deleted before it comes, least of all a cancel that is meant for it.
    await store_bench.cancel(cancel_of(job.id, await store_bench.store.reserve_change(job.id)))
    assert await store_bench.store.delete_dead([job.id]) == []
    store_bench.clock.advance(100_000)
    assert (await store_bench.store.purge(100)).rows == 0
    assert (await store_bench.store.clean_ended(store_bench.clock.wall_ms(), 100)).gone == 0
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2", argument=b"\x02"))
    assert await store_bench.state(job) is State.CANCELLED
    assert await store_bench.claim(owner) == []
    assert await store_bench.store.delete_dead([job.id]) == [job.id]


async def test_what_was_acknowledged_and_never_comes_is_given_up_some_day(store_bench: StoreBench) -> None:
    """Its daemon's disk burnt: the job must not be on its way for ever."""
    job = await push_named(store_bench)
    held = await store_bench.claim_one(await store_bench.join())
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    given = await ask(store_bench, "X", "d2", replace=True)
    await confirm(store_bench, job, "d2", given.revision, replaces=True)
    store_bench.clock.advance(200_000)
    await store_bench.store.purge(100)
    assert await store_bench.state(job) is State.SUCCEEDED
    assert (await ask(store_bench, "X", "d2")).state is NameState.CONFLICT, "it did not run"
    store_bench.clock.advance(100_000)
    assert (await store_bench.store.purge(100)).rows == 1
    assert await store_bench.store.resolve("mine") is None


@pytest.mark.parametrize("kind", [ChangeKind.EDIT, ChangeKind.RETRY])
async def test_a_change_that_comes_when_its_job_is_deleted_begins_nothing_anew(
    store_bench: StoreBench, kind: ChangeKind
) -> None:
    """It lay in a backlog while the job ended; only in a later life of the store it may come before its job."""
    await store_bench.store.look(fresh=True)
    job = await push_named(store_bench)
    owner = await store_bench.join()
    view = await store_bench.view(job)
    given = await store_bench.store.reserve_edit(job.id, view.revision)
    assert given is not None
    late = changed(job, given.revision, kind, view.generation)
    assert late.change is not None
    late = msgspec.structs.replace(late, change=msgspec.structs.replace(late.change, life=given.life))
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.FAILED))
    assert await store_bench.store.delete_dead([job.id]) == [job.id]
    await store_bench.add(late)
    assert await store_bench.claim(owner) == []
    store_bench.wipe()
    store_bench.at = dict.fromkeys(store_bench.at, 0)
    await store_bench.store.look(fresh=False)
    await store_bench.add(late)
    assert await store_bench.state(job) is State.WAITING


@pytest.mark.parametrize(
    "how", ["replaced", "pushed again", "replaced in an earlier life", "edited in an earlier life"]
)
async def test_an_older_content_that_comes_when_the_newer_is_deleted_begins_nothing_anew(
    store_bench: StoreBench, how: str
) -> None:
    """It lay in the journal of a daemon that stood still, or behind a backlog, while the newer one ran and ended."""
    late = store_bench.make() if how.startswith("edited") else store_bench.make(name="mine")
    given = 1
    if late.name:
        late = changed(late, (await ask(store_bench, late.id)).revision, ChangeKind.NEW, digest="d1")
        assert late.change is not None
        given = late.change.revision
    if how == "pushed again":  # at another daemon, for the first one does not answer
        newer, again = late, await ask(store_bench, "X")
        assert (again.state, again.job_id, again.revision) == (NameState.NEW, late.id, given)
    elif how.startswith("replaced"):
        assert await confirm(store_bench, late, "d1", given)
        given = (await ask(store_bench, "X", "d2", replace=True)).revision
        newer = changed(late, given, ChangeKind.REPLACE, digest="d2")
    else:
        newer = changed(late, await store_bench.store.reserve_change(late.id), ChangeKind.EDIT)
    if how.endswith("life"):
        store_bench.wipe()
        await store_bench.store.look(fresh=True)
    owner = await store_bench.join()
    await store_bench.add(newer)
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    assert await store_bench.store.delete_dead([late.id]) == [late.id]
    await store_bench.add(late)
    assert not isinstance(await store_bench.store.get_job(late.id), JobView)
    assert await store_bench.claim(owner) == []
    # It is remembered as long as other notes are; and a later content of the job, or another job of its name, is one.
    await store_bench.add(changed(late, await store_bench.store.reserve_change(late.id), ChangeKind.REPLACE))
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    assert await store_bench.store.delete_dead([late.id]) == [late.id]
    if late.name:
        assert (await ask(store_bench, "X")).job_id == "X"
    store_bench.clock.advance(300_000)
    assert (await store_bench.store.purge(100)).rows > 0
    await store_bench.add(late)
    assert await store_bench.state(late) is State.WAITING


async def test_endings_of_several_contents_meet_theirs_in_any_order(store_bench: StoreBench) -> None:
    """Of those that nobody waits for here only the latest is kept."""
    job = await push_named(store_bench)
    owner = await store_bench.join()
    contents, ends = [changed(job, (await store_bench.view(job)).revision, ChangeKind.NEW)], []
    for digest in ("d2", "d3"):
        ends.append(outcome(await store_bench.claim_one(owner), Fate.FAILED, message=digest))
        await store_bench.settle(ends[-1])
        given = await ask(store_bench, "X", digest, replace=True)
        contents.append(changed(job, given.revision, ChangeKind.REPLACE, digest=digest))
        await store_bench.add(contents[-1])
    ends.append(outcome(await store_bench.claim_one(owner), Fate.DEAD, message="last"))
    for order, known in itertools.product(itertools.permutations(range(3)), range(3)):
        store_bench.wipe()
        store_bench.clock.advance(0.001)  # the store has to know that all of these claims were before it was emptied
        store_bench.at = dict.fromkeys(store_bench.at, 0)
        await store_bench.store.look(fresh=False)
        for content in contents[:known]:
            await store_bench.add(content)
        if known:  # in one call: what ends a content that is not here yet comes right behind what ends the one that is
            await store_bench.settle(*(ends[place] for place in order))
        else:
            for place in order:
                await store_bench.settle(ends[place])
        for content in contents[known:]:
            await store_bench.add(content)
        view = await store_bench.view(job)
        assert (view.state, view.history[-1].message) == (State.FAILED, "last"), (order, known)


@pytest.mark.parametrize("walk", range(5))
async def test_any_order_of_what_the_journals_hold_ends_the_same(store_bench: StoreBench, walk: int) -> None:
    """What one job lived through comes again to an emptied store, in any order of lanes and daemons."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    source = random.Random(seed)
    job, records = await live(store_bench, source)
    known = told(await store_bench.view(job))
    orders = list(itertools.permutations(records))
    for order in source.sample(orders, min(12, len(orders))):
        store_bench.wipe()
        store_bench.at = dict.fromkeys(store_bench.at, 0)
        await store_bench.store.look(fresh=False)
        for lane, record in order:
            await getattr(store_bench, lane)(record)
        await put_down(store_bench)
        assert told(await store_bench.view(job)) == known, f"seed {seed}: {order}"


async def put_down(bench: StoreBench) -> None:
    """A worker that has the job gives it back untried."""
    found = await bench.store.find_silent({BEAT_S: await mark(bench)}, 9)
    await bench.store.release_entrusted([(one.job.id, one.fence) for lease in found.leases for one in lease.jobs])


def told(view: JobView) -> tuple[object, ...]:
    """What everybody must agree about: of a job that ended the next attempt is the first."""
    ended = view.state.is_final
    state, due_ms, attempts = (view.state, 0, 0) if ended else (State.WAITING, view.eligible_at_ms, view.attempts)
    return state, due_ms, attempts, view.argument, view.revision, view.generation, view.name


async def live(bench: StoreBench, source: random.Random) -> tuple[Job, list[tuple[str, Any]]]:
    """A few things happen to a job, under a name or not; returns it, and what was journaled of that."""
    owner = await bench.join()
    job = bench.make(argument=b"\x00", name=source.choice(("", "mine")))
    first = job
    if job.name:
        first = changed(job, (await ask(bench, job.id)).revision, ChangeKind.NEW, digest="d1")
    records: list[tuple[str, Any]] = [("add", first)]
    await bench.add(first)
    in_hand: list[Held] = []
    for step in range(1, 5):
        bench.clock.advance(1)
        record = await happen(bench, source, owner, job, bytes([step]), in_hand)
        await getattr(bench, record[0])(record[1])
        records.append(record)
    await put_down(bench)
    return job, records


async def happen(
    bench: StoreBench, source: random.Random, owner: Owner, job: Job, argument: bytes, in_hand: list[Held]
) -> tuple[str, Any]:
    """One of the things that may happen to it now: a method of the bench, and what it is given.

    `in_hand`: what a worker has of it. It may give that back untried first, which no journal tells.
    """
    if in_hand and source.random() < 0.3:
        await put_down(bench)
        in_hand.clear()
    view = await bench.view(job)
    acts = ["edit", "date", "cancel"] if not view.state.is_final else ["retry"]
    acts += ["replace"] if job.name else []
    acts += ["run", "run", "lend"] if view.state in (State.WAITING, State.RETRYING) and not view.eligible_at_ms else []
    acts += ["end", "end"] if in_hand else []
    act = source.choice(acts)
    if act == "lend":
        in_hand[:] = [await bench.claim_one(owner)]
        return "settle", handed(in_hand[0])
    if act in ("run", "end"):
        fate = source.choice((Fate.SUCCEEDED, Fate.DEAD, Fate.FAILED, Fate.RETRY))
        return "settle", outcome(in_hand.pop() if act == "end" else await bench.claim_one(owner), fate)
    if act == "replace":
        given = await ask(bench, "X", argument.hex(), replace=True)
        date = source.choice((0, LATER_MS))
        kind = ChangeKind.REPLACE
        return "add", changed(job, given.revision, kind, digest=argument.hex(), argument=argument, eligible_at_ms=date)
    revision = await bench.store.reserve_change(job.id)
    if act == "cancel":
        return "cancel", cancel_of(job.id, revision if job.name or view.generation else 0)
    if act == "retry":
        return "add", changed(job, revision, ChangeKind.RETRY, argument=argument)
    date = LATER_MS if act == "date" else source.choice((0, view.eligible_at_ms))
    return "add", changed(job, revision, ChangeKind.EDIT, view.generation, argument=argument, eligible_at_ms=date)


async def test_attempts_before_a_retry_are_not_counted_when_it_is_told_again_before_its_job(
    store_bench: StoreBench,
) -> None:
    """Its change comes in a lane of its own, behind outcomes that are noted, and before the job."""
    job, owner = await store_bench.push(), await store_bench.join()
    outcomes = []
    for fate in (Fate.RETRY, Fate.RETRY, Fate.DEAD):
        outcomes.append(outcome(await store_bench.claim_one(owner), fate))
        await store_bench.settle(outcomes[-1])
    retried = changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.RETRY)
    store_bench.wipe()
    store_bench.at = dict.fromkeys(store_bench.at, 0)
    await store_bench.store.look(fresh=True)
    await store_bench.settle(*outcomes)
    await store_bench.add(retried)
    await store_bench.add(job)
    assert (await store_bench.claim_one(await store_bench.join())).attempt == 1


@pytest.mark.parametrize("has_change", [False, True], ids=["its change went", "with its change"])
@pytest.mark.parametrize("first", [Fate.DEAD, Fate.FAILED, "cancel"])
async def test_a_success_of_a_later_content_ends_a_job_that_failed_before(
    store_bench: StoreBench, first: Fate | str, has_change: bool
) -> None:
    """The change that began it anew may be in no journal any more: that job had ended, and the store lost it since."""
    records = ["job", "first", "success", *["change"] * has_change]
    for order in itertools.permutations(records):
        job = store_bench.make(keep_result=True, argument=b"\x01")
        revision = await store_bench.store.reserve_change(job.id) - 5
        again = changed(job, revision, ChangeKind.RETRY, argument=b"\x02")
        success = outcome(Held(again, revision + 1, 1, generation=revision), Fate.SUCCEEDED, result=b"\x07")
        await forget(store_bench)
        for record in order:
            match record:
                case "job":
                    await store_bench.add(job)
                case "change":
                    await store_bench.add(again)
                case "success":
                    await store_bench.settle(success)
                case _ if isinstance(first, str):
                    await store_bench.cancel(cancel_of(job.id, revision - 1))
                case _:
                    await store_bench.settle(outcome(Held(job, revision - 2, 1), first, result=b"\x06"))
        view = await store_bench.view(job)
        assert (view.state, view.result) == (State.SUCCEEDED, b"\x07"), order
        assert view.argument == (b"\x02" if has_change else b"\x01"), order
        if order.index("first") < min(order.index(one) for one in records[2:]):  # else it came too late for the history
            assert [one.fence for one in view.history] == [revision - 2] * (first != "cancel"), order
        stats = await store_bench.store.stats()
        assert (stats.waiting, stats.scheduled, stats.dead) == (0, 0, 0), order
