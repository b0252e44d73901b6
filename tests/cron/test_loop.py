"""Schedules at real daemons over one store: each date is fired once, whatever dies, and no sooner than it may be.

The steps between two daemons are judged in a model, tests/cron/test_firing_model.py; here the real ones are
walked, with kills, wipes and clocks that differ, and jobs whose ends and names the store soon forgets.
"""

import random
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from jqd.cli import run
from jqd.config import Config
from jqd.cron import service as schedules
from jqd.cron.loop import CronLoop
from jqd.cron.schedules import KnownSchedule, Plan, Schedules, Template
from jqd.daemon import Daemon
from jqd.domain.dates import iso, ms_of
from jqd.domain.errors import JqdError
from jqd.domain.job import State
from jqd.domain.lease import LeaseConfig
from jqd.journal import JournalConfig, open_journal
from jqd.service.cancel import cancel
from jqd.service.principal import Principal
from jqd.store import StoreConfig
from jqd.testing.store import FakeStore
from tests.cli.scripted import Script, script
from tests.harness.files import MemoryFiles
from tests.loops.conftest import threads_in_place
from tests.loops.house import TrioClock, until

__all__ = ["script", "threads_in_place"]

LEASE = LeaseConfig(lease_s=2.0, renew_s=0.5, margin_s=0.4)
STORE = StoreConfig(url="redis://fake", ended_keep_s=12.0, name_reserve_s=6.0)
EVERY_S, DATES = 5.0, 16
ALL = Plan(job=Template(name="tick"), every=EVERY_S, missed="all")


