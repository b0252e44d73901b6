"""A day of one daemon's loops on a real server, in which one command is answered with an error, or not at all.

Whatever the server says to whichever command: every job is started once and ends, a cancelled one never starts, and no
loop dies of it. Each command of the day meets one of the faults, in turns; all of them at each command: --every-reply.
"""

import itertools
import random
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import trio
import trio.testing

from jqd.domain.errors import StoreAway, StoreChanged, StoreError, StoreFull, StoreRefused
from jqd.domain.job import Fate, Held, Job, Outcome, State
from jqd.domain.record import Head, Lane, encode_cancels, encode_jobs
from jqd.journal import JournalConfig, open_journal
from jqd.loops import claims, purge
from jqd.runner import Stopped
from jqd.store import JobView, RedisStore, StoreConfig, open_store
from tests.harness.files import MemoryFiles
from tests.loops.conftest import threads_in_place as threads_in_place
from tests.loops.house import House, TrioClock, offer
from tests.store.gate import CUT, LOST, SILENT, TRICKLE, Fault, Gate, error, open_gate
from tests.valkey import Valkey

# What each means to a caller: try again, look who answers, an operator looks; or None, it is mended on the spot.
ERRORS: dict[str, type[StoreError] | None] = {
    "LOADING the server is loading its data": StoreAway,
    "READONLY You can't write against a read only replica.": StoreChanged,
    "MISCONF the server cannot save to disk": StoreAway,
    "OOM command not allowed when used memory > 'maxmemory'.": StoreFull,
    "BUSY a script is running. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": StoreAway,
    "ERR Function not found": None,
    "CLUSTERDOWN Hash slot not served": StoreChanged,
    "MOVED 3999 127.0.0.1:6381": StoreChanged,
    "ASK 3999 127.0.0.1:6381": StoreAway,
    "TRYAGAIN Multiple keys request during rehashing of slot": StoreAway,
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": StoreAway,
    "NOREPLICAS Not enough good replicas to write.": StoreAway,
    "NOAUTH Authentication required.": StoreRefused,
    "WRONGPASS invalid username-password pair or user is disabled.": StoreRefused,
    "NOPERM User default has no permissions to run this command": StoreRefused,
    "EXECABORT Transaction discarded because of previous errors.": StoreRefused,
    "UNKILLABLE the script already executed write commands": StoreRefused,
    "WRONGTYPE Operation against a key holding the wrong kind of value": StoreRefused,
    "ERR max number of clients reached": StoreAway,
    "ERR unknown command": StoreRefused,
}
FAULTS = [*map(error, ERRORS), LOST, CUT, SILENT]
TIMEOUT_S = 0.05  # of an answer, real time: only what is silent takes so long
DAY_S = 300.0  # virtual seconds in which all must have ended
COMMANDS_MIN = 40  # of a day; if it has fewer, the test has lost its object
PARTS = 4  # the commands of a day, dealt out to so many tests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each fault in the long form; in the short one they take turns."""
    if "faults" in metafunc.fixturenames:
        if metafunc.config.getoption("--every-reply", default=False):
            metafunc.parametrize(("part", "parts", "faults"), [(0, 1, [fault]) for fault in FAULTS])
        else:
            metafunc.parametrize(("part", "parts", "faults"), [(part, PARTS, FAULTS) for part in range(PARTS)])


