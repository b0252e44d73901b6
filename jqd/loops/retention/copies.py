"""Notes which records of a piece of the journal retention has copied to the journal's end."""

from dataclasses import dataclass, field

from jqd.domain.record import Lane


@dataclass(slots=True)
class JournalCopies:
    """How far a piece of the journal was copied, to go on there after the disk refused."""

    start: int
    end: int
    unfinished: set[str]
    """Ids of jobs to be copied."""
    behind: dict[Lane, int] = field(default_factory=dict)
    """Position up to which a lane's frames are copied and synced."""
    ids: set[str] = field(default_factory=set)
    """Ids of jobs that were copied."""
    generations: dict[str, int] = field(default_factory=dict)
    """Id of a changed job → its greatest revision in the piece."""
    bytes: int = 0
    done_at: int | None = None
    """End of the journal when all was copied; None: not all is."""
    owed_behind: int | None = None
    """Position up to which outcomes whose followers wait for a quota were written again and synced."""
    ends_written: bool = False
    """Whether outcomes of copied jobs that ended meanwhile are written behind the copies and synced."""
    applied_at_ms: list[int] | None = None
    """By the clock of each partition: followers of the piece's outcomes came to the outbox before that."""
    patient_until_s: float = 0.0
    """Until when followers are waited for, by the monotonic clock."""
    has_waiting: bool = False
    """Whether some followers were not pushed then, or waited for a quota: only the piece's outcomes have them."""
