"""How a backlog is cut into calls: small frames together, large ones in parts."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from jqd.domain.job import Change, ChangeKind, Fate, Job, Outcome
from jqd.domain.record import Lane
from jqd.journal import Slice
from jqd.loops.lane_records import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    KNOWN_CONTENTS,
    LOST_CONTENTS,
    OTHER_CHANGES,
    chunks,
    job_bytes,
)


def pieces(*frames: tuple[int, int]) -> list[Slice]:
    """Frames as (position, records), whole."""
    return [Slice(Lane.JOBS, start, b"%d" % size, 0, size, start + 1_000) for start, size in frames]


def cut(slices: list[Slice], size: Callable[[int], int] = lambda _: 1) -> list[tuple[int, int]]:
    return [(c.end, len(c.records)) for c in chunks(slices, lambda piece: list(range(int(piece.body))), size)]


def test_chunks_span_small_frames_and_split_large_ones() -> None:
    assert cut(pieces((0, 2), (1_000, 3))) == [(2_000, 5)]
    assert cut(pieces((0, 700))) == [(500, 500), (1_000, 200)]
    assert cut(pieces((0, 400), (1_000, 400))) == [(1_100, 500), (2_000, 300)]
    assert cut([]) == []


def test_chunks_are_bounded_in_bytes_but_never_empty() -> None:
    assert cut(pieces((0, 3)), lambda _: CHUNK_BYTES + 1) == [(1, 1), (2, 1), (1_000, 1)]


def test_all_that_an_outcome_carries_counts_for_the_size_of_a_script_call() -> None:
    """A broken deploy whose jobs print much was one call of 32 MB, which no slow link takes before its timeout."""
    values: dict[str, Any] = {"message": "m" * 100, "log": "é" * 32_768, "error": b"e" * 100, "result": b"r" * 100}
    one = Outcome("A", 7, Fate.RETRY, "send", 0, 1, 500, **values)
    assert one.content_bytes == 300 + 65_536
    frame = Slice(Lane.OUTCOMES, 0, b"", 0, 500, 1_000)
    some = next(chunks([frame], lambda _: [one] * 500, lambda each: each.content_bytes))
    assert len(some.records) == CHUNK_BYTES // one.content_bytes


@pytest.mark.parametrize(
    ("kind", "eligible_at_ms", "is_known", "most"),
    [
        (ChangeKind.NEW, 0, True, KNOWN_CONTENTS),
        (ChangeKind.NEW, 0, False, LOST_CONTENTS),
        (ChangeKind.NEW, 5_000, True, OTHER_CHANGES),
        *((kind, 0, True, OTHER_CHANGES) for kind in (ChangeKind.REPLACE, ChangeKind.EDIT, ChangeKind.RETRY)),
    ],
)
def test_a_call_has_fewer_changes_than_jobs_for_each_takes_longer(
    kind: ChangeKind, eligible_at_ms: int, *, is_known: bool, most: int
) -> None:
    """500 followers at once took 6 ms of the server, 500 jobs of a flow that was tried anew 50 ms."""
    size_bytes = partial(job_bytes, is_known=is_known)
    one = Job("A", "mail", eligible_at_ms=eligible_at_ms, change=Change(7, 7, kind))
    frame = Slice(Lane.CHANGES, 0, b"", 0, 500, 1_000)
    sizes = [len(chunk.records) for chunk in chunks([frame], lambda _: [one] * 500, size_bytes)]
    assert sizes == [most] * (500 // most)
    large = Job("A", "mail", bytes(CHUNK_BYTES // 2), change=Change(7, 7, kind))
    assert len(next(chunks([frame], lambda _: [large] * 500, size_bytes)).records) == 1, "bytes count, too"
    plain = Job("A", "mail", eligible_at_ms=eligible_at_ms)
    assert len(next(chunks([frame], lambda _: [plain] * 500, size_bytes)).records) == CHUNK_RECORDS


def test_a_slice_of_a_frame_begins_where_it_was_left() -> None:
    assert cut([Slice(Lane.JOBS, 100, b"9", 4, 7, 107)]) == [(107, 3)]


def test_a_chunk_leaves_out_what_is_not_mine_and_ends_behind_it() -> None:
    def even(slices: list[Slice], mine: Callable[[int], bool]) -> list[tuple[int, int]]:
        cut = chunks(slices, lambda piece: list(range(int(piece.body))), lambda _: 1, mine)
        return [(chunk.end, len(chunk.records)) for chunk in cut]

    assert even(pieces((0, 3)), lambda number: number == 0) == [(1_000, 1)]
    assert even(pieces((0, 3), (1_000, 3)), lambda number: number == 2) == [(2_000, 2)]
    # The 501st of mine lies at 1500; what is before it and not mine belongs to the first chunk.
    assert even(pieces((0, 500), (1_000, 504)), lambda number: number % 2 == 0) == [(1_500, 500), (2_000, 2)]
    assert even(pieces((0, 504)), lambda _: False) == []
