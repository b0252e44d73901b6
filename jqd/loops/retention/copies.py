"""Notes which records of a piece (range of positions) of the journal were copied to the journal's end."""

from dataclasses import dataclass, field

from jqd.domain.record import Lane


@dataclass(slots=True)
class JournalCopies:
    """How far a piece of the journal was copied, so that copying goes on there after the disk refused a write."""

    start: int
    end: int
    unfinished: set[str]
    """Ids of the jobs to copy."""
    behind: dict[Lane, int] = field(default_factory=dict)
    """Lane → position up to which its frames are copied and synced."""
    ids: set[str] = field(default_factory=set)
    """Ids of jobs that were copied."""
    generations: dict[str, int] = field(default_factory=dict)
    """Id of a changed job → its greatest revision in the piece."""
    bytes: int = 0
    done_at: int | None = None
    """End of the journal when everything was copied; None: copying is not finished."""
    owed_behind: int | None = None
    """Position up to which outcomes whose followers wait for a quota were written again and synced."""
    ends_written: bool = False
    """Whether outcomes of copied jobs that ended meanwhile are written behind the copies and synced."""
    applied_at_ms: list[int] | None = None
    """For each partition, the time (ms) by its clock before which followers in the piece came to the outbox."""
    patient_until_s: float = 0.0
    """Until when (s, monotonic clock) to wait for followers to be pushed."""
    has_waiting: bool = False
    """Whether some followers were not pushed by then, or wait for a quota: only the piece's outcomes have them."""
