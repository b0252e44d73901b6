"""Writes pushed jobs into frames of the journal."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from jqd.domain.errors import JournalRefused
from jqd.domain.flow import CALLBACK, unique_key
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import homes_of
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.domain.tenant import annotate
from jqd.service.callbacks import append_callbacks, write_ahead
from jqd.service.id_reservations import Changes
from jqd.service.job_limits import eligible_at_ms
from jqd.service.services import Services

_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


class Written(Struct, frozen=True, gc=False):
    """A frame that was written to the journal: its position, the ids of its jobs, and their indexes in the request."""

    lane: Lane
    position: int
    """The journal's position after the frame."""
    job_ids: list[str]
    size_bytes: int
    """Bytes of the frame's jobs as they were pushed."""
    places: Sequence[int] = ()
    """Indexes in the request of the frame's jobs; empty if the frame has all jobs of the request."""
    callbacks: Mapping[int, str] = {}
    """Index in the request of a job with a pusher's own id → id of its callback."""


def write(
    services: Services,
    array: bytes,
    jobs: Sequence[JobSpec],
    changes: Changes,
    *,
    life: str = "",
    request: str = "",
) -> Written:
    """Write jobs and their callbacks to the journal in one frame. Return the frame.

    `changes`: ids and revisions that the store gave for pushers' own ids; empty: the journal assigns ids. `life`: the
    store's life in which it gave these ids; set for pushes that must not be applied after the store lost data.
    `request`: digest of the whole request, if it has an Idempotency-Key.
    """
    tenant = services.principal.tenant
    names: list[str] = []
    called: list[int] = []
    for place, job in enumerate(jobs):
        home = unique_key(job.name, job.unique) if job.unique else job.name  # a job is in the partition of its key
        names.append(annotate(tenant, home) if tenant else home)
        if job.callback is not None and job.name != CALLBACK:
            called.append(place)
    callbacks: Mapping[int, str] = {}
    if called and changes:
        callbacks = write_ahead(services, jobs, called, changes)
        called = []
    if called:
        names += [names[place] for place in called]
    ids = services.journal.ids.take(len(names), homes_of(names))
    if called:
        array = append_callbacks(array, jobs, called, ids)
    now_ms = services.clock.wall_ms()
    eligible: dict[int, int] = {}
    for index, job in enumerate(jobs):
        delay = job.debounce if job.delay is None and job.run_at is None else job.delay
        if (delay is not None or job.run_at is not None) and (at_ms := eligible_at_ms(job.run_at, delay, now_ms)):
            eligible[index] = at_ms
    options = services.options.left_out(jobs, tenant) if services.options.has_defaults else []
    if len(options) == 1 and len(options[0][1]) == len(names):
        options = [(options[0][0], [])]
    head = Head(ids.first, now_ms, eligible, changes, ids.homes, life, options, request=request, tenant=tenant)
    lane = Lane.CHANGES if changes else Lane.JOBS
    position = services.journal.write(lane, len(names), encode_jobs(head, array))
    if changes:
        job_ids = [changes[index][0] for index in range(len(jobs))]
        return Written(lane, position, job_ids, len(array), callbacks=callbacks)
    services.journal.ids.note(ids.first, position, tenant)
    return Written(lane, position, [ids.first] if len(jobs) == 1 else ids.ids()[: len(jobs)], len(array))


def write_parts(
    services: Services,
    array: bytes,
    jobs: Sequence[JobSpec],
    changes: Changes,
    parts: Sequence[Sequence[int]],
    request: str,
) -> Iterator[Written]:
    """Write a request to the journal in several frames, and yield each. A frame is written only when the caller asks
    for the next item.

    `parts`: for each frame the indexes of its jobs in the request."""
    items = _items_decoder.decode(array)
    for places in parts:
        part_changes = {index: changes[place] for index, place in enumerate(places) if place in changes}
        part_array = _encoder.encode([items[place] for place in places])
        frame = write(services, part_array, [jobs[place] for place in places], part_changes, request=request)
        callbacks = {places[index]: job_id for index, job_id in frame.callbacks.items()}
        yield structs.replace(frame, places=places, callbacks=callbacks)


def in_part(error: JournalRefused, written: Sequence[Written]) -> JournalRefused:
    """Return the error for a request of which only some jobs could be journaled. Its text says how many were, and that
    they will run.

    `error`: why the other jobs were refused. `written`: the frames in the journal."""
    count = sum(len(frame.job_ids) for frame in written)
    why = f"{count} of its jobs were written before, and will run: send the same request again, these count once"
    return JournalRefused(f"{error}; {why}", full=error.full)


def ids_in_order(written: Sequence[Written]) -> list[str]:
    """Return the ids of the jobs in all frames, in the order of the request."""
    rows = [row for frame in written for row in zip(frame.places, frame.job_ids, strict=True)]
    return [job_id for _, job_id in sorted(rows)]
