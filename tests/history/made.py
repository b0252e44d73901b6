"""Jobs and outcomes with what counts."""

from typing import Any

from jqd.domain.job import Fate, Job, Outcome


def job(job_id: str, **named: Any) -> Job:
    return Job(job_id, "mail", **named)


def outcome(job_id: str, fate: Fate, *, ms: int = 0, reason: str = "") -> Outcome:
    return Outcome(job_id, 1, fate, "mail", 0, 1, started_at_ms=5_000, finished_at_ms=5_000 + ms, reason=reason)
