"""Which of two versions of a handler claims jobs, and which one takes only what is drawn for it."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.runner.worker import Worker


class VersionRoom(NamedTuple):
    worker: Worker
    is_well: bool
    """False: it was backed off and has not answered since, or a suspect has it to itself."""
    room: int
    """How many jobs it takes now."""


def follower(versions: Sequence[VersionRoom]) -> VersionRoom | None:
    """Return the version that takes only what is drawn for it while the other claims; None where there is one alone.

    Of two that are well it is the one with the smaller share, also while the other is full: it takes never more than
    that. One that is not well claims only where the other has no room: else all jobs would wait for its probe's end.
    """
    if len(versions) < 2:
        return None
    if all(one.is_well for one in versions):
        return min(versions, key=lambda one: one.worker.share)
    return min(versions, key=lambda one: (one.room > 0, one.is_well, one.worker.share))
