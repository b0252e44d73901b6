"""Chooses which of two versions of a handler claims jobs for both; the other takes only what is drawn for it."""

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
    """Return the version that takes only what is drawn for it while the other claims; None: there is only one.

    Of two that are well it is the one with the smaller share, even while the other is full: so it never gets more than
    its share. A version that is not well claims only where the other has no room: else all jobs would wait for its
    probe.
    """
    if len(versions) < 2:
        return None
    if all(version.is_well for version in versions):
        return min(versions, key=lambda version: version.worker.share)
    return min(versions, key=lambda version: (version.room > 0, version.is_well, version.worker.share))
