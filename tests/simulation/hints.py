"""Lines of hints (STORE.md, Lines): what a store must hold at the end, bounds so small that hints stay, and mistakes.

Every other seed has such bounds: with those that ship a line of a thousand jobs has no stale hint.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from jqd.store.functions import Library
from jqd.testing import store
from jqd.testing.store import FakeStore
from tests.simulation.mistake import Mistake, in_scripts, mistake
from tests.store.indexes import check_indexes


@cache
def _small(library: Library) -> Library:
    return library.changed("shared/lines", "Lines.NEAR = 500", "Lines.NEAR = 1").changed(
        "shared/hints", "Hints.SWEPT = 1000", "Hints.SWEPT = 3"
    )


@contextmanager
def bounds_of(seed: int) -> Iterator[None]:
    """Small ones, for the time of the block, if that seed has them."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(store, "LIBRARY", _small(vars(store)["LIBRARY"]))
        yield


def wrong_lines(one: FakeStore) -> str | None:
    """What its lines have wrong, or None."""
    try:
        check_indexes(one.server.keyspace, one.keys)
    except AssertionError as error:
        return str(error).partition("\n")[0] or "turns"
    return None


HINTS: dict[str, Mistake] = {
    "hint-trusted": mistake(
        "",
        7,
        "lines,counts,twice,over,cancelled",
        "a claim takes each hint for a job that waits",
        in_scripts("row and not elsewhere[id] and not seen[id] and (", "row and ("),
        in_scripts("if waits and not waits[id] then", "if false then"),
        dense=2,
    ),
    "turn-lost": mistake(
        "",
        0,
        "stuck,lines",
        "a line that is filled again gets no turn",
        in_scripts(
            "    Lines.show(level, queue, turn, jobtype)\n",
            "    if not redis.call('HGET', K.life, 'turn') then\n"
            "      Lines.show(level, queue, turn, jobtype)\n    end\n",
        ),
    ),
    "line-parked-for-ever": mistake(
        "",
        1,
        "stuck",
        "a line that waits for a limit is never let go",
        in_scripts("      Parked.let_go(Parked.line_of(row))\n", ""),
        limits=True,
    ),
}
"""Mistakes about them, planted as those of `bugs.py`."""
