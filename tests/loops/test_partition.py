"""A daemon over two partitions of a store, one of which may be away: what it does for each, what it says of both."""

import errno
import io
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import trio

from jqd.chaining.flows import LOOK_S
from jqd.control import MANY_PARENTS, QUOTA_WAIT_S, SHELVES_SHOWN_MAX
from jqd.cron import service as schedules
from jqd.cron.schedules import Plan, Schedules, Template
from jqd.domain.errors import JournalRefused
from jqd.domain.followers import encode_as_outbox_entry, items_of
from jqd.domain.job import Fate, Held, Outcome
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.domain.lease import LeaseConfig, Peer
from jqd.domain.record import Lane, encode_outcomes, job_ids
from jqd.domain.tenant import annotate
from jqd.journal import Journal
from jqd.loops.membership_state import Known, Through
from jqd.loops.retention.retention import EVERY_S
from jqd.store import KeptJob, Member, Owner, Shelf
from jqd.tenants.quotas import Quota, Quotas
from tests.harness.files import MemoryFiles
from tests.loops.house import until
from tests.loops.pairs import BOTH, HERE, THERE, Pair, pair

SEGMENT_BYTES = 4_000


async def test_each_partition_gets_its_own_of_a_mixed_frame(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        ids = await here.push(HERE, THERE, HERE, HERE, THERE)
        await here.cancel(ids[0], f"{ids[1]}@7")
        assert [partition_of(job_id, 2) for job_id in ids] == [0, 1, 0, 0, 1]
        for lane in (Lane.JOBS, Lane.CANCELS):
            assert await here.control.wait_caught_up(lane, here.journal.end, 5, BOTH)
        assert [(s.waiting, s.ended) for s in [await store.stats() for store in here.stores]] == [(2, 1), (1, 1)]
        nursery.cancel_scope.cancel()


async def test_followers_are_judged_by_the_settings_of_now(autojump_clock: None) -> None:
    async with pair() as here:
        follows = msgspec.msgpack.encode([{"name": "mail", "argument": "x" * 100}])
        shared, config = here.daemon.partitions[0]._shared, here.daemon.config
        assert not shared.wrong(follows, ())
        here.daemon.change(replace(config, api=replace(config.api, job_bytes_max=50)))
        assert "50" in shared.wrong(follows, ())


async def test_a_frame_that_ends_with_others_jobs_is_applied_all_the_same(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await here.push(*[HERE] * 500, *[THERE] * 3)  # a whole chunk, and nothing more for the first
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, BOTH)
        nursery.cancel_scope.cancel()


async def test_what_concerns_one_partition_waits_for_no_other(autojump_clock: None, logged: io.StringIO) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        here.stores[1].away = "cable"
        await here.push(HERE, THERE)
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 1, {0})
        assert not await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 1, {1})
        await trio.sleep(LeaseConfig().lease_s)
        assert here.control.run_ready() is None, "some jobs are run"
        events = map(json.loads, logged.getvalue().splitlines())
        said = [line for line in events if line["event"] == "heartbeat.store_away"]
        assert [line["partition"] for line in said] == [1]
        (warning,) = here.control.warnings()
        assert warning.startswith("the jobs of partition 1 of the store wait: ")
        rows: Any = here.control.stats()["partitions"]
        assert [(row["partition"], row["not_ready_reason"] is None) for row in rows] == [(0, True), (1, False)]
        assert [row["lanes"]["jobs"]["applied"] for row in rows] == [here.journal.end, 0]
        lanes: Any = here.control.stats()["lanes"]
        assert lanes["jobs"]["applied"] == 0, "what all have"
        here.stores[0].away = "the other one, too"
        await trio.sleep(LeaseConfig().lease_s)
        assert here.control.run_ready() is not None
        assert here.control.warnings() == []
        here.stores[0].away = here.stores[1].away = None
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 60, BOTH)
        nursery.cancel_scope.cancel()


