"""Which outcomes alone say what waits to be pushed: those in the outbox or on a shelf, however many, and no others."""

import msgspec
import pytest
from structlog.testing import capture_logs

from jqd.loops.shelved import owing, say_newer
from jqd.store import CALL_JOBS_MAX
from jqd.store.outbox import OWED_SHELVES_MAX
from jqd.testing.store import FakeStore
from jqd.words.clock import ManualClock
from jqd.words.job import Fate, Held, Outcome
from tests.contract.bench import StoreBench, outcome

KNOWN = msgspec.msgpack.encode(("acme", [{"name": "next", "job_id": "n"}]))
NEWER = msgspec.msgpack.encode({"tenant": "acme", "jobs": []})  # not as any jqd writes them


@pytest.fixture
async def bench() -> StoreBench:
    bench = StoreBench(FakeStore(clock := ManualClock()), clock)
    await bench.store.look(fresh=True)
    return bench


async def leave(bench: StoreBench, follows: bytes) -> Outcome:
    """An outcome whose followers lie in the outbox then."""
    ended = outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=follows, result=b"\x01")
    await bench.settle(ended)
    return ended


def entry(ended: Outcome) -> bytes:
    return ended.job_id.encode() + b" " + ended.follows


@pytest.mark.parametrize("follows", [KNOWN, NEWER], ids=["known", "newer"])
async def test_only_what_waits_in_the_outbox_or_on_a_shelf_is_owed(bench: StoreBench, follows: bytes) -> None:
    pushed, waits, lies = [await leave(bench, follows) for _ in range(3)]
    await bench.store.drop_outbox([entry(pushed)])
    await bench.store.put_off("acme", [entry(lies)], 1.0)
    owed = await owing([bench.store], [pushed, waits, lies, outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED)])
    assert [(one.job_id, one.result) for one in owed] == [(waits.job_id, b"\xc0"), (lies.job_id, b"\xc0")]
    await bench.store.drop_outbox([entry(waits)])
    await bench.store.drop_outbox([entry(lies)], "acme")
    assert await owing([bench.store], [pushed, waits, lies]) == []


@pytest.mark.parametrize("follows", [KNOWN, NEWER], ids=["known", "newer"])
async def test_a_frame_may_have_more_of_them_than_a_call_takes(bench: StoreBench, follows: bytes) -> None:
    """A report of 10,000 outcomes is one frame."""
    waits = await leave(bench, follows)
    more = [outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=follows) for _ in range(CALL_JOBS_MAX)]
    assert [one.job_id for one in await owing([bench.store], [*more, waits])] == [waits.job_id]


async def test_what_a_newer_jqd_wrote_is_owed_where_it_may_lie_on_more_shelves_than_are_looked_at(
    bench: StoreBench,
) -> None:
    for number in range(OWED_SHELVES_MAX + 1):
        assert (
            await owing([bench.store], [gone := outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=NEWER)]) == []
        )
        await bench.store.put_off(f"t{number}", [entry(await leave(bench, KNOWN))], 1.0)
    assert [one.job_id for one in await owing([bench.store], [gone])] == [gone.job_id]


async def test_what_a_newer_jqd_wrote_is_said(bench: StoreBench) -> None:
    with capture_logs() as log:
        assert not say_newer([await leave(bench, KNOWN), await leave(bench, b"")])
        newer = [await leave(bench, NEWER) for _ in range(3)]
        assert say_newer(newer)
    ((event, parent, others),) = ((row["event"], row["parent"], row["others"]) for row in log)
    assert (event, parent, others) == ("retention.newer_followers", newer[0].job_id, 2)
