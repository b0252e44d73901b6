"""Of two versions of a handler, one claims jobs for both. Chooses which; the other gets jobs only by random draw."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.runner.worker import Worker


class VersionRoom(NamedTuple):
    worker: Worker
    is_well: bool
    """Whether it may get jobs normally. False: it has not answered since it was backed off, or is reserved for a
    suspected job."""
    room: int
    """How many jobs it can take now."""


def follower(versions: Sequence[VersionRoom]) -> VersionRoom | None:
    """Return the version that gets jobs only by random draw, while the other version claims for both; None: there is
    only one.

    If both versions are well it is the one with the smaller share, even while the other is full, so that it never
    exceeds its share. A version that is not well claims only if the other has no room, or all jobs would wait for its
    probe."""
    if len(versions) < 2:
        return None
    if all(version.is_well for version in versions):
        return min(versions, key=lambda version: version.worker.share)
    return min(versions, key=lambda version: (version.room > 0, version.is_well, version.worker.share))
