"""How much a request does between two points at which other tasks can run: the calls of functions, not the time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import trio

from jqd.domain import array_split


class MostCalls(trio.abc.Instrument):
    """Counts the calls, of Python's functions and of built-in ones, in the step of a task that has most."""

    def __init__(self) -> None:
        self.most = 0
        self.all = 0
        """The calls in all steps of tasks."""
        self._calls = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._calls = 0
        sys.setprofile(self._count)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        self.most = max(self.most, self._calls)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        is_call = event in ("call", "c_call")
        self._calls += is_call
        self.all += is_call


@contextmanager
def most_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[MostCalls]:
    """Count the calls in the `with` block, in which other tasks run after each step of long work."""
    monkeypatch.setattr(array_split, "HELD_S", 0.0)
    counted = MostCalls()
    before = sys.getprofile()
    trio.lowlevel.add_instrument(counted)
    try:
        yield counted
    finally:
        trio.lowlevel.remove_instrument(counted)
        sys.setprofile(before)