async def test_no_partition_runs_jobs_whose_ends_the_disk_would_not_take(autojump_clock: None) -> None:
    """`/readyz/run` stayed green, and `jqd status` said "runs jobs"."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        assert here.control.run_ready() is None
        files = here.journal._files
        assert isinstance(files, MemoryFiles)
        files.fail = lambda call, _: errno.EROFS if call in ("create", "write") else None
        with pytest.raises(JournalRefused):
            await here.push(HERE)
        assert "the journal takes no outcomes, so no job is started" in str(here.control.run_ready())
        assert "EROFS" in str(here.control.run_ready())
        assert [each.rests for each in here.daemon.partitions] == [True, True], "others get its share of the workers"
        for each in here.daemon.partitions:
            each.claims.is_claiming = True
        here.daemon.worker_views.look()
        assert here.daemon.worker_views.begins(here.control.sysid, ""), "not while a job may run"
        starting = [each.recovery._starts(here.control.sysid) for each in here.daemon.partitions]
        assert starting == [False, False], "others leave it nothing"
        for each in here.daemon.partitions:
            each.claims.is_claiming = False
        files.fail = lambda call, number: None
        await until(lambda: here.control.run_ready() is None)
        here.daemon.worker_views.look()
        assert [each.rests for each in here.daemon.partitions] == [False, False]
        assert [each.recovery._starts(here.control.sysid) for each in here.daemon.partitions] == [True, True]
        nursery.cancel_scope.cancel()


async def test_nobody_waits_until_a_partition_that_does_not_answer_has_what_was_pushed(autojump_clock: None) -> None:
    """A page of a group took two seconds to say that the store is away."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await here.push(HERE, THERE)
        assert await here.control.wait_ingested(5)
        here.stores[1].away = "cable"
        await trio.sleep(2 * LOOK_S)
        began_s = trio.current_time()
        assert not await here.control.wait_ingested(5)
        assert trio.current_time() - began_s < LOOK_S
        await here.push(HERE)
        assert not await here.control.wait_ingested(5)
        assert (await here.stores[0].stats()).waiting == 2, "what the other has is waited for"
        here.stores[1].away = None
        await trio.sleep(LeaseConfig().lease_s)
        assert await here.control.wait_ingested(5)
        nursery.cancel_scope.cancel()


async def test_what_one_partition_knows_of_a_daemon_counts_while_another_is_away(autojump_clock: None) -> None:
    async with pair() as here:
        for known in (True, False):
            for each, lives in zip(here.control._partitions, (None, known), strict=True):
                peer = Peer("d2", 1, False, lives, True, 13.0)
                each.heartbeat.peers = lambda peer=peer: [peer]  # type: ignore[method-assign, misc]
            assert [peer.living for peer in here.control.daemons()] == [known]


async def test_a_store_that_is_back_is_not_said_to_be_away_while_a_lease_is_waited_for(autojump_clock: None) -> None:
    """The loops that pause meanwhile kept the error of their last try, and it was told for the whole lease."""
    async with pair() as here:
        first, _ = here.control._partitions
        known = Known("another life", here.daemon.parts.services.clock.mono_s(), False, ())
        first.membership.state = Through(known, Owner("d1", 1))
        first.membership._trust.renewed(here.daemon.parts.services.clock.boot_s())
        for loop in (first.claims, first.worker_timeouts):
            loop.backoff.reason = "the store does not answer: Error 111"
        assert str(first.not_ready_reason).startswith("the store is back")
        first.heartbeat.backoff.reason = "the store does not answer: Error 112"
        assert first.not_ready_reason == "the store does not answer: Error 112", "it tries all the time"
        first.heartbeat.backoff.reason = None
        first.membership.state = Through(known._replace(settled=True), Owner("d1", 1))
        assert first.not_ready_reason == "the store does not answer: Error 111"


async def test_what_waits_for_a_quota_for_a_minute_is_said(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        here.daemon.parts.services.feature(Quotas).known["acme"] = Quota(dead=0)
        ids = [job_id for names in ((HERE, THERE), (HERE,)) for job_id in await here.push(*names)]
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, BOTH)
        follows = encode_as_outbox_entry([{"name": "a"}], "p", annotate("acme", "a"), 0, 0)
        ended = [Outcome(job_id, 1, Fate.SUCCEEDED, "a", 0, 1, follows=follows) for job_id in ids]
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, len(ended), encode_outcomes(ended)))
        await until(lambda: here.control.waiting_parents("acme") == len(ids))
        assert (here.control.stats()["shelves"], here.control.warnings()) == ({"tenants": 1, "jobs": len(ids)}, [])
        await trio.sleep(QUOTA_WAIT_S + 1)
        (warning,) = here.control.warnings()
        assert warning.startswith(f"what follows {len(ids)} jobs of tenant 'acme' waits since ")
        assert (here.control.quota_wait_warning("acme"), here.control.quota_wait_warning("other")) == (warning, None)
        here.daemon.parts.services.feature(Quotas).known.clear()
        await until(lambda: not here.control.warnings() and not here.control.waiting_parents("acme"))
        nursery.cancel_scope.cancel()


