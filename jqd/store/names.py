"""Pushers' own ids of jobs, as the store is asked for them and as it answers."""

import enum
from typing import NamedTuple


class Verdict(enum.StrEnum):
    """What a pusher's own id means for his job."""

    NEW = "new"
    REPLACE = "replace"
    """It takes the place of the job that stands under that id."""
    DUPLICATE = "duplicate"
    """The same content was pushed before."""
    CONFLICT = "conflict"
    """Another content stands there, and must not be replaced."""
    PROMISED = "promised"
    """Another content was given it, and may be on its way: free again in `name_reserve_s` if that does not come."""


class Standing(enum.IntEnum):
    """What is known of a job under a pusher's own id, when it is in a journal."""

    LOST = 0
    """Its reservation was over and another content has the name."""
    STANDS = 1
    """Under its name, or it did until it was replaced."""
    OVERTAKEN = 2
    """Its reservation was over, and a change was made of the content that it was to replace: that one stays."""


class Replace(enum.IntEnum):
    """Which job may lose its place to a push under its name."""

    NONE = 0
    ANY = 1
    CANCELLED = 2
    """One that was cancelled, by a push with another content: the same may repeat what came before the cancel."""
    ENDED = 3
    """One that has ended, in whatever way."""


class NameWanted(NamedTuple):
    """A pusher's own id for a job that is about to be journaled."""

    name: str
    job_id: str
    """To be used unless a job stands under that name already."""
    digest: str
    """Of its content, `record.content_digest`."""
    replace: int
    """A `Replace`."""


class NameGiven(NamedTuple):
    """What the store says to that."""

    verdict: Verdict
    job_id: str
    """The job that stands, or will stand, under that name."""
    revision: int
    """Of the content that may be journaled now; 0 when it must not be."""
    life: str = ""
    """Of the store that gave it."""


class NameJournaled(NamedTuple):
    """A job under a pusher's own id that is in a journal now."""

    name: str
    job_id: str
    digest: str
    revision: int
    replaces: bool = False
    """It was to take the place of whatever stood there."""
