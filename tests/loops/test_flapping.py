"""Workers that want a pause again and again, at two daemons of one store: they stop nobody else's jobs."""

import random
from collections import Counter
from typing import Any, ClassVar

import trio

from jqd.domain.job import Job
from jqd.loops.settings import PUBLISH_S
from jqd.runner import WorkerSpec
from jqd.service import leases
from jqd.service import workers as service_workers
from jqd.store import Claimed
from jqd.testing.store import FakeStore
from tests.loops.house import TrioClock, until
from tests.loops.test_settings import Place

FLAPPING = 100
JOBS = 40
CALL_S = 0.002


class Counted(FakeStore):
    """Whose calls take a moment; claims of the healthy jobtype are counted, and views that were said."""

    counts: ClassVar[Counter[str]] = Counter()

    async def get_waiting_jobs(self, *args: Any, **named: Any) -> Claimed:
        await trio.sleep(CALL_S)
        claimed = await super().get_waiting_jobs(*args, **named)
        self.counts["unheard" if claimed.stale else "claims"] += 1
        return claimed

    async def follow_settings(self, *args: Any, **named: Any) -> Any:
        self.counts["views"] += len(args[3])
        await trio.sleep(CALL_S)
        return await super().follow_settings(*args, **named)


async def flap(daemon: Any, source: random.Random) -> None:
    """Each moment another worker refuses what it got, and that goes back."""
    follow, workers = daemon.partitions[0].settings_sync, [w for w in daemon.workers.list() if w.url]
    while True:
        for _ in range(5):
            breaker = daemon.capacity.breaker(source.choice(workers))
            breaker.back_off(trio.current_time(), trio.current_time(), 1.0)
        refused = daemon.worker_views.look().revision
        await follow.publish_view()
        assert follow._published >= refused, "jobs would go back before all know who refused them"
        await trio.sleep(0.01)


async def healthy(place: Place, began_s: dict[str, float]) -> None:
    while True:
        lease = await leases.pull(place.daemon.parts.services, "well", 1, 10.0)
        began_s |= {held.job.id: trio.current_time() for held in lease.jobs}


async def test_a_hundred_workers_that_flap_hold_up_no_other_jobtype(autojump_clock: None) -> None:
    source, clock = random.Random(1), TrioClock()
    store = Counted(clock)
    places = [Place(number, store, clock, source) for number in range(2)]
    began_s: dict[str, float] = {}
    pushed_s: dict[str, float] = {}
    async with trio.open_nursery() as nursery:
        for place in places:
            await nursery.start(place.live)
        services = places[0].daemon.parts.services
        for number in range(FLAPPING):
            card = WorkerSpec(
                name=f"bad{number}", id=f"bad{number}", url=f"http://127.0.0.1:{number + 1}/", jobs=("bad",), max_jobs=4
            )
            await service_workers.register(services, card, peer=None)
        await service_workers.register(
            services, WorkerSpec(name="well", id="well", jobs=("well",), max_jobs=100), peer=None
        )
        await trio.sleep(2)
        for place in places:
            await nursery.start(place.daemon.dispatch.run)
        nursery.start_soon(flap, places[0].daemon, source)
        nursery.start_soon(healthy, places[1], began_s)
        await trio.sleep(1)
        store.counts.clear()
        start_s = trio.current_time()
        for number in range(JOBS):
            job_id = f"{number}"
            await store.apply_jobs("ab" * 16, number, number + 1, [Job(job_id, "well")])
            pushed_s[job_id] = trio.current_time()
            await trio.sleep(0.05)
        await until(lambda: len(began_s) == JOBS)
        took_s = trio.current_time() - start_s
        nursery.cancel_scope.cancel()
    assert max(began_s[job_id] - pushed_s[job_id] for job_id in pushed_s) < PUBLISH_S
    assert store.counts["views"] <= took_s / PUBLISH_S + 1, "each stops the claims of all others for a moment"
    assert store.counts["unheard"] <= store.counts["views"], "one question for each, and it is known"


async def test_a_pause_is_dated_by_the_clock_that_the_store_has_when_the_job_goes_back(autojump_clock: None) -> None:
    """The clock of the store was set since it was asked last: the first date is over for whoever knows that clock."""
    source, clock, of_store = random.Random(1), TrioClock(), TrioClock()
    store = FakeStore(of_store)
    one, other = (Place(number, store, clock, source) for number in range(2))
    async with trio.open_nursery() as nursery:
        for place in (one, other):
            await nursery.start(place.live)
        spec = WorkerSpec(name="w", id="w", url="http://127.0.0.1:1/", jobs=("a",), max_jobs=4)
        worker = await service_workers.register(one.daemon.parts.services, spec, peer=None)
        await trio.sleep(2)
        one.daemon.capacity.breaker(worker).back_off(trio.current_time(), trio.current_time(), 9.0)
        of_store.advance(7_200)
        await one.daemon.partitions[0].settings_sync.publish_view()
        await other.daemon.partitions[0].settings_sync.refresh()
        (rest,) = other.daemon.capacity.pauses(one.daemon.control.sysid).values()
        assert 8.9 < rest.until_s - trio.current_time() < 9.1
        nursery.cancel_scope.cancel()
