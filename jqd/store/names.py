"""Ids that pushers choose for their jobs: requests to reserve and confirm them, and the store's answers."""

import enum
from typing import NamedTuple


class NameState(enum.StrEnum):
    """What becomes of a push whose pusher chose the job's id."""

    NEW = "new"
    REPLACE = "replace"
    """The pushed job replaces the job that has the id."""
    DUPLICATE = "duplicate"
    """The same content was pushed before."""
    CONFLICT = "conflict"
    """A job with another content has the id, and must not be replaced."""
    PROMISED = "promised"
    """The id is reserved for another content, which may still come; if not, it is free after `name_reserve_s`."""


class NameStanding(enum.IntEnum):
    """What the store knows of a job whose pusher chose its id, once the job is in a journal."""

    LOST = 0
    """The job's reservation ended, and another content has the id."""
    STANDS = 1
    """The job has its id, or had it until it was replaced."""
    OVERTAKEN = 2
    """The job's reservation ended, and the content that it was to replace was changed: the changed content stays."""


class Replace(enum.IntEnum):
    """Which job with the same id (name) a push may replace."""

    NONE = 0
    ANY = 1
    CANCELLED = 2
    """A cancelled job, by another content: the same content may be a repeat of the push that was cancelled."""
    ENDED = 3
    """A job that has ended in any way."""


class NameWanted(NamedTuple):
    """A request to reserve the id that a pusher chose, for a job that is about to be journaled."""

    name: str
    job_id: str
    """The id that the job gets, unless another job has the name."""
    digest: str
    """`content_digest` of its content."""
    replace: int
    """A value of `Replace`."""


class NameGiven(NamedTuple):
    state: NameState
    job_id: str
    """The id of the job that has or will have the name."""
    revision: int
    """The revision of the content that may be journaled; 0: none may be."""
    life: str = ""
    """The life of the store that gave the name."""


class NameJournaled(NamedTuple):
    """A job in a journal whose pusher chose its id."""

    name: str
    job_id: str
    digest: str
    revision: int
    replaces: bool = False
    """Whether it was to replace another job."""
