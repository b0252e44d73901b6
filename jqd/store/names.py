"""Pushers' own ids of jobs: requests to reserve and confirm them, and the store's answers."""

import enum
from typing import NamedTuple


class NameState(enum.StrEnum):
    """What a pusher's own id means for the job."""

    NEW = "new"
    REPLACE = "replace"
    """It replaces the job under that id."""
    DUPLICATE = "duplicate"
    """The same content was pushed before."""
    CONFLICT = "conflict"
    """A job with another content has the id, and must not be replaced."""
    PROMISED = "promised"
    """Reserved for another content, which may be on its way: free in `name_reserve_s` if that does not come."""


class NameStanding(enum.IntEnum):
    """What is known of a job under a pusher's own id, when it is in a journal."""

    LOST = 0
    """Its reservation was over and another content has the name."""
    STANDS = 1
    """Under its name, or it was until it was replaced."""
    OVERTAKEN = 2
    """Its reservation was over, and the content that it was to replace was changed: that one stays."""


class Replace(enum.IntEnum):
    """Which jobs a push under their name may replace."""

    NONE = 0
    ANY = 1
    CANCELLED = 2
    """One that was cancelled, by a push with another content: the same may be a repeat of what was cancelled."""
    ENDED = 3
    """One that has ended, in whatever way."""


class NameWanted(NamedTuple):
    """A pusher's own id for a job that is about to be journaled."""

    name: str
    job_id: str
    """To be used unless a job has that name already."""
    digest: str
    """The digest of its content (`content_digest`)."""
    replace: int
    """A `Replace`."""


class NameGiven(NamedTuple):
    state: NameState
    job_id: str
    """The job that has, or will have, that name."""
    revision: int
    """The revision of the content that may be journaled now; 0 when it must not be."""
    life: str = ""
    """The life of the store that gave the name."""


class NameJournaled(NamedTuple):
    """A job under a pusher's own id that is in a journal now."""

    name: str
    job_id: str
    digest: str
    revision: int
    replaces: bool = False
    """Whether it was to replace the job that had the name."""
