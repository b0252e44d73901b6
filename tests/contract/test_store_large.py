"""Large results: kept in pieces apart from their jobs, read piece by piece, and gone with what refers to them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import redis

from jqd.domain.errors import StoreRefused
from jqd.domain.followers import encode_as_outbox_entry
from jqd.domain.job import ChangeKind, Fate, Held, Job, Outcome, State
from jqd.domain.record import Lane
from jqd.domain.results import PIECE_BYTES, LargeResult
from jqd.store import Store, StoreConfig, open_store
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import JOURNAL, StoreBench, changed, outcome
from tests.valkey import Valkey

PURGED = 100  # rows of one call
HOUR_S = 3_601.0  # more than a result is kept, and than pieces wait for their outcome


def value(size: int, letter: bytes = b"x") -> bytes:
    """MessagePack of so many bytes."""
    return msgspec.msgpack.encode(letter * (size - 5))


LARGE = value(2 * PIECE_BYTES + 1)


async def put(bench: StoreBench, *outcomes: Outcome) -> Sequence[Outcome]:
    """Put their results, as a lane does before it settles them."""
    return await bench.store.put_results(JOURNAL, bench.at[Lane.OUTCOMES], outcomes)


async def settle(bench: StoreBench, *outcomes: Outcome) -> list[str]:
    """Put and settle."""
    return await bench.settle(*await put(bench, *outcomes))


async def claim(bench: StoreBench, **fields: Any) -> Held:
    """A job in flight that keeps its result."""
    owner = await bench.join()
    await bench.push(**{"keep_result": True, **fields})
    return await bench.claim_one(owner)


async def read(store: Store, job: Job) -> bytes | None:
    """The whole result, piece by piece."""
    view = await store.get_job(job.id)
    result = getattr(view, "result", None)
    if not isinstance(result, LargeResult):
        return result
    pieces = [await store.get_piece(result, at) for at in range(result.pieces)]
    assert all(piece is None or len(piece) <= PIECE_BYTES for piece in pieces)
    return None if None in pieces else b"".join(piece or b"" for piece in pieces)


async def purge(bench: StoreBench) -> None:
    """Until nothing is left to do."""
    while (await bench.store.purge(PURGED)).rows:
        continue


def keys_of(bench: StoreBench) -> set[str]:
    """What the store has of large results."""
    names = (key.decode().split(":")[2] for key in bench.keys())  # noqa: SIM118 - it is no mapping
    return {"pieces", "large", "spare"}.intersection(names)


@pytest.mark.parametrize("size", [PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 7])
async def test_a_result_is_read_as_it_was_put(store_bench: StoreBench, size: int) -> None:
    held = await claim(store_bench)
    assert await settle(store_bench, outcome(held, Fate.SUCCEEDED, result=value(size))) == []
    assert await read(store_bench.store, held.job) == value(size)
    view = await store_bench.view(held.job)
    assert isinstance(view.result, LargeResult) is (size > PIECE_BYTES)
    assert not isinstance(view.result, LargeResult) or view.result.bytes == size
    assert keys_of(store_bench) == ({"pieces", "large"} if size > PIECE_BYTES else set())


async def test_of_a_job_that_keeps_none_nothing_is_put(store_bench: StoreBench) -> None:
    held = await claim(store_bench, keep_result=False)
    await settle(store_bench, outcome(held, Fate.SUCCEEDED, result=b"\xc0"))
    assert keys_of(store_bench) == set()


@pytest.mark.parametrize("how", ["consumed", "its time is over", "its job is deleted", "retried", "read by another"])
async def test_it_goes_with_what_refers_to_it(store_bench: StoreBench, how: str) -> None:
    bench = store_bench
    held = await claim(bench)
    await settle(bench, outcome(held, Fate.SUCCEEDED, result=LARGE))
    if how == "read by another":
        await bench.other.look(fresh=False)
        assert await read(bench.other, held.job) == LARGE
        return
    if how == "consumed":
        await bench.store.drop_result(held.job.id)
    elif how == "its time is over":
        bench.clock.advance(HOUR_S)
    elif how == "its job is deleted":
        await bench.store.delete_dead([held.job.id])
    else:
        await bench.add(changed(held.job, await bench.store.reserve_change(held.job.id), ChangeKind.RETRY))
    await purge(bench)
    assert keys_of(bench) == set()
    assert await read(bench.store, held.job) is None


@pytest.mark.parametrize("sizes", [(len(LARGE), len(LARGE)), (9, 9), (9, len(LARGE)), (len(LARGE), 9)])
async def test_who_consumes_a_result_drops_no_newer_one(store_bench: StoreBench, sizes: tuple[int, int]) -> None:
    bench = store_bench
    owner = await bench.join()
    await bench.push(keep_result=True)
    held = await bench.claim_one(owner)
    first, second = value(sizes[0], b"1"), value(sizes[1], b"2")
    await settle(bench, outcome(held, Fate.SUCCEEDED, result=first))
    was_read = (await bench.view(held.job)).result
    assert was_read is not None
    await bench.add(changed(held.job, await bench.store.reserve_change(held.job.id), ChangeKind.RETRY))
    await settle(bench, outcome(await bench.claim_one(owner), Fate.SUCCEEDED, result=second))
    await bench.store.drop_result(held.job.id, was_read)
    assert await read(bench.store, held.job) == second
    now = (await bench.view(held.job)).result
    await bench.store.drop_result(held.job.id, now)
    assert await read(bench.store, held.job) is None


async def test_an_outcome_that_comes_too_late_leaves_nothing(store_bench: StoreBench) -> None:
    bench = store_bench
    held = await claim(bench)
    first, second = value(len(LARGE), b"1"), value(len(LARGE), b"2")
    await settle(bench, outcome(held, Fate.SUCCEEDED, result=first))
    late = outcome(held, Fate.SUCCEEDED, result=second)
    assert await settle(bench, late) == [held.job.id]
    await purge(bench)
    assert keys_of(bench) == {"pieces", "large"}
    assert await read(bench.store, held.job) == first
    assert await settle(bench, late, late) == [held.job.id] * 2, "also two in one call"
    await bench.store.drop_result(held.job.id)
    await purge(bench)
    assert keys_of(bench) == set()


async def test_pieces_whose_outcome_never_comes_go(store_bench: StoreBench) -> None:
    bench = store_bench
    held = await claim(bench)
    await put(bench, outcome(held, Fate.SUCCEEDED, result=LARGE))
    await purge(bench)
    assert keys_of(bench) == {"pieces", "spare"}, "the outcome may be on its way"
    bench.clock.advance(HOUR_S)
    await purge(bench)
    assert keys_of(bench) == set()


async def test_a_repeat_of_what_was_answered_and_lost_keeps_the_result(store_bench: StoreBench) -> None:
    bench = store_bench
    held = await claim(bench)
    told = outcome(held, Fate.SUCCEEDED, result=LARGE)
    where = JOURNAL, 0, 100
    answers: list[list[int] | None] = [[], None, None]
    for answer in answers:
        again = await bench.store.put_results(JOURNAL, 0, [told])
        assert await bench.store.apply_outcomes(*where, again) == answer
        assert await read(bench.store, held.job) == LARGE
    bench.clock.advance(60.0)
    await purge(bench)
    assert await read(bench.store, held.job) == LARGE
    bench.clock.advance(HOUR_S)
    await purge(bench)
    assert keys_of(bench) == set()


async def test_pieces_that_are_referred_to_stay_whatever_was_put_again() -> None:
    """A result may be kept for longer than pieces wait."""
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig(url="redis://fake", result_ttl_s=3 * HOUR_S))
    await store.look(fresh=True)
    bench = StoreBench(store, clock, keys=lambda: store.server.keyspace.keys)
    held = await claim(bench)
    told = outcome(held, Fate.SUCCEEDED, result=LARGE)
    for _ in range(2):
        await store.apply_outcomes(JOURNAL, 0, 100, await store.put_results(JOURNAL, 0, [told]))
    clock.advance(2 * HOUR_S)
    await purge(bench)
    assert await read(store, held.job) == LARGE
    assert keys_of(bench) == {"pieces", "large"}


async def test_pieces_that_were_dropped_before_their_outcome_came_are_missed(store_bench: StoreBench) -> None:
    bench = store_bench
    held = await claim(bench)
    given = await put(bench, outcome(held, Fate.SUCCEEDED, result=LARGE))
    bench.clock.advance(HOUR_S)
    await purge(bench)
    with pytest.raises(StoreRefused, match="pieces"):
        await bench.store.apply_outcomes(JOURNAL, 0, 100, given)
    assert await bench.state(held.job) is State.RUNNING, "nothing of it was done"
    assert await settle(bench, outcome(held, Fate.SUCCEEDED, result=LARGE)) == []
    assert await read(bench.store, held.job) == LARGE


async def test_what_is_told_to_an_emptied_store_before_its_job_waits_for_it(store_bench: StoreBench) -> None:
    bench = store_bench
    held = await claim(bench)
    bench.wipe()
    bench.at = dict.fromkeys(bench.at, 0)
    await bench.store.look(fresh=False)
    await settle(bench, outcome(held, Fate.SUCCEEDED, result=LARGE))
    await bench.add(held.job)
    assert await bench.state(held.job) is State.SUCCEEDED
    assert await read(bench.store, held.job) == LARGE


async def test_the_ending_of_a_later_content_brings_its_large_result(store_bench: StoreBench) -> None:
    bench = store_bench
    held = await claim(bench)
    first, second = value(len(LARGE), b"1"), value(len(LARGE), b"2")
    ended = outcome(held, Fate.SUCCEEDED, result=first)
    again = changed(held.job, await bench.store.reserve_change(held.job.id), ChangeKind.RETRY)
    await settle(bench, ended)
    await bench.add(again)
    last = outcome(await bench.claim_one(await bench.join()), Fate.SUCCEEDED, result=second)
    await settle(bench, last)
    job = held.job
    told: list[list[Job | Outcome]] = [[job, ended, last, again], [ended, last, job, again], [last, ended, again, job]]
    for records in told:
        bench.wipe()
        bench.clock.advance(0.001)
        bench.at = dict.fromkeys(bench.at, 0)
        await bench.store.look(fresh=False)
        for record in records:
            await (settle(bench, record) if isinstance(record, Outcome) else bench.add(record))
            await purge(bench)
        assert await read(bench.store, held.job) == second
        await purge(bench)
        await bench.store.drop_result(held.job.id)
        await purge(bench)
        assert keys_of(bench) == set()


@pytest.fixture
async def full(fresh_valkey: Valkey) -> AsyncIterator[tuple[StoreBench, "redis.Redis"]]:
    """A job in flight at a server that takes no memory for a result of some pieces."""
    with redis.Redis.from_url(fresh_valkey.url) as client:
        clock = ManualClock()
        async with open_store(StoreConfig(url=fresh_valkey.url), now_ms=clock.wall_ms) as store:
            await store.look(fresh=True)
            yield StoreBench(store, clock, keys=client.keys), client
            client.config_set("maxmemory", 0)


@pytest.mark.parametrize("keep", [True, "required"])
async def test_a_full_server_refuses_it_by_name(full: tuple[StoreBench, "redis.Redis"], keep: Any) -> None:
    bench, client = full
    held = await claim(bench, keep_result=keep)
    large = value(8 * PIECE_BYTES)
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 3 * PIECE_BYTES)
    follows = {"follows": encode_as_outbox_entry([], held.job.id, "mail", 0, 0)}
    (told,) = await put(bench, outcome(held, Fate.SUCCEEDED, result=large, **follows))
    assert told.message.startswith(f"RESULT_DROPPED: the store is full, and the result has {len(large)} bytes; ")
    assert told.result == b"\xc0"
    assert bool(told.follows) is (keep is True), "what failed has no followers"
    assert keys_of(bench) == set(), "what was put of it was dropped at once"
    await bench.settle(told)
    view = await bench.view(held.job)
    state, status = (State.SUCCEEDED, 200) if keep is True else (State.FAILED, 507)
    assert (view.state, view.outcome and view.outcome.status, view.result) == (
        state,
        status,
        b"\xc0" if keep is True else None,
    )


async def test_a_full_server_keeps_what_it_has_when_that_is_put_again(full: tuple[StoreBench, "redis.Redis"]) -> None:
    bench, client = full
    held = await claim(bench)
    told = outcome(held, Fate.SUCCEEDED, result=LARGE)
    await bench.store.apply_outcomes(JOURNAL, 0, 100, await bench.store.put_results(JOURNAL, 0, [told]))
    client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    again = await bench.store.put_results(JOURNAL, 0, [told])
    assert await bench.store.apply_outcomes(JOURNAL, 0, 100, again) is None
    assert await read(bench.store, held.job) == LARGE