async def test_much_that_waits_for_a_quota_is_said_at_once_and_before_what_waits_longer(autojump_clock: None) -> None:
    async with pair() as here:
        now_ms = here.daemon.parts.services.clock.wall_ms()
        one, two = (each.outbox for each in here.control._partitions)
        one.shelves = {f"t{number:02}": Shelf(1, now_ms - 70_000 - number) for number in range(SHELVES_SHOWN_MAX)}
        one.shelves["acme"] = two.shelves["acme"] = Shelf(MANY_PARENTS // 2 - 1, now_ms)
        assert here.control.quota_wait_warning("acme") is None
        two.shelves["acme"] = Shelf(MANY_PARENTS // 2 + 1, now_ms)
        first, *others, more = here.control.warnings()
        assert first == here.control.quota_wait_warning("acme")
        assert "10000 jobs of tenant 'acme'" in first
        assert "raise the quota, or pause the jobtypes" in first
        assert (len(others), more) == (SHELVES_SHOWN_MAX - 1, "and that of 1 more tenants; `jqd quotas` shows them")
        assert "'t09'" in others[0], "the longest"


async def test_an_outbox_that_is_stuck_and_what_cannot_be_read_there_are_said(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        (job_id,) = await here.push(HERE)
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, BOTH)
        odd = msgspec.msgpack.encode(("", [{"name": "a", "job_id": "x", "odd": 1}]))
        ended = Outcome(job_id, 1, Fate.SUCCEEDED, "a", 0, 1, follows=odd)
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([ended])))
        await until(lambda: bool(here.control.warnings()))
        (warning,) = here.control.warnings()
        assert warning.startswith(f"jobs that follow {job_id} and 0 others wait: they cannot be read")
        assert len((await here.stores[0].get_outbox(9, 1 << 20)).entries) == 1
        assert here.control.run_ready() is None, "jobs are run all the same"
        here.daemon.partitions[1].outbox.backoff.reason = "outbox: the disk is full"
        assert "the jobs of partition 1 of the store wait: outbox: the disk is full" in here.control.warnings()
        nursery.cancel_scope.cancel()


async def test_of_an_idle_daemon_all_is_applied(autojump_clock: None) -> None:
    """A partition stands where its last record was, and there are none of its own behind that."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await here.push(HERE)
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, BOTH)
        told: Any = here.control.stats()
        for row in (told, *told["partitions"]):
            assert {lane["applied"] for lane in row["lanes"].values()} == {here.journal.end}
        nursery.cancel_scope.cancel()


async def test_a_neighbour_is_shown_as_its_worst_partition_has_it(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        others = [store.another_client() for store in here.stores]
        for number, other in enumerate(others):
            await other.look(fresh=False)
            await other.reserve_sysid("neighbour", True, through=number == 0)
        await until(lambda: len(here.control.daemons()) == 2)
        ours, neighbour = here.control.daemons()
        assert (ours.is_this, ours.through, neighbour.through) == (True, True, False)
        assert not here.control.settled({1})
        assert here.control.settled({0})
        nursery.cancel_scope.cancel()


async def test_what_a_daemon_holds_is_the_sum_or_unknown(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        owners = [partition.membership.owner for partition in here.daemon.partitions]
        await here.push(HERE, THERE, THERE)
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, BOTH)
        for store, owner, name in zip(here.stores, owners, (HERE, THERE), strict=True):
            assert owner is not None
            held = await store.get_waiting_jobs(owner, name, 9, priority_min=-9, priority_max=9, bytes_max=1 << 20)
            assert held
        assert await here.control.in_flight(here.control.sysid) == 3
        assert await here.control.in_flight("nobody") == 0
        here.stores[1].away = "cable"
        assert await here.control.in_flight(here.control.sysid) is None
        here.stores[1].away = None
        await here.stores[0].another_client().reap(here.control.sysid, await _member(here), 9)
        assert await here.control.in_flight(here.control.sysid) == 2, "its epoch of the first was burnt"
        nursery.cancel_scope.cancel()


async def _claimed(here: Pair, number: int) -> list[Held]:
    owner = here.daemon.partitions[number].membership.owner
    assert owner is not None
    wanted: dict[str, Any] = {"priority_min": -9, "priority_max": 9, "bytes_max": 1 << 20}
    return list(await here.stores[number].get_waiting_jobs(owner, HERE, 9, **wanted))


async def _member(here: Pair) -> Member:
    owner = here.daemon.partitions[0].membership.owner
    assert owner is not None
    return (await here.stores[0].renew_sysid(owner, through=True)).members[owner.sysid]


@pytest.mark.parametrize("away", BOTH)
async def test_a_partition_hears_since_when_we_keep_jobs_while_the_other_is_away(
    autojump_clock: None, away: int
) -> None:
    """A journal of which it hears nothing for a month may be forgotten there, with all that was applied of it."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await nursery.start(here.daemon.retention.run)
        here.stores[away].away = "cable"
        there, told_s = here.stores[1 - away], []
        tell = there.save_kept

        async def hear(*args: Any) -> KeptJob:
            told_s.append(trio.current_time())
            return await tell(*args)

        there.save_kept = hear  # type: ignore[method-assign,assignment]
        for _ in range(3):
            await trio.sleep(12 * EVERY_S)
            assert told_s, "for a minute"
            told_s.clear()
        nursery.cancel_scope.cancel()


