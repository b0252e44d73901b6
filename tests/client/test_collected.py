"""A stream that nobody holds any more ends where Python collects it, which may be in the middle of anything else.

Python collects between any two steps of its machine, in whichever thread has just made something. So each call of
`Connections` runs here once for each of its steps, and a stream is collected before that one.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from jqd.client import connections as pool
from jqd.client.connections import IDLE_S_MAX, Connections
from jqd.testing.clock import ManualClock
from tests.client.served import asked

HERE, THERE = "http://here", "http://there"


class Kept:
    """A connection without a socket."""

    def __init__(self, url: str, free_since_s: float, *, is_free: bool = True) -> None:
        self.url, self.free_since_s, self.is_free = url, free_since_s, is_free
        self.is_closed = self.is_shut_down = False

    def is_quiet(self) -> bool:
        return True

    def close(self) -> None:
        assert not self.is_closed, "twice"
        self.is_closed = True

    def shut_down(self) -> None:
        self.is_shut_down = True


def made() -> Any:
    return Connections([HERE, THERE])


class Pool:
    """Connections with all that a call may meet: idle ones of two daemons, one of them stale, and busy ones."""

    def __init__(self, *, read_to_its_end: bool) -> None:
        self.all = made()
        self.all._clock = ManualClock()
        now_s = self.all._clock.boot_s()
        self.stale, self.there, self.here = Kept(THERE, now_s - IDLE_S_MAX - 1), Kept(THERE, now_s), Kept(HERE, now_s)
        self.stream, self.other = Kept(HERE, 0.0, is_free=read_to_its_end), Kept(THERE, 0.0)
        self.every = [self.stale, self.there, self.here, self.stream, self.other]
        self.all._idle[:] = self.every[:3]
        self.all._busy.update(self.every[3:])
        self.all._under_way = 1

    def collect(self) -> None:
        self.all._end(self.stream, waits=True)


def take(at: Pool) -> None:
    taken = at.all._connected(asked(HERE))
    assert (taken.url, taken.is_closed, taken in at.all._busy) == (HERE, False, True)


def take_the_longest_idle(at: Pool) -> None:
    at.here.url = "http://elsewhere"
    at.there.url = HERE
    take(at)


def find_it_stale(at: Pool) -> None:
    at.stale.url = "http://only"
    assert at.all._kept("http://only") in (at.stale, None)
    if at.stale not in at.all._idle and not at.stale.is_closed:
        at.stale.close()


def give_back(at: Pool) -> None:
    at.all._end(at.other, waits=False)
    assert at.all._under_way == 0
    assert at.other in at.all._idle


def begin(at: Pool) -> None:
    at.all._begin(0.0)
    assert at.all._under_way == 2


def close(at: Pool) -> None:
    at.all.close()
    assert at.all._idle == []
    assert all(each.is_closed or each.is_shut_down for each in at.every)


def interrupted(act: Callable[[Pool], None], at: Pool, step: int) -> bool:
    """Run `act`, and collect the stream before the step. Returns whether there was one."""
    steps, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != pool.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if steps == step:
                at.collect()  # which is not traced
            steps += 1
        return trace

    sys.settrace(trace)
    try:
        act(at)
    finally:
        sys.settrace(before)
    return steps > step


@pytest.mark.parametrize("act", [take, take_the_longest_idle, find_it_stale, give_back, begin, close])
@pytest.mark.parametrize("read_to_its_end", [True, False])
def test_a_stream_may_be_collected_at_any_step(act: Callable[[Pool], None], read_to_its_end: bool) -> None:
    """A push raised IndexError, or had the connection of another daemon; a close left busy connections as they were."""
    step = 0
    while interrupted(act, at := Pool(read_to_its_end=read_to_its_end), step):
        kept = [*at.all._idle, *at.all._busy]
        assert len(kept) == len(set(kept)), f"step {step}: one is kept twice"
        assert read_to_its_end or at.stream not in at.all._busy
        for each in at.every:
            assert each.is_closed != (each in kept), f"step {step}: what is kept is open, and nothing else is"
        step += 1
    assert step > 10, "it has steps"
