"""What becomes of the reports of one request: which count, which are refused, which wait for what was said before."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jqd.domain.errors import JournalRefused, JqdError
from jqd.domain.job import Outcome
from jqd.domain.record import Lane
from jqd.service.recent_outcomes import RecentOutcome
from jqd.service.services import Services


@dataclass(slots=True)
class OutcomeBatch:
    """What becomes of the reports of one request."""

    answers: dict[int, JqdError | None] = field(default_factory=dict)
    """By place; None: taken."""
    fresh: dict[int, Outcome] = field(default_factory=dict)
    """They count, and are to be journaled."""
    written: dict[int, Outcome] = field(default_factory=dict)
    """They are journaled, up to `position`."""
    position: int = 0
    claims: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    """The same by job and fence."""
    refused: dict[tuple[str, int], JournalRefused] = field(default_factory=dict)
    """Of these claims nothing could be written: what is said of them once more in the request is refused, too."""
    returned: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Claims to be given back."""
    awaited: dict[int, RecentOutcome] = field(default_factory=dict)
    """Said before: that is to be on disk first."""
    workers: set[str] = field(default_factory=set)
    """Who is heard of."""
    points: dict[int, int] = field(default_factory=dict)
    """By partition: up to where the store had the outcomes of our journal when it was last asked who holds the jobs."""
    ended: dict[str, Outcome] = field(default_factory=dict)
    """How attempts had ended here then, by job: the runner forgets them as soon as the store knows."""

    is_last: bool = False
    """Whether no job is looked for once more."""

    def ask(self, services: Services, job_ids: Sequence[str]) -> None:
        """The store is asked now, all of one partition: what it is told from here on its answer need not know."""
        (partition,) = services.where(job_ids[0])
        self.points[partition] = services.journal.read_point(Lane.OUTCOMES, partition)
        for job_id in job_ids:
            if (ended := services.runner.ended(job_id)) is not None:
                self.ended[job_id] = ended

    def count(self, place: int, outcome: Outcome) -> None:
        self.fresh[place] = self.claims[outcome.job_id, outcome.fence] = outcome
