"""A daemon whose endings cannot be read does not stop all others for ever."""

import errno
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from jqd.domain.job import State
from jqd.domain.record import Lane
from jqd.journal import JournalConfig, open_journal
from jqd.recovery.recovery import RESIGN_S
from jqd.store.types import JOINS_MAX
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.barred import end, push, state
from tests.loops.house import House, TrioClock, house, until
from tests.store.job_places import places_of


@asynccontextmanager
async def second(here: House, files: MemoryFiles) -> AsyncIterator[House]:
    """Another daemon of the same store, on a disk of its own."""
    config = JournalConfig(directory=Path("/second"))
    clock = TrioClock()
    async with open_journal(config, clock=clock, files=files) as journal:
        yield House(journal, here.store, clock, "d2")


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


def unreadable(call: str, _: int) -> int | None:
    return errno.EIO if call == "read" else None


async def keep_pushing(who: House) -> None:
    """What is taken meanwhile moves the read points of lanes that have nothing to read: that is no getting on."""
    for _ in range(4):
        await trio.sleep(RESIGN_S / 5)
        await push(who, jobtype="b")


async def claimed(who: House, store: FakeStore) -> list[str]:
    owner = await who.wait_claimable()
    held = await store.get_waiting_jobs(owner, "a", 10, priority_min=-9, priority_max=9, bytes_max=1 << 20)
    who.runner._in_flight |= {one.job.id: one.fence for one in held}
    return [one.job.id for one in held]


@pytest.mark.usefixtures("from_disk")
async def test_a_disk_that_cannot_be_read_stops_the_others_for_a_minute_only(
    autojump_clock: None, disk: MemoryFiles
) -> None:
    async with house() as here, second(here, disk) as bad, trio.open_nursery() as nursery:
        store = here.store
        await here.join(nursery)
        await bad.join(nursery)
        (finished,) = await push(bad)
        await until(lambda: here.membership.settled and bad.membership.settled)
        assert await claimed(bad, store) == [finished]
        fence = bad.runner.get_running_jobs()[finished]
        (waiting,) = await push(here)
        disk.fail = unreadable
        await end(bad, finished, fence)  # it is written, and cannot be read back
        store.wipe()
        began_s = trio.current_time()
        nursery.start_soon(keep_pushing, bad)
        with trio.fail_after(RESIGN_S + 2 * here.membership.config.lease_s):
            await until(lambda: not here.membership.settled)
            assert await claimed(here, store) == [waiting]
        assert trio.current_time() - began_s >= RESIGN_S, "a slow disk is waited for"
        assert not bad.membership.trusts()
        assert bad.runner.stops >= 1, "what it had in flight was stopped before the others went on"
        assert "has not got on for 60 s" in str(bad.barrier.backoff.reason)
        assert "d2" not in places_of(store).members()
        disk.fail = lambda call, number: None
        await until(lambda: bad.membership.settled)
        assert bad.barrier.backoff.reason is None
        assert await state(here, finished) is State.SUCCEEDED
        (late,) = await push(bad)
        await bad.lanes[Lane.JOBS].wait_caught_up(bad.journal.end)
        assert await claimed(bad, store) == [late]
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("from_disk")
async def test_who_has_resigned_takes_no_seat_in_the_next_life_either(autojump_clock: None, disk: MemoryFiles) -> None:
    async with house() as here, second(here, disk) as bad, trio.open_nursery() as nursery:
        store, lease_s = here.store, here.membership.config.lease_s
        await here.join(nursery)
        await bad.join(nursery)
        await until(lambda: here.membership.settled and bad.membership.settled)
        disk.fail = unreadable
        await end(bad, "0" * 26, 1)
        store.wipe()
        await until(lambda: bad.barrier.backoff.reason is not None)
        await until(lambda: here.membership.settled)
        store.wipe()
        began_s = trio.current_time()
        await until(lambda: not here.membership.settled)
        await until(lambda: here.membership.settled)
        assert trio.current_time() - began_s < 2 * lease_s, "nobody waits for it once more"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["disk", "undecodable"])
async def test_a_start_whose_endings_cannot_be_read_takes_no_seat(
    autojump_clock: None, disk: MemoryFiles, why: str
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        async with second(here, disk) as bad:
            if why == "disk":
                await end(bad, "0" * 26, 1)
                disk.fail = unreadable
            else:
                await bad.journal.wsync(bad.journal.write(Lane.OUTCOMES, 1, b"\x91\x91\xa1x"))
            await bad.join(nursery)
            await until(lambda: here.membership.settled)
            await trio.sleep(3 * RESIGN_S)
            assert here.membership.not_ready_reason() is None
            assert "d2" not in places_of(here.store).members()
            nursery.cancel_scope.cancel()


async def test_a_daemon_that_dies_again_and_again_at_it_stops_the_others_for_a_while_only(
    autojump_clock: None, disk: MemoryFiles
) -> None:
    """Each of its lives takes the seat anew before a lease is over, so nobody sees it stand still."""
    async with house() as here, second(here, disk) as bad, trio.open_nursery() as nursery:
        store, every_s = here.store, here.membership.config.lease_s / 2
        await here.join(nursery)
        await until(lambda: here.membership.settled)
        await end(bad, "0" * 26, 1)
        store.wipe()
        lives, ill = 0, True

        async def not_applied(*_: object) -> None:
            await trio.sleep_forever()

        async def lead_short_lives() -> None:
            nonlocal lives
            while True:
                client = store.another_client()
                if ill:
                    client.apply_outcomes = not_applied  # type: ignore[method-assign,assignment]
                with trio.move_on_after(every_s if ill else math.inf):
                    async with trio.open_nursery() as life:
                        await House(bad.journal, client, bad.clock, "d2").join(life)
                lives += 1

        nursery.start_soon(lead_short_lives)
        (waiting,) = await push(here)
        await until(lambda: lives == 2)
        assert not here.membership.settled, "it is waited for at first"
        with trio.fail_after(JOINS_MAX * every_s):
            await until(lambda: here.membership.settled)
            assert await claimed(here, store) == [waiting]
        await until(lambda: lives == 4 * JOINS_MAX)
        assert here.membership.not_ready_reason() is None
        ill = False
        await until(lambda: any(peer.sysid == "d2" and peer.epoch for peer in here.renew.peers()))
        assert here.membership.not_ready_reason() is None
        nursery.cancel_scope.cancel()


async def test_who_has_resigned_tells_how_jobs_end_that_are_reported_to_it(
    autojump_clock: None, disk: MemoryFiles
) -> None:
    async with house() as here, second(here, disk) as bad, trio.open_nursery() as nursery:
        await here.join(nursery)
        await bad.join(nursery)
        await until(lambda: here.membership.settled and bad.membership.settled)
        await bad.journal.wsync(bad.journal.write(Lane.CHANGES, 1, b"\x91\x91\xa1x"))
        here.store.wipe()
        await until(lambda: bad.barrier.backoff.reason is not None)
        await until(lambda: here.membership.settled)
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        assert await claimed(here, here.store) == [job_id]
        await trio.sleep(RESIGN_S)  # it has tried to come back meanwhile
        await end(bad, job_id, here.runner.get_running_jobs()[job_id])
        with trio.fail_after(here.membership.config.lease_s):
            while await state(here, job_id) is not State.SUCCEEDED:
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
