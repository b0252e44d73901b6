"""POST /v1/jobs: body → journal → ids. The hot call is plain data in and out: any listener can stand before it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec
import trio
from msgspec import Raw

from jqd.api.batch import Batch, Refusal, parse_push
from jqd.api.message import Request, Response, answer
from jqd.api.names import Changes, agree, confirm, has_names, refusals
from jqd.api.parts import Parts
from jqd.api.problems import RETRY_AFTER_S, Problem
from jqd.api.schema import eligible_at_ms
from jqd.words.errors import StoreError
from jqd.words.jobid import IdRange, homes_of
from jqd.words.record import Head, Lane, PushedJob, encode_jobs

ACKS = ("fsync", "memory", "store")
REPLICAS_MAX = 100  # nobody has more; a number above it is a mistake

_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


async def push(parts: Parts, request: Request) -> Response:
    """Take one job or many. 201 means: on this daemon's disk, synced (unless `?ack=memory` asked for less).

    Raises Problem: 400, 413, 415, 422 for what is wrong with the request, 503 or 507 when nothing can be taken now.
    """
    wanted, atomic = _ack_wanted(request), request.flag("atomic")
    ready_or_problem(parts)
    batch = parse_push(request, parts.config)
    language = request.answer_language()
    if batch.refused and not batch.single and atomic:
        raise Problem(400, "nothing was taken: atomic=1 was asked for and some jobs are wrong", errors=_errors(batch))
    if not batch.jobs:
        raise _all_refused(batch)
    if has_names(batch.jobs):
        return await _push_named(parts, request, batch, wanted, atomic=atomic)
    taken = await take(parts, batch.array, batch.jobs, wanted)
    ids, reached = taken.job_ids, taken.ack.named()
    if batch.single:
        return answer(201, {"job_id": ids[0], **reached}, language, {"location": _location(ids[0])})
    if not batch.refused:
        return answer(201, {"job_ids": ids, **reached}, language)
    return answer(207, {"job_ids": _spread(batch, ids), **reached, "errors": _errors(batch)}, language)


async def _push_named(parts: Parts, request: Request, batch: Batch, wanted: "Ack", *, atomic: bool) -> Response:
    """As `push`, where pushers chose ids: 200 for the same again, 409 for another job under the same id.

    Raises StoreAway: only the store knows whose an id is.
    """
    agreed = await agree(parts, batch)
    language = request.answer_language()
    refused = refusals(batch, agreed)
    if batch.single:
        name = str(batch.jobs[0].job_id)
        if refused:
            raise _has_other_content(refused)
        if agreed.known:
            return answer(200, {"job_id": name, "duplicate": True}, language, {"location": _location(name)})
    elif refused and atomic:
        batch.refused = refused
        raise Problem(400, "nothing was taken: atomic=1 was asked for and some ids are taken", errors=_errors(batch))
    taken = await take(parts, agreed.array, agreed.jobs, wanted, agreed.changes) if agreed.jobs else None
    lapsed = await confirm(parts, agreed) if taken and wanted.level != "memory" else set()
    refused = refusals(batch, agreed)
    new = [job_id for place, job_id in enumerate(taken.job_ids if taken else ()) if place not in lapsed]
    reached = taken.ack.named() if taken and new else {}
    if batch.single and refused:
        raise _has_other_content(refused)
    if batch.single:
        return answer(201, {"job_id": new[0], **reached}, language, {"location": _location(new[0])})
    unread = {refusal.index for refusal in batch.refused}
    ids = iter(new)
    good = (agreed.known.get(n) or (None if n in agreed.refused else next(ids)) for n in range(len(batch.jobs)))
    body: dict[str, object] = {"job_ids": [None if n in unread else next(good) for n in range(batch.size)], **reached}
    batch.refused = refused
    if refused and not new and not agreed.known:
        raise Problem(409, f"none of the {batch.size} jobs can be taken", errors=_errors(batch))
    if agreed.known:
        body["duplicates"] = sorted(agreed.known.values())
    if refused:
        body["errors"] = _errors(batch)
    return answer(207 if refused else 201 if new else 200, body, language)


def _has_other_content(refused: Sequence[Refusal]) -> Problem:
    return Problem(409, refused[0].detail, errors=[{"pointer": r.pointer, "detail": r.detail} for r in refused])


def _location(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


class Ack(NamedTuple):
    """How safe jobs are when they are answered."""

    level: str = "fsync"
    replicas: int = 0
    """Of the store; only with the level `store`."""

    def named(self) -> dict[str, object]:
        """The members of an answer that say so."""
        return {"ack": self.level, "replicas": self.replicas} if self.replicas else {"ack": self.level}


def _ack_wanted(request: Request) -> Ack:
    """Raises Problem 422."""
    query = request.query()
    replicas = query.get("replicas", "0")
    if not (replicas.isascii() and replicas.isdecimal()) or int(replicas[:9]) > REPLICAS_MAX:
        raise Problem(422, f"replicas is a whole number from 0 to {REPLICAS_MAX}, not {replicas[:32]!r}")
    level = query.get("ack", "store" if int(replicas) else "fsync")
    if level not in ACKS:
        raise Problem(422, f"there is no ack level {level[:32]!r}; there are {', '.join(ACKS)}")
    if int(replicas) and level != "store":
        raise Problem(422, f"replicas={replicas} is about the store: ask for ack=store, not ack={level}")
    return Ack(level, int(replicas))


def ready_or_problem(parts: Parts) -> None:
    """Raise 503 or 507 when pushes are refused now, before anything is read or written."""
    reason = parts.control.push_ready()
    if reason is not None:
        full = parts.journal.refusing_full
        raise Problem(507 if full else 503, reason, retry_after_s=RETRY_AFTER_S)


FSYNC = Ack()


class Accepted(NamedTuple):
    """What was promised to the pusher."""

    job_ids: list[str]
    ack: Ack
    """The level reached."""


async def take(
    parts: Parts, array: bytes, jobs: list[PushedJob], wanted: Ack = FSYNC, changes: Changes | None = None
) -> Accepted:
    """Journal checked jobs (`array`: the same ones as MessagePack); returns when they are as safe as `wanted` says.

    `changes`: what the store agreed to for those whose ids their pusher chose; such an id is the one that is answered.

    When the store is not there in time, `store` comes down to `fsync`. Raises JournalRefused: nothing may be
    acknowledged.
    """
    if changes and len(changes) < len(jobs):
        written = _write_both(parts, array, jobs, changes)
    else:
        written = [_write(parts, array, jobs, changes or {})]
    if wanted.level != "memory":
        # A pusher that hangs up does not stop what others wait for; it only never hears the answer.
        with trio.CancelScope(shield=True):
            for frame in written:
                await parts.journal.wsync(frame.position)
    job_ids = written[0].job_ids if len(written) == 1 else _in_order(written)
    names = job_ids.copy()
    for index in changes or ():
        names[index] = str(jobs[index].job_id)
    parts.control.entered(job_ids, jobs)
    if wanted.level == "store" and not await _safe_in_store(parts, written, wanted.replicas, parts.where(*job_ids)):
        return Accepted(names, FSYNC)
    return Accepted(names, wanted)


class _Written(NamedTuple):
    """A frame."""

    lane: Lane
    position: int
    """Behind it."""
    job_ids: list[str]
    places: Sequence[int] = ()
    """Of its jobs in the request, where others are in another frame."""


def _write(parts: Parts, array: bytes, jobs: Sequence[PushedJob], changes: Changes) -> _Written:
    """One frame: of changes if that is what these are, all of them."""
    ids: IdRange = parts.journal.ids.take(len(jobs), homes_of([job.name for job in jobs]))
    now_ms = parts.clock.wall_ms()
    eligible = {
        index: at_ms
        for index, job in enumerate(jobs)
        if (job.delay is not None or job.run_at is not None) and (at_ms := eligible_at_ms(job, now_ms))
    }
    head = Head(ids.first, now_ms, eligible, changes, ids.homes)
    lane = Lane.CHANGES if changes else Lane.JOBS
    position = parts.journal.write(lane, len(jobs), encode_jobs(head, array))
    if changes:
        return _Written(lane, position, [changes[index][0] for index in range(len(jobs))])
    parts.taken.note(ids.first, parts.journal.ids.last_id, position)
    return _Written(lane, position, ids.ids())


def _write_both(parts: Parts, array: bytes, jobs: Sequence[PushedJob], changes: Changes) -> list[_Written]:
    """Jobs with ids of their own and jobs without, of one request: each kind has its lane."""
    items = _items_decoder.decode(array)
    written = []
    for places in sorted(changes), [place for place in range(len(jobs)) if place not in changes]:
        its = {index: changes[place] for index, place in enumerate(places) if place in changes}
        some = _encoder.encode([items[place] for place in places])
        frame = _write(parts, some, [jobs[place] for place in places], its)
        written.append(frame._replace(places=places))
    return written


def _in_order(written: Sequence[_Written]) -> list[str]:
    """The ids of all, as the request has its jobs."""
    return [job_id for _, job_id in sorted(row for one in written for row in zip(one.places, one.job_ids, strict=True))]


async def _safe_in_store(parts: Parts, written: Sequence[_Written], replicas: int, where: Collection[int]) -> bool:
    """Whether the store has applied these frames and would survive a crash with them, in the time there is."""
    deadline_s = trio.current_time() + parts.config.store_s
    for frame in written:
        left_s = max(0.0, deadline_s - trio.current_time())
        if not await parts.control.wait_caught_up(frame.lane, frame.position, left_s, where):
            return False
    try:
        return await parts.store.wait_durable(replicas, max(0.1, deadline_s - trio.current_time()), where)
    except StoreError:
        return False


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
