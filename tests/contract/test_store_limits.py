"""Queues and their limits in the store: on the real server and in memory."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from jqd.store import Claimed, Owner, Release
from jqd.words.constraints import WITHIN
from jqd.words.job import Fate, Held, State, Wanted
from jqd.words.record import Lane
from jqd.words.rules import Rule
from tests.contract.bench import ALL, JOURNAL, StoreBench, ids, outcome

DIGEST = 7
PRIORITIES = 1000  # of one queue, moved at once: limits.lua
PASSED = 500  # rows of what is limited, passed over by one claim: choose.lua
KEYED = f"\x1e{DIGEST}"
"""Behind the jobtype of a queue that no constraint limits, while there is one of that digest."""


def item(name: str, cost: object = 1, key: str = "") -> str:
    return f"\x1e{name}\x1d{cost}\x1d{key}"


async def rule(bench: StoreBench, name: str, revision: int = 1, **body: Any) -> None:
    """Say a constraint; without a body there is none any more."""
    raw = Raw(msgspec.msgpack.encode({"digest": DIGEST, **body} if body else None))
    start = bench.at[Lane.RULES]
    bench.at[Lane.RULES] = start + 100
    await bench.store.apply_rules(JOURNAL, start, start + 100, [Rule("constraint", name, revision, 2**41, raw)])


async def claim(bench: StoreBench, owner: Owner, limit: int = 100, jobtype: str = "mail", **more: Any) -> Claimed:
    return await bench.store.get_waiting_jobs(owner, jobtype, limit, **{**ALL, "version": str(DIGEST), **more})


async def taken(bench: StoreBench, owner: Owner, limit: int = 100) -> list[Held]:
    return await claim(bench, owner, limit)


async def heads(bench: StoreBench, jobtype: str | None = "mail") -> list[tuple[str, int, str, int]]:
    rows = await bench.store.get_waiting_jobtypes([Wanted(jobtype)], 10)
    return [(row.jobtype, row.priority, row.head_id, row.waiting) for row in rows]


async def test_one_claim_fills_from_many_queues_in_the_order_of_priority_and_age(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "r", concurrency=1000)
    jobs = [
        await bench.push(priority=priority, queue=queue)
        for queue, priority in [
            (KEYED + item("r", key="=a"), 1),
            (KEYED, 0),
            (KEYED + item("r", key="=b"), 1),
            (KEYED + item("r", key="=a"), 0),
            (KEYED + item("r", key="=a"), 1),
            (KEYED + item("r", key="=b"), -5),
            (KEYED, 1),
        ]
    ]
    wanted = [job.id for job in sorted(jobs, key=lambda job: (job.priority, job.id))]
    for name in ("mail", None):
        assert await heads(bench, name) == [("mail", -5, wanted[0], 7)]
    first = await taken(bench, owner, 4)
    assert ids(first) == wanted[:4]
    assert await heads(bench) == [("mail", 1, wanted[4], 3)]
    assert first[0].job.queue == KEYED + item("r", key="=b")
    await bench.store.release_jobs(owner, {held.job.id: held.fence for held in first})
    assert ids(await taken(bench, owner)) == wanted
    assert await heads(bench) == await heads(bench, None) == []


async def test_a_queue_waits_apart_and_costs_the_others_nothing(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "two", concurrency=2)
    limited = [await bench.push(priority=-1, queue=KEYED + item("two")) for _ in range(5)]
    free = [await bench.push(queue=KEYED) for _ in range(2)]
    held = await taken(bench, owner)
    assert ids(held) == [limited[0].id, limited[1].id, free[0].id, free[1].id]
    assert await heads(bench) == await heads(bench, None) == []
    assert [(row.jobtype, row.counts.waiting) for row in (await bench.store.list_types())[0] if row.counts.waiting] == [
        ("mail", 3)
    ]
    assert await taken(bench, owner) == []
    for jobtype in (None, "mail"):
        page = await bench.store.list_jobs(State.WAITING, jobtype, None, 50, "")
        assert [view.id for view in page.jobs] == [job.id for job in limited[:1:-1]]
    later = await bench.push(queue=KEYED + item("two"), priority=-9)  # the best of a queue that waits
    assert await heads(bench) == []
    await bench.settle(outcome(held[0], Fate.SUCCEEDED))
    assert [row[2] for row in await heads(bench)] == [later.id]
    assert ids(await taken(bench, owner)) == [later.id]
    assert await taken(bench, owner) == []


@pytest.mark.parametrize("how", ["retried", "released", "reaped", "cancelled"])
async def test_whoever_leaves_a_hand_makes_room(store_bench: StoreBench, how: str) -> None:
    bench, owner, other = store_bench, await store_bench.join(), await store_bench.join("two")
    await rule(bench, "one", concurrency=1)
    jobs = [await bench.push(queue=KEYED + item("one")) for _ in range(3)]
    (held,) = await taken(bench, owner)
    assert await taken(bench, other) == []
    if how == "retried":
        await bench.settle(outcome(held, Fate.RETRY, delay_ms=60_000))
    elif how == "released":
        await bench.store.release_jobs(owner, {held.job.id: held.fence}, Release.RETRY, 60_000)
    elif how == "cancelled":
        await bench.cancel(held.job.id)
        await bench.store.release_jobs(owner, {held.job.id: held.fence})
    else:
        member = (await bench.members(other))["one"]
        while await bench.store.reap("one", member, 3):
            pass
    (then,) = await taken(bench, other)
    assert then.job.id == jobs[0 if how == "reaped" else 1].id
    assert await taken(bench, other) == []


@pytest.mark.parametrize("together", [True, False])
async def test_an_attempt_that_goes_on_after_an_earlier_one_succeeded_keeps_its_place(
    store_bench: StoreBench, together: bool
) -> None:
    """Its daemon was away, another runs the job once more, and is not done when the store is told of the success."""
    bench, owner, other = store_bench, await store_bench.join(), await store_bench.join("two")
    await rule(bench, "one", concurrency=1)
    job, then = [await bench.push(queue=KEYED + item("one")) for _ in range(2)]
    (first,) = await taken(bench, owner)
    await bench.store.release_sysid(owner)
    bench.clock.advance(1)
    (second,) = await taken(bench, other)
    assert first.job.id == second.job.id == job.id
    ends = [outcome(first, Fate.SUCCEEDED), outcome(second, Fate.RETRY)]
    if not together:
        assert await bench.settle(ends.pop(0)) == []
        assert await taken(bench, other) == [], "the job has ended, and is at work"
    assert await bench.settle(*ends) == [job.id]
    assert ids(await taken(bench, other)) == [then.id]


@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate": {"limit": 1, "per_s": 60.0}}], ids=["count", "rate"])
async def test_a_job_tells_by_what_it_is_limited(store_bench: StoreBench, limit: dict[str, Any]) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "one", **limit)
    first, then = [await bench.push(queue=KEYED + item("one", key="ann")) for _ in range(2)]
    assert ids(await taken(bench, owner)) == [first.id]
    assert await taken(bench, owner) == []
    told = await bench.store.queue_place(then.id)
    assert told is not None
    assert (told.limited_by, told.ahead, told.better_types) == (f"one{WITHIN}ann", 0, 0)
    assert told.holds == ((first.id,) if "concurrency" in limit else ())
    wait_ms = told.until_ms - bench.clock.wall_ms()
    assert told.until_ms == 0 if "concurrency" in limit else 0 < wait_ms <= 60_000


async def test_a_rate_holds_in_every_sliding_window(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "rate", rate={"limit": 3, "per_s": 1.0})
    for _ in range(20):
        await bench.push(queue=KEYED + item("rate"))
    starts: list[float] = []
    for _ in range(60):
        await bench.store.promote(10)
        starts += [bench.clock.wall_ms()] * len(await taken(bench, owner, 2))
        bench.clock.advance(0.07)
    assert len(starts) >= 10
    assert all(late - early >= 1000 for early, late in zip(starts, starts[3:], strict=False))


async def test_a_burst_comes_on_top_once_and_comes_back_at_the_rate(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "rate", rate={"limit": 2, "per_s": 1.0, "burst": 4})
    for _ in range(40):
        await bench.push(queue=KEYED + item("rate"))
    counts = []
    for _ in range(8):
        await bench.store.promote(10)
        counts.append(len(await taken(bench, owner)))
        bench.clock.advance(1.001)
    assert counts == [6, 2, 2, 2, 2, 2, 2, 2]
    bench.clock.advance(10)
    await bench.store.promote(10)
    assert len(await taken(bench, owner)) == 6


async def test_costs_and_several_constraints_all_must_allow(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "rate", rate={"limit": 10, "per_s": 60.0}, digest=3)
    await rule(bench, "hand", concurrency=4, digest=4)
    dear = KEYED + item("hand") + item("rate", 4)
    cheap = KEYED + item("rate", 1)
    for _ in range(4):
        await bench.push(queue=dear)
    assert len(await taken(bench, owner)) == 2
    for _ in range(5):
        await bench.push(queue=cheap)
    assert len(await taken(bench, owner)) == 2, "8 of 10 were spent"
    bench.clock.advance(60)
    await bench.store.promote(10)
    held = await taken(bench, owner)
    assert [one.job.queue == dear for one in held] == [True, True, False, False]


async def test_a_pause_holds_until_its_date_or_until_it_is_taken_back(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    until_ms = bench.clock.wall_ms() + 5000
    await rule(bench, "pause", until_ms=until_ms)
    job = await bench.push(queue=KEYED + item("pause"))
    assert await taken(bench, owner) == []
    assert (await bench.store.promote(10)).next_due_ms == 5000
    bench.clock.advance(5.001)
    await bench.store.promote(10)
    (held,) = await taken(bench, owner)
    await rule(bench, "pause", 2, until_ms=2**53)
    await bench.store.release_jobs(owner, {held.job.id: held.fence})
    assert await taken(bench, owner) == []
    await rule(bench, "pause", 3, concurrency=9)
    await bench.store.promote(10)
    assert ids(await taken(bench, owner)) == [job.id]


async def test_who_matches_by_other_constraints_gets_nothing(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    job = await bench.push()
    await rule(bench, "r", concurrency=1)
    told = await claim(bench, owner, version="")
    assert (told, told.outdated) == ([], True)
    (held,) = await taken(bench, owner)  # of a queue that was found before: not checked
    assert held.job.queue == ""
    await bench.store.requeue(owner, [(held, KEYED + item("r"))])
    again = await taken(bench, owner)
    assert [(one.job.id, one.job.queue, one.job.argument) for one in again] == [
        (job.id, KEYED + item("r"), job.argument)
    ]
    assert (await bench.view(job)).attempts == 1
    await bench.push(queue=KEYED + item("r"))
    assert await taken(bench, owner) == []
    await rule(bench, "r", 2)  # deleted: what waits for it is let go, and checked anew
    await bench.store.promote(10)
    assert len(await claim(bench, owner, version="")) == 1


async def test_what_a_matcher_failed_on_waits_until_it_is_mended(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "r", concurrency=5)
    await bench.push(queue=KEYED + item("r", "", "!"))
    for _ in range(3):
        assert await taken(bench, owner) == []
        bench.clock.advance(100)
        await bench.store.promote(10)
    await rule(bench, "r", 2, concurrency=5, digest=8)
    await bench.store.promote(10)
    assert len(await claim(bench, owner, version="8")) == 1


async def test_holds_count_again_after_the_store_forgot_them(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    here, early = await bench.push(queue=KEYED + item("r")), bench.make(queue=KEYED + item("r"))
    waits = await bench.push(queue=KEYED + item("r"))
    await rule(bench, "r", concurrency=2)
    assert await bench.store.reassert(owner, {here.id: 5, early.id: 6}) == []
    assert await taken(bench, owner) == [], "one in a hand has not come: nobody knows its limits"
    await bench.add(early)
    assert await taken(bench, owner) == []
    await bench.store.release_jobs(owner, {early.id: 6}, Release.RETRY, 60_000)
    assert ids(await taken(bench, owner)) == [waits.id]


@pytest.mark.parametrize("again", [(), (20.0,), (5.0,), (3_600.0, 86_400.0)], ids=str)
async def test_what_was_spent_before_the_store_forgot_counts_as_all(
    store_bench: StoreBench, again: tuple[float, ...]
) -> None:
    """Also where the rate is said once more after that, as its numbers are changed: for its window of then, or less."""
    bench, owner = store_bench, await store_bench.join()
    first_ms, body = bench.clock.wall_ms() - 60_000, {"digest": DIGEST, "rate": {"limit": 9, "per_s": 20.0}}
    said = Rule("constraint", "r", 1, first_ms, Raw(msgspec.msgpack.encode(body)))
    await bench.store.apply_rules(JOURNAL, 0, 100, [said])
    await bench.push(queue=KEYED + item("r"))
    identity = (await bench.store.look(fresh=False)).identity
    await bench.store.new_life(identity)
    await bench.store.look(fresh=False)
    owner = await bench.join()
    for number, per_s in enumerate(again, 1):
        raw = Raw(msgspec.msgpack.encode(body | {"rated_ms": first_ms, "rate": {"limit": 9, "per_s": per_s}}))
        said = Rule("constraint", "r", 1 + number, bench.clock.wall_ms() + 1, raw)
        await bench.store.apply_rules(JOURNAL, 100 * number, 100 * number + 100, [said])
    assert await taken(bench, owner) == []
    bench.clock.advance(min((20.0, *again)) + 0.1)
    await bench.store.promote(10)
    assert len(await taken(bench, owner)) == 1


async def test_an_emptied_store_that_is_told_what_was_said_one_after_the_other_goes_by_the_last(
    store_bench: StoreBench,
) -> None:
    """The rate had a window of 20 s long ago, and one of an hour when all was lost."""
    bench = store_bench
    first_ms = bench.clock.wall_ms() - 60_000
    bench.wipe()
    await bench.store.look(fresh=False)
    bench.at = dict.fromkeys(Lane, 0)
    owner = await bench.join()
    for number, per_s in enumerate((20.0, 3_600.0)):
        body = {"digest": DIGEST, "rate": {"limit": 9, "per_s": per_s}, "rated_ms": first_ms}
        said = Rule("constraint", "r", 1 + number, first_ms + number, Raw(msgspec.msgpack.encode(body)))
        await bench.store.apply_rules(JOURNAL, 100 * number, 100 * number + 100, [said])
    await bench.push(queue=KEYED + item("r"))
    bench.clock.advance(20.1)
    await bench.store.promote(10)
    assert await taken(bench, owner) == []


async def test_a_long_queue_in_pages_waits_as_a_whole(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "r", rate={"limit": 150, "per_s": 1.0})
    await bench.add(*(bench.make(queue=KEYED + item("r")) for _ in range(500)))
    assert len(await taken(bench, owner, 100)) == 100
    assert len(await taken(bench, owner, 100)) == 50
    assert await heads(bench) == []
    assert (await bench.store.stats()).waiting == 350
    assert [row.counts.waiting for row in (await bench.store.list_types())[0] if row.counts.waiting] == [350]
    bench.clock.advance(1.001)
    await bench.store.promote(10)
    assert await heads(bench) != []
    assert len(await taken(bench, owner, 200)) == 150


async def test_many_small_queues_fill_one_claim(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "r", concurrency=1)
    jobs = [bench.make(queue=KEYED + item("r", key=f"={n % 150}")) for n in range(300)]
    await bench.add(*jobs)
    first = await taken(bench, owner, 200)
    assert ids(first) == [job.id for job in jobs[:150]], "one of each key"
    assert await taken(bench, owner, 200) == []
    await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in first))
    assert ids(await taken(bench, owner, 200)) == [job.id for job in jobs[150:]]


async def test_jobtypes_that_all_wait_for_a_constraint_hide_no_other(store_bench: StoreBench) -> None:
    """From who takes any jobtype but one: more of them than are asked for, and none worse."""
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "stop", until_ms=2**52)
    limited = [f"a{number}" for number in range(4)]
    for jobtype in limited:
        await bench.push(jobtype=jobtype, queue=KEYED + item("stop"))
    await bench.push(jobtype="free", queue=KEYED)
    for jobtype in limited:
        assert await claim(bench, owner, jobtype=jobtype) == []
    rows = await bench.store.get_waiting_jobtypes([Wanted(None, besides=frozenset({"paused"}))], 2)
    assert [row.jobtype for row in rows] == ["free"]


async def test_a_queue_of_more_priorities_than_are_moved_at_once_is_let_go_whole(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    assert bench.recount
    bench.recount.has_many_priorities = True
    await rule(bench, "stop", until_ms=2**52)
    pushed = [bench.make(queue=KEYED + item("stop"), priority=priority) for priority in range(PRIORITIES + 3)]
    for at in range(0, len(pushed), 300):
        await bench.add(*pushed[at : at + 300])
    assert [await taken(bench, owner) for _ in range(6)] == [[]] * 6, "and those behind the first are met one by one"
    await rule(bench, "stop", 2)
    await bench.store.promote(500)
    await bench.store.promote(500)
    held = [one for _ in range(6) for one in await claim(bench, owner, 500, version="")]
    assert ids(held) == [job.id for job in pushed]


async def test_a_claim_passes_over_so_many_rows_of_what_is_limited_and_the_next_one_over_the_rest(
    store_bench: StoreBench,
) -> None:
    bench, owner = store_bench, await store_bench.join()
    assert bench.recount
    bench.recount.has_many_priorities = True
    await rule(bench, "stop", until_ms=2**52)
    limited = [
        bench.make(queue=KEYED + item("stop", key=key), priority=priority)
        for priority in range(PASSED // 2 + 10)
        for key in ("=a", "=b")
    ]
    await bench.add(*limited[:300])
    await bench.add(*limited[300:])
    free = await bench.push(queue=KEYED, priority=PRIORITIES)
    first = await claim(bench, owner)
    assert (first, first.more) == ([], True), "as long as it would have been from 100 queues of 1,000 priorities"
    assert ids(await claim(bench, owner)) == [free.id]
    await rule(bench, "stop", 2)
    await bench.store.promote(500)
    held = [one for _ in range(2) for one in await claim(bench, owner, 500, version="")]
    assert ids(held) == [job.id for job in limited]


async def test_after_a_wipe_who_is_in_a_hand_counts_also_when_the_rule_comes_after_the_job(
    store_bench: StoreBench,
) -> None:
    bench, owner = store_bench, await store_bench.join()
    job = bench.make(queue=KEYED + item("one"))
    await bench.store.reassert(owner, {job.id: 5})
    await bench.add(job)
    await rule(bench, "one", concurrency=1)
    for _ in range(2):
        await bench.push(queue=KEYED + item("one"))
    assert await taken(bench, owner) == []
    await bench.settle(outcome(Held(job, 5, 1), Fate.SUCCEEDED))
    assert len(await taken(bench, owner)) == 1


async def test_after_a_wipe_a_hold_that_ends_before_others_wait_is_counted_no_more(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "two", concurrency=2)
    job = bench.make(queue=KEYED + item("two"))
    await bench.store.reassert(owner, {job.id: 5})
    await bench.add(job)
    await bench.settle(outcome(Held(job, 5, 1), Fate.SUCCEEDED))
    for _ in range(3):
        await bench.push(queue=KEYED + item("two"))
    assert len(await taken(bench, owner)) == 2


async def test_a_hold_that_nobody_has_is_found_however_many_come_and_go(store_bench: StoreBench) -> None:
    """Whatever forgot it: it takes a place for a minute or two, and not for ever."""
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "r", concurrency=2)
    assert bench.recount
    bench.recount.hold("r\x1d", "nobody")
    await bench.add(*(bench.make(queue=KEYED + item("r")) for _ in range(150)))
    together = list[int]()
    for _ in range(100):
        held = await taken(bench, owner)
        together.append(len(held))
        await taken(bench, owner)  # and finds no place: the others wait
        bench.clock.advance(1)
        await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
        await bench.store.promote(10)
    assert together[:50] == [1] * 50
    assert together[-1] == 2, "it was found"
