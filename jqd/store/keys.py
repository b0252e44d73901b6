"""Spells the names of all keys; nothing else in Python does. All keys of a partition have one hash tag, so a cluster
keeps them together.

Functions in Lua get the beginning of all names, and `lua/shared/base.lua` adds the rest. A name in STEMS is followed by
a colon and what the function appends: a jobtype, a sysid, or what `pages.lua`, `leases.lua` and `limits.lua` say.
"""

import re

from jqd.domain.errors import ConfigError
from jqd.domain.record import Lane

# name:type; docs/build/STORE.md says what each holds.
_SPELLED = """
    jobs:hash ready:zset types:zset later:zset held:zset fence:string tries:hash ended:zset dead:zset outcome:hash
    result:hash results:zset tombstones:zset applied:hash members:hash life:hash about:hash names:hash generation:hash
    asked:zset deaths:hash rules:hash backlog:zset page:list paged:hash index:zset leases:hash beats:zset ruled:zset
    alive:zset logs:hash logged:zset counts:hash outbox:zset keyed:hash queues:zset tied:hash throttled:zset
    limits:hash due:zset again:zset spent:hash busy:zset expiring:zset aged:hash
    shelf:zset shelves:zset loose:zset kept:hash watched:zset pieces:hash large:hash spare:zset
    links:zset linked:zset children:zset parents:hash groups:zset
    grouped:zset unique:hash notices:string history:hash historic:zset died:hash
"""
KINDS = dict(pair.split(":") for pair in _SPELLED.split())
_STEMS = (
    "ready held asked backlog page beats queues throttled busy shelf loose pieces children parents grouped history "
    "historic"
)
STEMS = frozenset(_STEMS.split())

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Keys:
    """The names of one partition's keys."""

    def __init__(self, prefix: str, partition: int = 0) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(f"the store prefix {prefix!r} is wrong: use 1 to 64 letters, digits, '_', '.' or '-'")
        self.stem = f"{{{prefix}:{partition}}}:"
        """The text before each key's name."""

    def __getitem__(self, name: str) -> str:
        """Return the key called `name`; for a name in STEMS, the part before the colon."""
        if name not in KINDS:
            raise KeyError(name)
        return self.stem + name

    def ready(self, jobtype: str) -> str:
        """Return the key of a jobtype's ready jobs."""
        return f"{self['ready']}:{jobtype}"

    def held(self, sysid: str) -> str:
        """Return the key of the jobs that a daemon has in flight."""
        return f"{self['held']}:{sysid}"


def lane_field(journal_id: str, lane: Lane) -> str:
    """Return the field of the hash `applied` that has a lane's position."""
    return f"{journal_id}:{lane.name.lower()}"


def last_field(journal: int) -> str:
    """Return the field of the hash `applied` that has the last job id applied from the journal of that number."""
    return f"last:{journal}"
