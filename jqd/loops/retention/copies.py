"""Notes what retention has copied of a piece of the journal to its end."""

from dataclasses import dataclass, field

from jqd.domain.record import Lane


@dataclass(slots=True)
class JournalCopies:
    """How far a piece of the journal was copied, kept when the disk refuses: what was synced stays done."""

    start: int
    end: int
    unfinished: set[str]
    behind: dict[Lane, int] = field(default_factory=dict)
    """Position up to which a lane's frames are copied and synced."""
    ids: set[str] = field(default_factory=set)
    """Ids of jobs that were copied."""
    generations: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    done_at: int | None = None
    """Where the journal ended when all was copied."""
    owed_behind: int | None = None
    """Position up to which outcomes whose followers wait for a quota are written once more and synced."""
    ends_written: bool = False
    """The outcomes of those that ended meanwhile are written behind the copies, durably."""
    applied_at_ms: list[int] | None = None
    """By the clock of each partition: all followers of outcomes of the piece were in the outbox before."""
    patient_until_s: float = 0.0
    """Until when followers are waited for, by the monotonic clock."""
    has_waiting: bool = False
    """Whether some followers were not pushed then, or waited for a quota: only outcomes of the piece have them."""
