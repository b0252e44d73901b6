"""Arranges outcomes and jobs in groups that share some values, as the Lua functions take them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jqd.domain.job import Fate, Job, Outcome
from jqd.store.codec import encode_job, encode_outcome, lines_of

SUCCEEDED, RETRY, ENTRUSTED = Fate.SUCCEEDED, Fate.RETRY, Fate.ENTRUSTED  # attributes of an enum are slow to read
BROUGHT = "="
"""Marks an outcome whose followers are in the same call; no entry of an outbox begins with it."""
SUCCEEDED_WITH_MORE = 6
"""The fate that functions get for a success that has followers or printed something."""
_PLACED = {fate: fate.value for fate in Fate} | {Fate.FAILED: Fate.DEAD.value}
"""Fate → its number for functions. A job that failed for good is DEAD: it stays until somebody deals with it
(adr/0001).
"""


def grouped(outcomes: Iterable[Outcome], followers: Mapping[int, Sequence[Job]]) -> list[Any]:
    """Return outcomes as arguments of apply_outcomes.lua: values that consecutive outcomes share are given once.

    `followers`: index of an outcome → the followers that it brings."""
    brought = _brought(followers)
    flat: list[Any] = [len(brought), *brought]
    common: tuple[int, int, str, object] | None = None
    count_at = 0
    for place, one in enumerate(outcomes):
        fate = _PLACED[one.fate]
        if fate == SUCCEEDED and (one.follows or one.log):
            fate = SUCCEEDED_WITH_MORE
        extra = _extra(one)
        if common != (its := (fate, one.fence, one.jobtype, extra)):
            common, count_at = its, len(flat) + 4
            flat += (*its, 0)
        flat[count_at] += 1
        # With the generation of the content that ran, unless it is the first.
        job_id = f"{one.job_id}:{one.generation}" if one.generation else one.job_id
        flat += (job_id, b"" if fate == ENTRUSTED else encode_outcome(one))
        if fate == SUCCEEDED_WITH_MORE:
            flat.append(_bringing(followers[place]) if place in followers else one.follows)
    return flat


def _bringing(followers: Sequence[Job]) -> str:
    """Return what stands for an outcome's `follows` in a call that brings these followers as jobs: "=", and behind it,
    if retention copied them, the two positions of `Job.copied`."""
    copied = followers[0].copied
    return f"{BROUGHT}{copied[0]} {copied[1]}" if copied else BROUGHT


def _brought(followers: Mapping[int, Sequence[Job]]) -> list[Any]:
    groups: dict[tuple[str, int, int, int], list[Any]] = {}
    for job, place in sorted(((job, place) for place, jobs in followers.items() for job in jobs), key=_id_of_first):
        groups.setdefault(common_of(job), []).extend((job.id, encode_job(job), job.name, place))
    flat: list[Any] = []
    for common, fields in groups.items():
        flat += (*common, len(fields) // 4, *fields)
    return flat


def _id_of_first(pair: tuple[Job, int]) -> str:
    return pair[0].id


def common_of(job: Job) -> tuple[str, int, int, int]:
    """Return the values that all jobs of one group share (arrive.lua)."""
    return job.jobtype + job.queue, job.priority, job.eligible_at_ms, job.expires_at_ms


def _extra(outcome: Outcome) -> bytes | str:
    """Return what the function needs besides the packed outcome; apply_outcomes.lua describes it."""
    if outcome.fate is SUCCEEDED:
        result = outcome.result if outcome.keep_result else b""
        if not outcome.follows and not outcome.log:
            return result
        return b"%d %b%b" % (len(result), result, _log(outcome))
    if outcome.fate is RETRY:
        described = f"{outcome.attempt} {outcome.priority} {outcome.delay_ms}"
        return b"%b\n%b" % (described.encode(), _log(outcome)) if outcome.log else described
    if outcome.fate is ENTRUSTED:
        return f"{max(1, outcome.delay_ms // 1000)} {outcome.worker}"
    return _log(outcome)


def _log(outcome: Outcome) -> bytes:
    return b"%d %b" % (outcome.log_from, lines_of(outcome.log)) if outcome.log else b""