@pytest.fixture(autouse=True)
def quiet_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease passes in the day; looking for work all the time meanwhile would be most of it."""
    monkeypatch.setattr(purge, "PURGE_EVERY_S", 4.0)
    monkeypatch.setattr(claims, "IDLE_S", 2.0)


class Day:
    """One daemon, its jobs, and what became of them."""

    def __init__(self, here: House, left: str) -> None:
        self.here = here
        self.starts: Counter[str] = Counter()
        self.ids = [left]
        self.late = False

    async def push(self, *waits_ms: int) -> None:
        """A batch into the journal; each may begin after so many milliseconds."""
        journal, now_ms = self.here.journal, self.here.clock.wall_ms()
        ids = journal.ids.take(len(waits_ms))
        jobs = msgspec.msgpack.encode([{"name": "a", "keep_result": True}] * len(waits_ms))
        eligible = {n: now_ms + wait_ms for n, wait_ms in enumerate(waits_ms) if wait_ms}
        body = encode_jobs(Head(ids.first, now_ms, eligible), jobs)
        await journal.wsync(journal.write(Lane.JOBS, len(waits_ms), body))
        self.ids += ids.ids()

    async def cancel(self, job_id: str) -> None:
        """Into the journal."""
        journal = self.here.journal
        await journal.wsync(journal.write(Lane.CANCELS, 1, encode_cancels([job_id])))

    async def work(self) -> None:
        """A worker to whom all succeeds at once; but the first batch it is given it sends back untried."""
        runner, taken = self.here.runner, 0
        while True:
            new, taken = runner.given[taken:], len(runner.given)
            held = [one for _, _, batch in new for one in batch]
            if held and not self.starts:
                self.starts["sent back"] += 1
                runner.stop(Stopped([], held))
            elif held:
                self.starts.update(one.job.id for one in held)
                runner.stop(Stopped([_success(one) for one in held], []))
            await trio.sleep(0.25)

    async def states(self, store: RedisStore) -> list[State | None]:
        """Of all jobs, as the server has them."""
        views = [await store.get_job(job_id) for job_id in self.ids]
        return [view.state if isinstance(view, JobView) else None for view in views]


def _success(held: Held) -> Outcome:
    return Outcome(held.job.id, held.fence, Fate.SUCCEEDED, held.job.jobtype, held.job.priority, held.attempt)


async def live(gate: Gate, direct: RedisStore, left: str) -> Day:
    """Push five jobs, cancel one, and go on until all have ended, `left` too. Fails when a loop dies of something."""
    clock = TrioClock()
    config = JournalConfig(directory=Path("/journal"))
    store_config = StoreConfig(url=gate.url, timeout_s=TIMEOUT_S, connections_max=1)
    async with (
        open_journal(config, clock=clock, files=MemoryFiles()) as journal,
        open_store(store_config, now_ms=clock.wall_ms) as store,
        trio.open_nursery() as nursery,
    ):
        real: Any = store
        here = House(journal, real, clock)
        here.runner.offers = {"a": offer()}
        day = Day(here, left)
        await here.join(nursery)
        sweep = purge.Purge(store=real, source=random.Random(1))
        loops = (here.dispatch.run, here.settle.run, here.settle.run_returns, here.reap.run, sweep.run)
        for loop in loops:
            await nursery.start(loop)
        nursery.start_soon(day.work)
        await day.push(0, 0, 150)
        await day.push(0, 60_000)
        await day.cancel(day.ids[-1])
        with trio.move_on_after(DAY_S) as until_night:
            while not all_ended(await day.states(direct)):
                await trio.sleep(1.0)
        day.late = until_night.cancelled_caught
        nursery.cancel_scope.cancel()
    return day


def all_ended(states: list[State | None]) -> bool:
    """Five ran, the cancelled one did not."""
    return states == [State.SUCCEEDED] * 5 + [State.CANCELLED]


async def leave_behind(direct: RedisStore) -> str:
    """A daemon that died with a job in its hand: nobody renews its seat."""
    await direct.look(fresh=True)
    gone = await direct.reserve_sysid("gone", previous_epoch_dead=True, through=True)
    await direct.apply_jobs("ab" * 16, 0, 1, [Job("left-behind", "a", keep_result=True)])
    (held,) = await direct.get_waiting_jobs(gone, "a", 1, priority_min=0, priority_max=0, bytes_max=1_000)
    return held.job.id


@contextmanager
def emptied(server: Valkey) -> Iterator[Gate]:
    with redis.Redis.from_url(server.url) as client, open_gate(server.socket) as gate:
        client.flushall()
        yield gate


async def a_day(server: Valkey, fault: Fault, at: Container[int]) -> Gate:
    """One day whose commands of these numbers meet the fault. All is well in the evening."""
    with emptied(server) as gate:
        gate.plan = lambda number, words: fault if number in at else None
        async with open_store(StoreConfig(url=server.url)) as direct:
            left = await leave_behind(direct)
            day = await live(gate, direct, left)
            stats = await direct.stats()
        assert not day.late, f"{gate.struck}: not all had ended after {DAY_S} s"
        twice = {job_id: n for job_id, n in day.starts.items() if n != 1}
        assert not twice, f"{gate.struck}: started more than once: {twice}"
        assert day.ids[-1] not in day.starts, f"{gate.struck}: the cancelled job was started"
        assert (stats.running, stats.dead) == (0, 0)
        return gate


async def test_each_command_may_be_answered_with_any_error(
    fresh_valkey: Valkey,
    part: int,
    parts: int,
    faults: list[Fault],
    autojump_clock: trio.testing.MockClock,
) -> None:
    for at in itertools.count(1 + part, parts):
        gate = await a_day(fresh_valkey, faults[at % len(faults)], [at])
        if not gate.struck:
            break  # the day was over before its command of that number
    assert at > COMMANDS_MIN


@pytest.mark.parametrize(("words", "becomes"), ERRORS.items(), ids=[words.split(" ")[0] for words in ERRORS])
async def test_each_error_is_tried_again_looked_into_or_refused(
    fresh_valkey: Valkey, words: str, becomes: type[StoreError] | None
) -> None:
    with emptied(fresh_valkey) as gate:
        async with open_store(StoreConfig(url=gate.url, connections_max=1)) as store:
            await store.look(fresh=True)
            await store.promote(1)
            strike = {gate.seen + 1: error(words)}
            gate.plan = lambda number, _: strike.get(number)
            if becomes is None:
                assert (await store.promote(1)).moved == 0
            else:
                with pytest.raises(StoreError) as raised:
                    await store.promote(1)
                assert type(raised.value) is becomes
                assert ("promote" in str(raised.value)) == (becomes is StoreRefused)
            assert gate.struck
            if becomes is StoreChanged:
                await store.look(fresh=False)
            assert (await store.promote(1)).moved == 0, "the next one is asked as if nothing had been"


@pytest.mark.parametrize("begin", [5, 20, 35])
@pytest.mark.parametrize(("fault", "commands"), [(CUT, 30), (SILENT, 12)], ids=["refused", "silent"])
async def test_a_partition_at_any_time_of_the_day_is_only_a_pause(
    fresh_valkey: Valkey,
    begin: int,
    fault: Fault,
    commands: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """So many tries, each later than the one before; the silent ones take the time of an answer that never comes."""
    gate = await a_day(fresh_valkey, fault, range(begin, begin + commands))
    assert len(gate.struck) == commands


async def test_answers_may_come_byte_by_byte(fresh_valkey: Valkey, autojump_clock: trio.testing.MockClock) -> None:
    gate = await a_day(fresh_valkey, TRICKLE, range(1, 1_000_000))
    assert len(gate.struck) > COMMANDS_MIN
