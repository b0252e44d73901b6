"""Ids that pushers choose for their jobs: requests to reserve and confirm them, and the store's answers."""

import enum
from typing import NamedTuple


class NameState(enum.StrEnum):
    """What becomes of a push under its pusher's own id."""

    NEW = "new"
    REPLACE = "replace"
    """It replaces the job that has the id."""
    DUPLICATE = "duplicate"
    """The same content was pushed before."""
    CONFLICT = "conflict"
    """A job with another content has the id, and must not be replaced."""
    PROMISED = "promised"
    """The id is reserved for another content, which may come; if not, it is free after `name_reserve_s`."""


class NameStanding(enum.IntEnum):
    """What the store knows of a job under its pusher's own id once the job is in a journal."""

    LOST = 0
    """Its reservation ended, and another content has the name."""
    STANDS = 1
    """It has its name, or had it until it was replaced."""
    OVERTAKEN = 2
    """Its reservation ended, and the content that it was to replace was changed: that one stays."""


class Replace(enum.IntEnum):
    """Which job with the same name a push may replace."""

    NONE = 0
    ANY = 1
    CANCELLED = 2
    """A cancelled one, by another content: the same content may be a repeat of the push that was cancelled."""
    ENDED = 3
    """One that has ended in any way."""


class NameWanted(NamedTuple):
    """A request: a job that is about to be journaled wants this id."""

    name: str
    job_id: str
    """The job's id, unless another job has the name."""
    digest: str
    """`content_digest` of its content."""
    replace: int
    """A `Replace`."""


class NameGiven(NamedTuple):
    state: NameState
    job_id: str
    """The job that has or will have the name."""
    revision: int
    """The revision of the content that may be journaled; 0: it must not be."""
    life: str = ""
    """The life of the store that gave the name."""


class NameJournaled(NamedTuple):
    """A job under its pusher's own id that is in a journal."""

    name: str
    job_id: str
    digest: str
    revision: int
    replaces: bool = False
    """Whether it was to replace another job."""