async def test_a_segment_goes_when_no_partition_needs_it(autojump_clock: None) -> None:
    limits = {"segment_bytes": SEGMENT_BYTES, "retention_s": 0, "retention_bytes": 0, "commit_bytes_max": 1_000}
    async with pair(**limits) as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await nursery.start(here.daemon.retention.run)
        here.stores[1].away = "cable"
        ids = [job_id for _ in range(30) for job_id in await here.push(HERE, THERE)]
        keep = {ids[2], ids[5]}
        assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, {0})
        await here.cancel(*(job_id for job_id in ids if job_id not in keep))
        assert await here.control.wait_caught_up(Lane.CANCELS, here.journal.end, 5, {0})
        await trio.sleep(4 * EVERY_S)
        assert here.journal.start == 0, "the other one has nothing of it yet"
        here.stores[1].away = None
        await until(lambda: here.journal.start > 0)
        found = await _journaled(here.journal)
        assert keep <= found < set(ids), "of both partitions what has not ended was carried on"
        nursery.cancel_scope.cancel()


async def test_what_followed_a_job_before_what_is_retired_is_not_pushed_again_after_a_wipe(
    autojump_clock: None,
) -> None:
    """A store that forgot is told the outcomes before `retired`. What followed them was pushed, and may have ended."""
    async with pair(segment_age_s=15, retention_s=0, retention_bytes=0) as here, trio.open_nursery() as nursery:
        await here.start(nursery)

        async def run(*names: str) -> None:
            """What waits runs, and these follow it."""
            assert await here.control.wait_caught_up(Lane.JOBS, here.journal.end, 5, BOTH)
            held = [one for number in BOTH for one in await _claimed(here, number)]
            assert len(held) == 1
            jobs, job = msgspec.msgpack.encode([{"name": name} for name in names]), held[0].job
            follows = encode_as_outbox_entry(items_of(jobs), job.id, job.jobtype, 0, 0) if names else b""
            ended = Outcome(job.id, held[0].fence, Fate.SUCCEEDED, job.jobtype, 0, 1, follows=follows)
            await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([ended])))
            await trio.sleep(1)

        await here.push(HERE)
        await run(HERE)
        await run()
        await nursery.start(here.daemon.retention.run)
        await trio.sleep(20)
        assert here.journal.retired == here.journal.end
        assert here.journal.start == 0, "the open segment stays"
        for store in here.stores:
            store.wipe()
        await trio.sleep(20)
        assert here.journal.written == here.journal.retired, "it was pushed again"
        nursery.cancel_scope.cancel()


async def _journaled(journal: Journal, lane: Lane = Lane.JOBS) -> set[str]:
    found: set[str] = set()
    async for slices in journal.read_range(lane, journal.start, journal.end):
        for piece in slices:
            found.update(job_ids(piece.body))
    return found


async def test_a_date_waits_for_the_partition_in_which_its_job_lives(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await nursery.start(here.daemon.cron.run)
        services = here.daemon.parts.services
        plan = Plan(job=Template(name="n"), every=10.0, missed="all", overlap="skip")
        for name in "abcdef":
            await schedules.put(services, name, plan)
        here.stores[1].away = "cable"
        await trio.sleep(35)
        now_ms = services.feature(Schedules).now_ms()
        late = [
            one
            for one in services.feature(Schedules).known.values()
            if one.next_ms is not None and one.next_ms <= now_ms
        ]
        assert {partition_of_name(one.job_id(one.next_ms or 0), 2) for one in late} == {1}, late
        assert all("cable" in one.trouble or "did not say in time" in one.trouble for one in late), late
        here.stores[1].away = None
        await trio.sleep(20)
        assert {one.fired.fired + one.fired.skipped for one in services.feature(Schedules).known.values()} == {5}
        nursery.cancel_scope.cancel()
