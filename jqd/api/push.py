"""POST /v1/jobs: body → journal → ids. The hot call is plain data in and out: any listener can stand before it."""

from typing import NamedTuple

import trio

from jqd.api.batch import Batch, parse_push
from jqd.api.message import Request, Response, answer
from jqd.api.parts import Parts
from jqd.api.problems import RETRY_AFTER_S, Problem
from jqd.api.schema import eligible_at_ms
from jqd.jobid import IdRange
from jqd.record import Head, Lane, PushedJob, encode_jobs

ACKS = ("fsync", "memory", "store")


async def push(parts: Parts, request: Request) -> Response:
    """Take one job or many. 201 means: on this daemon's disk, synced (unless `?ack=memory` asked for less).

    Raises Problem: 400, 413, 415, 422 for what is wrong with the request, 503 or 507 when nothing can be taken now.
    """
    query = request.query()
    ack = query.get("ack", "fsync")
    if ack not in ACKS:
        raise Problem(422, f"there is no ack level {ack[:32]!r}; there are {', '.join(ACKS)}")
    if "replicas" in query:
        raise Problem(422, "replicas is not supported yet; leave it out")
    ready_or_problem(parts)
    batch = parse_push(request, parts.config)
    language = request.answer_language()
    if batch.refused and not batch.single and request.flag("atomic"):
        raise Problem(400, "nothing was taken: atomic=1 was asked for and some jobs are wrong", errors=_errors(batch))
    if not batch.jobs:
        raise _all_refused(batch)
    taken = await take(parts, batch.array, batch.jobs, ack)
    ids = taken.job_ids
    if batch.single:
        location = {"location": f"/v1/jobs/{ids[0]}"}
        return answer(201, {"job_id": ids[0], "ack": taken.ack}, language, location)
    if not batch.refused:
        return answer(201, {"job_ids": ids, "ack": taken.ack}, language)
    body = {"job_ids": _spread(batch, ids), "ack": taken.ack, "errors": _errors(batch)}
    return answer(207, body, language)


def ready_or_problem(parts: Parts) -> None:
    """Raise 503 or 507 when pushes are refused now, before anything is read or written."""
    reason = parts.control.push_ready()
    if reason is not None:
        full = parts.journal.refusing_full
        raise Problem(507 if full else 503, reason, retry_after_s=RETRY_AFTER_S)


class Accepted(NamedTuple):
    """What was promised to the pusher."""

    job_ids: list[str]
    ack: str
    """The level reached."""


async def take(parts: Parts, array: bytes, jobs: list[PushedJob], ack: str = "fsync") -> Accepted:
    """Journal checked jobs (`array`: the same ones as MessagePack); returns when they are as safe as `ack` says.

    When the store is not there in time, `store` comes down to `fsync`. Raises JournalRefused: nothing may be
    acknowledged.
    """
    ids: IdRange = parts.journal.ids.take(len(jobs))
    now_ms = parts.clock.wall_ms()
    eligible = {
        index: at_ms
        for index, job in enumerate(jobs)
        if (job.delay is not None or job.run_at is not None) and (at_ms := eligible_at_ms(job, now_ms))
    }
    position = parts.journal.write(Lane.JOBS, len(jobs), encode_jobs(Head(ids.first, now_ms, eligible), array))
    parts.taken.note(ids.first, parts.journal.ids.last_id, position)
    if ack != "memory":
        # A pusher that hangs up does not stop what others wait for; it only never hears the answer.
        with trio.CancelScope(shield=True):
            await parts.journal.wsync(position)
    names = ids.ids()
    parts.control.entered(names, jobs)
    if ack == "store" and not await parts.control.wait_applied(Lane.JOBS, position, parts.config.store_s):
        ack = "fsync"
    return Accepted(names, ack)


def _all_refused(batch: Batch) -> Problem:
    errors = _errors(batch)
    first = batch.refused[0]
    where = first.pointer.lstrip("/") or "the job"
    detail = f"{where}: {first.detail}" if batch.single else f"none of the {batch.size} jobs can be taken"
    return Problem(422, detail, errors=errors)


def _errors(batch: Batch) -> list[dict[str, object]]:
    if batch.single:
        return [{"pointer": r.pointer, "detail": r.detail} for r in batch.refused]
    return [{"index": r.index, "pointer": f"/{r.index}{r.pointer}", "detail": r.detail} for r in batch.refused]


def _spread(batch: Batch, ids: list[str]) -> list[str | None]:
    """Ids at the places of the good jobs, None at the others."""
    bad = {refusal.index for refusal in batch.refused}
    rest = iter(ids)
    return [None if index in bad else next(rest) for index in range(batch.size)]