class Place:
    """A daemon's directory, and its lives. Its clock is its own."""

    def __init__(self, number: int, store: FakeStore, source: random.Random, skew_s: float = 0.0) -> None:
        self.directory, self.files, self.source, self.store = Path(f"/d{number}"), MemoryFiles(), source, store
        self.clock = TrioClock(wall_ms=1_800_000_000_000 + round(skew_s * 1000))
        self.scope = trio.CancelScope()
        self.daemon: Any = None
        self.is_there = False

    @property
    def services(self) -> Any:
        return self.daemon.parts.services

    async def live(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One process, until it is killed."""
        with trio.CancelScope() as self.scope:
            limits = JournalConfig(directory=self.directory)
            async with open_journal(limits, clock=self.clock, files=self.files) as journal:
                config = Config(data_dir=Path("/nowhere"), lease=LEASE, store=STORE)
                seed = random.Random(self.source.random())
                daemon = self.daemon = Daemon(config, journal, [self.store.another_client()], self.clock, seed)
                async with trio.open_nursery() as nursery:
                    for loop in (*daemon.partitions[0].loops(), daemon.settings_upkeep.run, daemon.cron.run):
                        await nursery.start(loop)
                    await daemon.workers.settings.synced.wait()
                    self.is_there = True
                    task_status.started()

    def kill(self) -> None:
        """As by a power cut."""
        self.files = self.files.crash(self.source)
        self.is_there = False
        self.scope.cancel()


class Watch:
    """Sees each job that waits, and ends it: by a cancel, which is known wherever the store forgets it."""

    def __init__(self, places: list[Place], source: random.Random) -> None:
        self.places, self.source = places, source
        self.seen: Counter[str] = Counter()
        self.began_ms: dict[str, int] = {}
        self._ended: set[str] = set()

    async def run(self) -> None:
        while True:
            for place in self.source.sample(self.places, len(self.places)):
                if place.is_there:
                    await self._look(place)
            await trio.sleep(0.3)

    async def _look(self, place: Place) -> None:
        try:
            store, now_ms = place.services.store, place.store.clock.wall_ms()
            pages = [await store.list_jobs(state, None, None, 100, "") for state in (State.WAITING, State.SCHEDULED)]
            for job in [job for page in pages for job in page.jobs if job.eligible_at_ms <= now_ms]:
                if job.id not in self._ended:
                    self.seen[job.name] += 1
                    self._ended.add(job.id)
                    self.began_ms[job.name] = place.store.clock.wall_ms()
                elif place.daemon.partitions[0].membership.settled:
                    self.seen[job.name] += 1  # it had ended, and may run again
                await cancel(place.services, job.id)
        except JqdError:
            await trio.sleep(0.1)  # the store is told anew what it forgot


async def walk(seed: int) -> str | None:
    """A random life of two or three daemons. What is wrong at its end; None: nothing."""
    source = random.Random(seed)
    store = FakeStore(TrioClock(), STORE)
    skews = [source.choice((-2.5, -0.7, 0.0, 1.3, 2.5)) for _ in range(source.randint(2, 3))]
    places = [Place(number, store, source, skew_s) for number, skew_s in enumerate(skews)]
    watch = Watch(places, source)
    async with trio.open_nursery() as nursery:
        for place in places:
            await nursery.start(place.live)
        await until(lambda: all(place.daemon.partitions[0].membership.settled for place in places))
        nursery.start_soon(watch.run)
        services = source.choice(places).services
        end_ms = store.clock.wall_ms() + round((DATES + 0.5) * EVERY_S * 1000)
        await schedules.put(services, "tick", Plan(job=ALL.job, every=EVERY_S, missed="all", until=iso(end_ms)))
        first_ms = services.feature(Schedules).known["tick"].next_ms
        await trio.sleep(2)
        while store.clock.wall_ms() < end_ms:
            await trio.sleep(source.uniform(1, 8))
            match source.choice(("kill", "kill", "both", "wipe", "rest")):
                case "wipe":
                    store.wipe()
                    await until(lambda: all(place.daemon.partitions[0].membership.settled for place in places))
                    await trio.sleep(3)
                case "kill" | "both" as fault:
                    gone = places if fault == "both" else [source.choice(places)]
                    for place in gone:
                        place.kill()
                    await trio.sleep(source.choice((0.5, 6, 20)))
                    for place in gone:
                        await nursery.start(place.live)
        await trio.sleep(40)
        stuck = [place.services.feature(Schedules).complaints() for place in places]
        nursery.cancel_scope.cancel()
    dates = [f"tick@{iso(first_ms + round(n * EVERY_S * 1000))}" for n in range(DATES)]
    if twice := {name: count for name, count in watch.seen.items() if count > 1 or name not in dates}:
        return f"twice: {twice}"
    if lost := [name for name in dates if name not in watch.seen]:
        return f"lost: {lost} {stuck}"
    return None


@pytest.mark.parametrize("seed", range(3))
async def test_each_date_is_fired_once(seed: int, autojump_clock: None) -> None:
    assert await walk(seed) is None


async def test_an_id_of_its_own_for_each_push_is_found(autojump_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownSchedule, "job_id", lambda self, date_ms: f"{self.name}@{trio.current_time():.3f}")
    found = await walk(0)
    assert found is not None
    assert found.startswith("twice")


@asynccontextmanager
async def alone(at: str) -> AsyncIterator[Place]:
    """One daemon, at that date, which all clocks show."""
    clock = TrioClock(wall_ms=ms_of(datetime.fromisoformat(at)) - round(trio.current_time() * 1000))
    place = Place(0, FakeStore(clock, STORE), random.Random(1))
    place.clock = clock
    async with trio.open_nursery() as nursery:
        await nursery.start(place.live)
        await until(lambda: place.daemon.partitions[0].membership.settled)
        yield place
        nursery.cancel_scope.cancel()


async def jobs_of(place: Place, *states: State) -> list[str]:
    """The dates of the jobs in these states, as their ids say."""
    pages = [await place.services.store.list_jobs(state, None, None, 100, "") for state in states or (None,)]
    return sorted(job.name.partition("@")[2][:16] for page in pages for job in page.jobs)


async def test_the_nightly_recipe(
    autojump_clock: None, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:  # docs/use/SCHEDULING.md
    page = (Path(__file__).parents[2] / "docs" / "use" / "SCHEDULING.md").read_text()
    (command,) = re.findall(r"```sh\njqd (schedules set nightly .*)\n```", page)
    script.on("PUT", "/v1/schedules/nightly", 201, {"name": "nightly", "next": []})
    assert run(shlex.split(command)) == 0
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(script.asked[0][2]), type=Plan)
    nights = {
        "2026-03-27T23:00Z": ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
        "2026-10-23T23:00Z": ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
    }
    for begin, dates in nights.items():
        async with alone(begin) as place:
            await schedules.put(place.services, "nightly", plan)
            known, seen = place.services.feature(Schedules).known, set[str]()
            for half_hour in (
                48 * night + each for night in range(3) for each in range(5)
            ):  # a few seconds around each
                at_ms = ms_of(datetime.fromisoformat(begin)) + (half_hour + 2) * 1_800_000
                place.clock.set_wall_ms(at_ms - 3_000 - round(trio.current_time() * 1000))
                await trio.sleep(11)  # the loop looks at its clock each ten seconds
                if (job_id := known["nightly"].fired.job_id).partition("@")[2][:16] not in seen and job_id:
                    assert job_id == f"nightly@{iso(at_ms)}"
                    seen.add(iso(at_ms)[:16])
                    await cancel(place.services, job_id)  # it ends
            assert sorted(seen) == dates


@pytest.mark.parametrize(("overlap", "fired", "skipped"), [("queue", 1, 0), ("skip", 1, 4), ("replace", 5, 0)])
async def test_what_comes_while_the_last_job_has_not_ended(
    overlap: Any, fired: int, skipped: int, autojump_clock: None
) -> None:
    async with alone("2026-01-01T00:00Z") as place:
        known = place.services.feature(Schedules).known
        await schedules.put(place.services, "s", Plan(job=Template(name="slow"), every=20.0, overlap=overlap))
        await trio.sleep(105)
        assert (known["s"].fired.fired, known["s"].fired.skipped) == (fired, skipped)
        assert len(await jobs_of(place, State.WAITING)) == 1, "never two at once"
        if overlap != "queue":
            return
        (complaint,) = place.daemon.control.warnings()
        assert complaint.endswith(f"was not: its last job, {known['s'].fired.job_id}, has not ended")
        for number in (2, 3, 4):  # they come one after another, as each ends
            await cancel(place.services, known["s"].fired.job_id)
            await trio.sleep(2)
            assert (known["s"].fired.fired, known["s"].fired.skipped) == (number, 0)


@pytest.mark.parametrize(("missed", "late"), [("skip", 0), ("once", 1)])
async def test_dates_of_an_outage_are_missed_though_the_last_job_ends_after_it(
    missed: Any, late: int, autojump_clock: None
) -> None:
    """Each was taken to have waited for the job before, whose date was late itself: all of a day were fired."""
    async with alone("2026-01-01T00:00Z") as place, trio.open_nursery() as nursery:
        await schedules.put(place.services, "s", Plan(job=Template(name="slow"), every=20.0, missed=missed))
        await trio.sleep(95)  # of those that wait for the first job two are noted, the third only half a minute after
        place.kill()
        await trio.sleep(605)
        await nursery.start(place.live)
        await trio.sleep(5)
        known = place.services.feature(Schedules).known
        while known["s"].next_ms is not None and known["s"].next_ms <= place.services.feature(Schedules).now_ms():
            await cancel(place.services, known["s"].fired.job_id)
            await trio.sleep(2)
        assert known["s"].fired.fired == 1 + 2 + late + 3, "and those of the last minute"
        assert known["s"].fired.fired + known["s"].fired.skipped == 35
        nursery.cancel_scope.cancel()


async def test_dates_that_pass_while_the_store_is_away_are_late_then_missed(autojump_clock: None) -> None:
    async with alone("2026-01-01T00:00Z") as place:
        job = Template(name="n")
        for missed in ("skip", "once", "all"):
            plan = Plan(job=job, cron="* * * * *", missed=missed, overlap="skip")
            await schedules.put(place.services, missed, plan)
        place.daemon.partitions[0].store.away = "unplugged"
        await trio.sleep(90)
        complaints = [each for each in place.daemon.control.warnings() if each.startswith("schedule ")]
        assert len(complaints) == 0, "a date of a minute ago is no delay yet"
        await trio.sleep(150)
        complaints = [each for each in place.daemon.control.warnings() if each.startswith("schedule ")]
        assert [each.split()[1] for each in complaints] == ["'skip'", "'once'", "'all'"]
        assert all("unplugged" in each for each in complaints)
        assert place.daemon.control.stats()["schedules"] == {
            "count": 3,
            "paused": 0,
            "late": 3,
            "fired": 0,
            "skipped": 0,
        }
        place.daemon.partitions[0].store.away = None
        await trio.sleep(20)
        known = place.services.feature(Schedules).known
        # 0:01, 0:02 and 0:03 passed long ago, 0:04 a moment ago. Of those of `all` and `once` the first still waits for
        # a worker, so `overlap` passes over what comes then.
        counts = {name: (one.fired.fired, one.fired.skipped) for name, one in known.items()}
        assert counts == {"skip": (1, 3), "once": (1, 3), "all": (1, 3)}
        assert place.daemon.control.warnings() == []


async def test_a_daemon_whose_turn_comes_later_finds_the_date_fired(autojump_clock: None) -> None:
    source, store = random.Random(3), FakeStore(TrioClock(), STORE)
    places = [Place(number, store, source) for number in range(2)]
    async with trio.open_nursery() as nursery:
        for place in places:
            await nursery.start(place.live)
        await until(lambda: all(place.daemon.partitions[0].membership.settled for place in places))
        await schedules.put(places[0].services, "s", Plan(job=Template(name="n"), every=10.0, overlap="skip"))
        await trio.sleep(13)
        counts = [place.services.feature(Schedules).counts["fired"] for place in places]
        assert sorted(counts) == [0, 1], "one was asked, and the other had nothing to do"
        places[counts.index(1)].kill()
        await trio.sleep(10)
        left = places[counts.index(0)]
        assert left.services.feature(Schedules).counts == {"fired": 0, "skipped": 1}, (
            "a second later it is the other's turn"
        )
        nursery.cancel_scope.cancel()


async def test_many_that_wait_for_their_last_job_hold_up_no_others(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.cron.loop.AT_ONCE", 1)
    async with alone("2026-01-01T00:00Z") as place:
        for n in range(6):  # more than are looked at before the first of them is looked at again
            await schedules.put(place.services, f"slow{n}", Plan(job=Template(name="slow"), every=5.0))
        await trio.sleep(20)
        await schedules.put(place.services, "s", Plan(job=Template(name="n"), every=10.0, overlap="skip"))
        await trio.sleep(45)
        one = place.services.feature(Schedules).known["s"].fired
        assert one.fired + one.skipped == 4
        await cancel(place.services, place.services.feature(Schedules).known["slow5"].fired.job_id)
        await trio.sleep(4)
        assert place.services.feature(Schedules).known["slow5"].fired.fired == 2, (
            "and each of them is looked at in its turn"
        )


async def test_the_schedules_of_one_tenant_make_no_date_of_another_late(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its dates that had come stood before those of the others, which were skipped as missed."""
    monkeypatch.setattr("jqd.cron.loop.AT_ONCE", 1)
    monkeypatch.setattr("jqd.cron.decide.LATE_MS", 5_000)
    real = CronLoop._look

    async def slow(self: CronLoop) -> None:
        await trio.sleep(0.25)
        await real(self)

    monkeypatch.setattr(CronLoop, "_look", slow)
    async with alone("2026-01-01T00:00Z") as place:
        crowd, own = (place.services.as_principal(Principal(tenant)) for tenant in ("acme", "bob"))
        for n in range(8):  # more dates come than are fired
            plan = Plan(job=Template(name="x"), every=1.0, missed="all", overlap="replace")
            await schedules.put(crowd, f"s{n}", plan)
        plan = Plan(job=Template(name="y"), every=5.0, missed="skip", overlap="replace")
        await schedules.put(own, "mine", plan)
        await trio.sleep(42)
        one = place.services.feature(Schedules).known[own.qualified_name("mine")]
        assert (one.fired.fired, one.fired.skipped) == (8, 0)


async def test_without_a_schedule_nothing_is_done(autojump_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(CronLoop, "_look", lambda self: looks.append(1))
    async with alone("2026-01-01T00:00Z") as place:
        await trio.sleep(60)
        await schedules.put(place.services, "s", Plan(job=Template(name="n"), every=3600.0))
        await schedules.delete(place.services, "s")
        await trio.sleep(60)
    assert looks == []


async def test_the_store_says_what_time_it_is(autojump_clock: None) -> None:
    store = FakeStore(TrioClock(), STORE)
    places = [Place(number, store, random.Random(5), skew_s) for number, skew_s in enumerate((3_600.0, -3_600.0))]
    async with trio.open_nursery() as nursery:
        for place in places:
            await nursery.start(place.live)
        await until(lambda: all(place.daemon.partitions[0].membership.settled for place in places))
        begin_ms = store.clock.wall_ms()
        await schedules.put(places[1].services, "s", Plan(job=Template(name="n"), every=20.0, overlap="skip"))
        first_ms = places[1].services.feature(Schedules).known["s"].next_ms
        assert 0 <= first_ms - begin_ms - 20_000 < 1_000, "counted from when it was said, by that clock"
        await trio.sleep(25)
        (one,) = {iso(place.services.feature(Schedules).known["s"].fired.date_ms) for place in places}
        assert one == iso(first_ms)
        page = await places[0].services.store.list_jobs(State.WAITING, None, None, 10, "")
        assert [job.name for job in page.jobs] == [f"s@{one}"]
        assert places[0].daemon.control.warnings() == []
        now_ms = places[0].services.feature(Schedules).now_ms()
        places[0].clock.set_wall_ms(places[0].clock.wall_ms() + 3_600_000)
        assert places[0].services.feature(Schedules).now_ms() == now_ms, "no date of the next hour has come"
        nursery.cancel_scope.cancel()
