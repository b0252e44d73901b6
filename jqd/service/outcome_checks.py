"""What becomes of the reports of one request: which count, which are refused, which wait for what was said before."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jqd.domain.errors import JournalRefused, JqdError, TooLarge, Unreadable
from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX
from jqd.domain.job import Outcome
from jqd.domain.record import Lane
from jqd.service.batch import read_array
from jqd.service.config import ServiceConfig
from jqd.service.principal import in_scope
from jqd.service.recent_outcomes import RecentOutcome
from jqd.service.services import Services

NO_REPLACE = (
    "a job that follows another cannot replace one: it may be pushed again after a loss, and would take the place of"
    " what came since; push it by itself, or under another job_id"
)


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


def wrong(config: ServiceConfig, follows: bytes, scopes: Sequence[str] = ()) -> str:
    """What is wrong with jobs that a worker wants to follow one; nothing when they can be pushed.

    They are pushed later, for their parent's tenant, whoever told of them: so what jobtypes they may be is asked now.
    `scopes`: of the token that the worker tells of them with, or was registered with where they come in an answer.
    """
    if len(follows) > FOLLOWERS_BYTES_MAX:
        return f"they have {len(follows)} bytes, at most {FOLLOWERS_BYTES_MAX} can follow one job"
    try:
        batch = read_array(follows, False, config)
    except (Unreadable, TooLarge) as error:
        return str(error)
    if batch.refused:
        first = batch.refused[0]
        return f"jobs/{first.place}{first.pointer}: {first.detail}"
    if batch.size > FOLLOWERS_MAX:
        return f"they are {batch.size}, at most {FOLLOWERS_MAX} can follow one job"
    for place, job in enumerate(batch.jobs):
        if scopes and not in_scope(scopes, job.name):
            return f"jobs/{place}/name: the worker's token is not for jobs {job.name[:64]!r}"
        if job.replace:
            return f"jobs/{place}/replace: {NO_REPLACE}"
    chosen = [job.job_id for job in batch.jobs if job.job_id is not None]
    return "" if len(set(chosen)) == len(chosen) else "two of them have the same job_id"
