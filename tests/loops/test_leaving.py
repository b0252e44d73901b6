"""How a daemon leaves its partitions: what is waited for, and for how long."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate, Outcome
from jqd.domain.record import Lane, encode_outcomes
from jqd.store import Owner
from tests.loops.pairs import HERE, pair


async def test_a_partition_that_is_away_takes_no_time_from_leaving_the_others(autojump_clock: None) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        first, second = here.daemon.partitions
        release = here.stores[1].release_sysid

        async def hangs(owner: object) -> None:
            await trio.sleep_forever()

        here.stores[1].release_sysid = hangs  # type: ignore[method-assign]
        here.stores[1].away = "cable"
        began_s = trio.current_time()
        left_s: list[float] = []

        async def leave(partition: Any, done: Callable[[], None]) -> None:
            await partition.shut_down(10.0)
            done()

        async with trio.open_nursery() as leaving:
            leaving.start_soon(leave, first, lambda: left_s.append(trio.current_time() - began_s))
            leaving.start_soon(leave, second, lambda: left_s.append(trio.current_time() - began_s))
        assert left_s[0] < 0.1 < left_s[1]
        here.stores[1].away = None
        here.stores[1].release_sysid = release  # type: ignore[method-assign]
        other = here.stores[0].another_client()
        await other.look(fresh=False)
        owner = await other.reserve_sysid("next", True, through=True)
        assert set((await other.renew_sysid(owner, through=True)).members) == {"next"}
        nursery.cancel_scope.cancel()


async def test_a_partition_that_is_away_when_the_daemon_leaves_is_said(
    autojump_clock: None, logged: io.StringIO
) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)

        async def away(owner: object) -> None:
            raise StoreAway("no answer")

        here.stores[0].release_sysid = away  # type: ignore[method-assign]
        await here.daemon.partitions[0].shut_down(6.0)
        assert "daemon.not_left" in logged.getvalue()
        nursery.cancel_scope.cancel()


async def test_a_seat_whose_outcomes_are_not_in_the_store_is_kept_for_the_next_process(
    autojump_clock: None, logged: io.StringIO
) -> None:
    """Given up, it would hand its jobs to others, which would run again what its journal says has ended."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        released: list[object] = []

        async def release(owner: object) -> None:
            released.append(owner)

        here.stores[0].release_sysid = release  # type: ignore[method-assign]
        partition = here.daemon.partitions[0]
        partition.lanes[Lane.OUTCOMES].pause()
        ended = Outcome("01M81P7PRD0003DVSZ7S5VD4F0", 1, Fate.SUCCEEDED, "a", 0, 1)
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([ended])))
        await partition.shut_down(6.0)
        assert not released
        assert "daemon.not_left" in logged.getvalue()
        nursery.cancel_scope.cancel()


async def test_a_slow_disk_has_all_of_the_drain_time_to_take_outcomes(
    autojump_clock: None, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not taken when the process ends is lost, and those jobs run once more. A store is waited for less."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        partition, free_s = here.daemon.partitions[0], trio.current_time() + 6.0
        monkeypatch.setattr(
            type(partition.outcomes), "unwritten", property(lambda _: int(trio.current_time() < free_s))
        )
        await partition.shut_down(12.0)
        assert trio.current_time() >= free_s
        assert "daemon.not_left" not in logged.getvalue()
        nursery.cancel_scope.cancel()


async def test_a_renewal_that_meets_a_daemon_while_it_leaves_disturbs_nothing(
    autojump_clock: None, logged: io.StringIO
) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        first, store = here.daemon.partitions[0], here.stores[0]
        release = store.release_sysid

        async def in_steps(owner: Owner) -> None:
            await release(owner)  # the first step burns the epoch; the hand is emptied in further ones
            first.membership.hurry()
            await trio.sleep(0.5)

        store.release_sysid = in_steps  # type: ignore[method-assign]
        await first.shut_down(10.0)
        events = [json.loads(line)["event"] for line in logged.getvalue().splitlines()]
        assert "heartbeat.disturbed" not in events
        assert events.count("recovery.joined") == len(here.stores), "nobody sat down again"
        nursery.cancel_scope.cancel()


async def test_what_was_acknowledged_is_in_the_store_when_a_daemon_has_left(
    autojump_clock: None, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the daemon away for good after its stop must not lose jobs that were acknowledged."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        store, partition = here.stores[0], here.daemon.partitions[0]
        apply = store.apply_jobs

        async def slowly(*args: Any, **more: Any) -> int | None:
            await trio.sleep(2.0)
            return await apply(*args, **more)

        monkeypatch.setattr(store, "apply_jobs", slowly)
        for _ in range(4):
            ids = await here.push(*[HERE] * 500)
        await partition.shut_down(12.0)
        assert await store.get_jobs(ids[-1:]) != [None]
        assert partition.behind_bytes == 0
        partition.log_left()
        assert "daemon.journal_left" not in logged.getvalue()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("drain_s", "left_s"), [(4.0, 2.0), (25.0, 3.0)])
async def test_what_a_daemon_leaves_in_its_journal_is_logged(
    autojump_clock: None, logged: io.StringIO, drain_s: float, left_s: float
) -> None:
    """It waits for the drain time at most, and not for all of it if the store does nothing."""
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        partition = here.daemon.partitions[0]
        partition.lanes[Lane.JOBS].pause()
        end = here.journal.end
        await here.push(HERE)
        began_s = trio.current_time()
        await partition.shut_down(drain_s)
        assert trio.current_time() - began_s == pytest.approx(left_s, abs=0.1)
        synced = here.journal.end
        written = here.journal.write(Lane.CANCELS, 1, b"x")  # by a request that was under way at the stop
        partition.log_left()
        rows = [json.loads(line) for line in logged.getvalue().splitlines()]
        assert here.journal.end == synced < written, "it is not on disk yet, and counts all the same"
        assert [row["bytes"] for row in rows if row["event"] == "daemon.journal_left"] == [written - end]
        nursery.cancel_scope.cancel()
