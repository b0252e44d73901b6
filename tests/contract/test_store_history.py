"""What daemons counted: each row once however often it comes, in order, for its time, and gone with a wiped store."""

import pytest

from jqd.domain.errors import StoreChanged
from jqd.store import HistoryRow
from jqd.store import history as limits
from tests.contract.bench import StoreBench

MINUTE_MS = limits.MINUTE_MS


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


async def test_a_row_counts_once_for_each_daemon_and_both_lengths_are_apart(store_bench: StoreBench) -> None:
    store, began_ms = store_bench.store, store_bench.clock.wall_ms() // MINUTE_MS * MINUTE_MS
    assert (await store.get_history(1, 0))[1:] == (None, [], None)
    for row in (b"less", b"more"):
        assert await store.put_history("one", [HistoryRow(1, began_ms, row), HistoryRow(10, began_ms, b"ten")]) == 2
    assert await store.put_history("two", [HistoryRow(1, began_ms, b"\x00\xff")]) == 1
    page = await store.get_history(1, 0)
    assert page.rows == [(began_ms, b"more"), (began_ms, b"\x00\xff")]
    assert (page.now_ms, page.oldest_ms, page.last) == (store_bench.clock.wall_ms(), began_ms, None)
    assert (await store.get_history(10, 0)).rows == [(began_ms, b"ten")]
    assert (await store.get_history(1, began_ms + 1)).rows == []


async def test_rows_go_when_their_time_is_over_and_of_too_many_the_oldest(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = store_bench.store, store_bench.clock
    first_ms = clock.wall_ms()
    await store.put_history("one", [HistoryRow(1, first_ms, b"1"), HistoryRow(10, first_ms, b"10")])
    clock.advance(limits.KEPT_MS[1] / 1000)
    await store.put_history("one", [HistoryRow(1, clock.wall_ms(), b"2"), HistoryRow(10, clock.wall_ms(), b"20")])
    assert [row for _, row in (await store.get_history(1, 0)).rows] == [b"2"]
    assert [row for _, row in (await store.get_history(10, 0)).rows] == [b"10", b"20"]
    monkeypatch.setattr("jqd.store.history.ROWS_MAX", 3)
    for number in range(5):
        clock.advance(60)
        await store.put_history(f"{number}", [HistoryRow(1, clock.wall_ms(), b"%d" % number)])
    page = await store.get_history(1, 0)
    assert [row for _, row in page.rows] == [b"2", b"3", b"4"]
    assert page.oldest_ms == page.rows[0][0]


async def test_a_row_of_a_time_to_come_is_not_kept(store_bench: StoreBench) -> None:
    store, now_ms = store_bench.store, store_bench.clock.wall_ms()
    assert await store.put_history("one", [HistoryRow(1, now_ms + 601_000, b"late"), HistoryRow(1, now_ms, b"x")]) == 1
    assert (await store.get_history(1, 0)).rows == [(now_ms, b"x")]


async def test_pages_have_each_row_once(store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now_ms = store_bench.store, store_bench.clock.wall_ms()
    for number in range(7):
        rows = [HistoryRow(1, now_ms - MINUTE_MS * minute, b"%d.%d" % (minute, number)) for minute in range(3)]
        await store.put_history(f"d{number}", rows)
    everything = {row for _, row in (await store.get_history(1, 0)).rows}
    assert len(everything) == 21
    for limit, size in (("PAGE_ROWS", 4), ("PAGE_BYTES", 8)):
        with monkeypatch.context() as patch:
            patch.setattr(f"jqd.store.history.{limit}", size)
            found, behind = list[bytes](), (0, "")
            for _ in range(22):
                page = await store.get_history(1, *behind)
                found += [row for _, row in page.rows]
                if page.last is None:
                    break
                behind = page.last
            assert (len(found), set(found)) == (21, everything), limit


async def test_an_emptied_store_has_none_and_takes_none_before_it_is_looked_at(store_bench: StoreBench) -> None:
    store, now_ms = store_bench.store, store_bench.clock.wall_ms()
    await store.put_history("one", [HistoryRow(1, now_ms, b"x")])
    store_bench.wipe()
    with pytest.raises(StoreChanged):
        await store.put_history("one", [HistoryRow(1, now_ms, b"x")])
    await store.look(fresh=False)
    assert (await store.get_history(1, 0))[1:] == (None, [], None)
    await store.put_history("one", [HistoryRow(1, now_ms, b"y")])
    assert (await store.get_history(1, 0)).rows == [(now_ms, b"y")]
