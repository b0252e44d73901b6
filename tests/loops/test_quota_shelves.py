"""Which outcomes alone say what waits to be pushed: those in the outbox or on a shelf, however many, and no others."""

import msgspec
import pytest

from jqd.domain.errors import JournalDamaged
from jqd.domain.job import Fate, Held, Outcome
from jqd.loops.retention.partition import still_waiting
from jqd.store import CALL_JOBS_MAX
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome

FOLLOWS = msgspec.msgpack.encode(("acme", [{"name": "next", "job_id": "n"}]))


@pytest.fixture
async def bench() -> StoreBench:
    bench = StoreBench(FakeStore(clock := ManualClock()), clock)
    await bench.store.look(fresh=True)
    return bench


async def leave(bench: StoreBench) -> Outcome:
    """An outcome whose followers lie in the outbox then."""
    ended = outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=FOLLOWS, result=b"\x01")
    await bench.settle(ended)
    return ended


def entry(ended: Outcome) -> bytes:
    return ended.job_id.encode() + b" " + ended.follows


async def test_only_what_waits_in_the_outbox_or_on_a_shelf_is_owed(bench: StoreBench) -> None:
    pushed, waits, lies = [await leave(bench) for _ in range(3)]
    await bench.store.drop_outbox([entry(pushed)])
    await bench.store.put_off("acme", [entry(lies)], 1.0)
    owed = await still_waiting([bench.store], [pushed, waits, lies, outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED)])
    assert [(one.job_id, one.result) for one in owed] == [(waits.job_id, b"\xc0"), (lies.job_id, b"\xc0")]
    await bench.store.drop_outbox([entry(waits)])
    await bench.store.drop_outbox([entry(lies)], "acme")
    assert await still_waiting([bench.store], [pushed, waits, lies]) == []


async def test_a_frame_may_have_more_of_them_than_a_call_takes(bench: StoreBench) -> None:
    """A report of 10,000 outcomes is one frame."""
    waits = await leave(bench)
    more = [outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=FOLLOWS) for _ in range(CALL_JOBS_MAX)]
    assert [one.job_id for one in await still_waiting([bench.store], [*more, waits])] == [waits.job_id]


async def test_what_cannot_be_decoded_is_damage(bench: StoreBench) -> None:
    with pytest.raises(JournalDamaged, match="what follows job"):
        await still_waiting([bench.store], [outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=b"\x80")])
