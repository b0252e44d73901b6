"""Mistakes to plant in the real code, by name, for the time of a block: a proof that cannot find them proves nothing.

    with planted("retry-failed-sync"):
        ...                     # the journal now syncs a second time after a failed sync, and believes the answer

The code that is shipped has no switch for them: its methods are exchanged from here and put back. A method that is no
longer there fails loudly (`AttributeError`). Each mistake is one that a queue of the field really made, or that a
tired hand makes in an afternoon. `tests/crash/test_bugs.py` has the check that finds each.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from jqd.domain.clock import Clock
from jqd.domain.jobid import IdSource
from jqd.journal import Files, Journal
from jqd.journal import frame as frame_module
from jqd.journal import recover as recover_module
from jqd.journal import segment as segment_module
from jqd.journal.commit import Commits, Refusal
from jqd.journal.segment import Segment, Walker
from jqd.journal.writer import Start, Writer
from jqd.loops.ingest import Flight, Ingest
from jqd.recovery.recovery import Recovery

Plant = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Given what it takes the place of, the mistaken one."""


class Bug:
    """One mistake: which method or function of `owner` it replaces, and by what."""

    def __init__(self, what: str, owner: Any, name: str, plant: Plant) -> None:
        self.what = what
        self._owner = owner
        self._name = name
        self._plant = plant

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Make it for the time of the block."""
        if self._name not in vars(self._owner):
            raise AttributeError(f"{self._owner.__name__} has no {self._name} of its own: plant the bug where it went")
        real = vars(self._owner)[self._name]
        setattr(self._owner, self._name, self._plant(real))
        try:
            yield
        finally:
            setattr(self._owner, self._name, real)


class _Through:
    """A disk some of whose calls do something else."""

    def __init__(self, files: Any, calls: dict[str, Callable[..., Any]]) -> None:
        self._files = files
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._files, name)
        instead = self._calls.get(name)
        return real if instead is None else lambda *arguments: instead(real, *arguments)


def _with_calls(**calls: Callable[..., Any]) -> Plant:
    """The method as it is, but over a disk whose `calls` are exchanged while it runs."""

    def plant(real: Callable[..., Any]) -> Callable[..., Any]:
        def mistaken(self: Any, *arguments: Any) -> Any:
            files = self._files
            self._files = _Through(files, calls)
            try:
                return real(self, *arguments)
            finally:
                self._files = files

        return mistaken

    return plant


def _nothing(real: Callable[..., Any], *_: Any) -> None:
    """In place of a call: says yes and does nothing."""


# ---------------------------------------------------------------- what is acknowledged


def _ack_at_once(real: Callable[..., Any]) -> Callable[..., Any]:
    async def wsync(self: Journal, position: int | None = None, **_: object) -> None:
        return  # not even a checkpoint, in which the sync might happen all the same

    return wsync


def _sync_again(real: Callable[..., Any], fd: int) -> None:
    try:
        real(fd)
    except OSError:
        real(fd)


def _believe_write(real: Callable[..., Any], fd: int, buffers: Sequence[bytes | memoryview]) -> int:
    real(fd, buffers)
    return sum(len(buffer) for buffer in buffers)


def _forget_refused(real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: Commits, refusal: Refusal, *, first_seq: int) -> None:
        real(self, refusal, first_seq=first_seq)
        self._voids.clear()

    return refuse


def _give_again(real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: Commits, refusal: Refusal, *, first_seq: int) -> None:
        real(self, refusal, first_seq=first_seq)
        self.written = self.end

    return refuse


# ---------------------------------------------------------------- segments


def _begin_in_poisoned(real: Callable[..., Any]) -> Callable[..., Any]:
    def poison_and_go_on(self: Writer) -> None:
        assert self.segment is not None
        poisoned = self.segment

        def begin(start: Start) -> Segment:
            del self.__dict__["begin"]  # this once
            poisoned.end = start.first
            return poisoned

        self.__dict__["begin"] = begin

    return poison_and_go_on


def _trim_all(real: Callable[..., Any]) -> Callable[..., Any]:
    def trim(self: Journal, position: int) -> int:
        freed: int = real(self, self.end)
        return freed

    return trim


def _any_may_enter(real: Callable[..., Any]) -> Callable[..., Any]:
    def lock(self: Files, path: Path) -> int:
        return self._open(path, os.O_RDWR | os.O_CREAT)

    return lock


# ---------------------------------------------------------------- reading and recovery


def _believe_body(real: Callable[..., Any]) -> Callable[..., Any]:
    def body_holds(segment_id: bytes, position: int, header: frame_module.FrameHeader, body: bytes) -> bool:
        return len(body) == header.length

    return body_holds


def _unseeded(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda segment_id, position: 0


def _end_there(real: Callable[..., Any]) -> Callable[..., Any]:
    def next_good(self: Walker, position: int, end: int) -> int:
        return end

    return next_good


def _mend_unsynced(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda files, *arguments: real(_Through(files, {"sync": _nothing}), *arguments)


def _forget_ids(real: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: IdSource, *, journal: int, salt: int, clock: Clock, after_ms: int = 0) -> None:
        real(self, journal=journal, salt=salt, clock=clock)

    return init


# ---------------------------------------------------------------- journal to store


def _advance_first(real: Callable[..., Any]) -> Callable[..., Any]:
    async def apply(self: Ingest[Any], flight: Flight[Any]) -> bool:
        journal_id = self._journal.journal_id
        await self._store.skip(journal_id, self.lane, flight.start, flight.end)
        self._advance(flight.end)
        await self._settings.apply(journal_id, flight.end, flight.end, flight.records)
        return True

    return apply


def _rejoin_at_once(real: Callable[..., Any]) -> Callable[..., Any]:
    async def catch_up(self: Recovery, *given: object, **named: object) -> None:
        await trio.lowlevel.checkpoint()

    return catch_up


BUGS = {
    "ack-before-sync": Bug("a push is acknowledged before its sync", Commits, "wsync", _ack_at_once),
    "skip-sync": Bug("a commit is written and never synced", Writer, "commit", _with_calls(sync=_nothing)),
    "retry-failed-sync": Bug(
        "a failed sync is made again on the same file", Writer, "commit", _with_calls(sync=_sync_again)
    ),
    "ignore-short-write": Bug(
        "a write is taken for whole whatever it says", Writer, "_write_all", _with_calls(write=_believe_write)
    ),
    "forget-refused": Bug("who waits for what was refused is not told", Commits, "_refuse", _forget_refused),
    "reuse-positions": Bug("refused positions are given out again", Commits, "_refuse", _give_again),
    "skip-directory-sync": Bug(
        "a new segment's name is not synced", Writer, "begin", _with_calls(sync_directory=_nothing)
    ),
    "skip-sync-at-rotation": Bug(
        "a new segment gets its name before its head is on disk", Writer, "begin", _with_calls(sync=_nothing)
    ),
    "append-to-poisoned": Bug("after an error writing goes on in the same file", Writer, "_poison", _begin_in_poisoned),
    "miss-deletion": Bug(
        "nobody looks whether the file is still there",
        Writer,
        "commit",
        _with_calls(in_place=lambda real, fd, path: True),
    ),
    "delete-unapplied": Bug("segments are deleted before the store has them", Journal, "trim", _trim_all),
    "share-directory": Bug("two daemons may use one directory", Files, "lock", _any_may_enter),
    "accept-torn-frame": Bug("a body's checksum is not looked at", segment_module, "body_holds", _believe_body),
    "unseeded-checksum": Bug("a frame is good in any place of any segment", frame_module, "_seed", _unseeded),
    "cut-at-first-bad": Bug("a journal ends at its first bad frame", Walker, "_next_good", _end_there),
    "trust-unsynced": Bug("what recovery found is read without a sync", recover_module, "_mend_newest", _mend_unsynced),
    "reuse-ids": Bug("ids begin anew at a start", IdSource, "__init__", _forget_ids),
    "advance-first": Bug("the read point moves before the jobs are applied", Ingest, "_apply", _advance_first),
    "rejoin-early": Bug("a seat is taken before outcomes are applied", Recovery, "_catch_up", _rejoin_at_once),
}
"""By name. Each is found by the test of the same name."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Make this mistake for the time of the block. KeyError when there is none of that name."""
    with BUGS[name].planted():
        yield
