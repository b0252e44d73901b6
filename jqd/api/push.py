"""POST /v1/jobs: body → journal → ids. The hot call is plain data in and out: any listener can stand before it."""

import msgspec
import trio

from jqd.api.message import Request, Response, answer
from jqd.api.parts import Parts
from jqd.api.problems import RETRY_AFTER_S, Problem
from jqd.api.schema import Batch, eligible_at_ms, parse_push
from jqd.jobid import IdRange
from jqd.record import Head, Lane, PushedJob, encode_jobs

ACKS = ("fsync", "memory")


async def push(parts: Parts, request: Request) -> Response:
    """Take one job or many. 201 means: on this daemon's disk, synced (unless `?ack=memory` asked for less).

    Raises Problem: 400, 413, 415, 422 for what is wrong with the request, 503 or 507 when nothing can be taken now.
    """
    query = request.query()
    ack = query.get("ack", "fsync")
    if ack not in ACKS:
        raise Problem(422, f"ack={ack[:32]} is not supported yet; there are {' and '.join(ACKS)}")
    if "replicas" in query:
        raise Problem(422, "replicas is not supported yet; leave it out")
    ready_or_problem(parts)
    batch = parse_push(request, parts.config)
    language = request.answer_language()
    if batch.refused and (batch.single or not batch.jobs):
        raise _all_refused(batch)
    if batch.refused and query.get("atomic", "0") not in ("", "0", "false"):
        raise Problem(400, "nothing was taken: atomic=1 was asked for and some jobs are wrong", errors=_errors(batch))
    ids = await take(parts, batch.array, batch.jobs, ack)
    if batch.single:
        location = {"location": f"/v1/jobs/{ids[0]}"}
        return answer(201, {"job_id": ids[0], "ack": ack}, language, location)
    if not batch.refused:
        return answer(201, {"job_ids": ids, "ack": ack}, language)
    return answer(207, {"job_ids": _spread(batch, ids), "ack": ack, "errors": _errors(batch)}, language)


def ready_or_problem(parts: Parts) -> None:
    """Raise 503 or 507 when pushes are refused now, before anything is read or written."""
    reason = parts.control.push_ready()
    if reason is not None:
        full = parts.journal.refusing_full
        raise Problem(507 if full else 503, reason, retry_after_s=RETRY_AFTER_S)


async def take(parts: Parts, array: bytes, jobs: list[PushedJob], ack: str = "fsync") -> list[str]:
    """Journal checked jobs (`array`: the same ones as MessagePack) and return their ids once they are durable.

    Raises JournalRefused: nothing may be acknowledged.
    """
    ids: IdRange = parts.journal.ids.take(len(jobs))
    now_ms = parts.clock.wall_ms()
    eligible = {
        index: at_ms
        for index, job in enumerate(jobs)
        if (job.delay is not None or job.run_at is not None) and (at_ms := eligible_at_ms(job, now_ms))
    }
    position = parts.journal.write(Lane.JOBS, len(jobs), encode_jobs(Head(ids.first, now_ms, eligible), array))
    if ack == "fsync":
        # A pusher that hangs up does not stop what others wait for; it only never hears the answer.
        with trio.CancelScope(shield=True):
            await parts.journal.wsync(position)
    names = ids.ids()
    parts.control.entered(names, jobs)
    return names


def one(job: PushedJob) -> bytes:
    """A MessagePack array of this one job, for surfaces that speak other words than ours."""
    return msgspec.msgpack.encode([job])


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
