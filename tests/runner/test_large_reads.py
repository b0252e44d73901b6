"""Large results take turns while they are read, so that they are in memory a few at a time."""

from typing import Any, cast

import pytest
import trio
import trio.testing

from jqd.domain.errors import AnswerGarbled
from jqd.domain.results import LARGE_BYTES, LARGE_READ_MAX
from jqd.runner.transport.http1 import Wire
from jqd.runner.transport.large_reads import READ_S, LargeReads, Turn


class Slow:
    """A worker that sends nothing more."""

    async def read(self) -> bytes:
        await trio.sleep(2 * READ_S)
        return b""


SLOW = cast("Wire", cast("Any", Slow()))


async def test_so_many_are_read_at_once_and_the_next_one_waits(autojump_clock: object) -> None:
    reads = LargeReads(lambda: False)
    limiter = [Turn(reads) for _ in range(LARGE_READ_MAX + 1)]
    for turn in limiter[:-1]:
        await turn.look(LARGE_BYTES + 1)
    with trio.move_on_after(1) as waits:
        await limiter[-1].look(LARGE_BYTES + 1)
    assert waits.cancelled_caught
    await limiter[0].look(0)  # it is complete
    await limiter[-1].look(LARGE_BYTES + 1)
    for turn in limiter:
        turn.leave()
    assert reads.limiter.borrowed_tokens == 0


async def test_small_ones_wait_for_nobody() -> None:
    reads = LargeReads(lambda: True)
    await Turn(reads).look(LARGE_BYTES)
    assert reads.limiter.borrowed_tokens == 0


async def test_none_is_read_on_while_the_disk_has_enough(autojump_clock: object) -> None:
    full = [True]
    turn = Turn(LargeReads(lambda: full[0]))
    with trio.move_on_after(1) as waits:
        await turn.look(LARGE_BYTES + 1)
    assert waits.cancelled_caught
    full[0] = False
    turn.leave()
    await turn.look(LARGE_BYTES + 1)


async def test_a_worker_that_sends_too_slowly_loses_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    reads = LargeReads(lambda: False)
    turn = Turn(reads)
    await turn.look(LARGE_BYTES + 1)
    began_s = trio.current_time()
    with pytest.raises(AnswerGarbled, match=f"did not come within {READ_S:g} s"):
        await turn.read(SLOW)
    assert trio.current_time() - began_s == READ_S
    turn.leave()
    assert reads.limiter.borrowed_tokens == 0
