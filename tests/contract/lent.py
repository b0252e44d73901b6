"""Jobs that workers hold by themselves, in a store that may forget."""

from typing import Any

import pytest

from jqd.domain.job import Held, Outcome, lease_claim
from jqd.domain.record import Lane
from jqd.store import Owner
from tests.contract.bench import StoreBench

BEAT_S = 10


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told."""
    await store_bench.store.look(fresh=True)
    return store_bench


def handed(held: Held, worker: str = "w", silence_s: int = BEAT_S) -> Outcome:
    """The record of a hand-over."""
    return lease_claim(held, worker=worker, silence_s=silence_s, started_at_ms=1)


async def lend(bench: StoreBench, number: int = 1, worker: str = "w", **fields: Any) -> tuple[Owner, list[Held]]:
    """Jobs of a daemon's claim that a worker holds by itself now."""
    owner = await bench.join()
    await bench.add(*(bench.make(**fields) for _ in range(number)))
    held = await bench.claim(owner)
    assert len(held) == number
    assert await bench.settle(*(handed(one, worker) for one in held)) == []
    return owner, held


async def forget(bench: StoreBench) -> Owner:
    """The store is emptied; a daemon looks and sits down anew, and all journals are read from their beginnings."""
    bench.clock.advance(1)
    bench.wipe()
    bench.at = dict.fromkeys(Lane, 0)
    await bench.store.look(fresh=False)
    owner = await bench.join()
    await bench.store.renew_sysid(owner, through=True, settle=True)
    return owner


async def mark(bench: StoreBench) -> int:
    """Where the signs of life stand now."""
    bench.clock.advance(0.01)
    return (await bench.store.find_silent({}, 100)).now
