"""Accepts pushed jobs from all APIs: checks a batch, reserves ids and keys, journals the jobs, and returns their
ids."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal

import msgspec
import trio
from msgspec import Raw, Struct

from jqd.domain.charge import FREE, Charge
from jqd.domain.errors import Closed, Conflict, Fault, Incomplete, Invalid, JournalRefused, JqdError, StoreError
from jqd.domain.job_spec import JobSpec
from jqd.domain.record import Lane
from jqd.service.batch import Batch, in_order
from jqd.service.concurrent_pushes import InProgressPush
from jqd.service.flow_checks import names_of
from jqd.service.frames import Written, ids_in_order, in_part, write, write_parts
from jqd.service.id_reservations import Changes, ReservedIds, confirm_ids, has_names, refusals, release_ids, reserve_ids
from jqd.service.idempotency import expect_first, other_request, overtaken
from jqd.service.push_checks import (
    refuse_dates,
    refuse_foreign,
    refuse_orphans,
    refuse_replaced,
    refuse_uncalled,
    refuse_unset,
)
from jqd.service.push_links import PushLinks, expect_groups_seen, has_links
from jqd.service.server_only import any_reserved, expect_allowed
from jqd.service.services import Services
from jqd.service.unique import without_known
from jqd.store import Replace

Level = Literal["fsync", "memory", "store"]

_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


class Ack(Struct, frozen=True, gc=False):
    """How safe the jobs of a push must be, or are, when it is answered."""

    level: Level = "fsync"
    replicas: int = 0
    """How many replicas of the store must have the jobs; only with the level `store`."""


FSYNC = Ack()
NO_CHANGES: Changes = {}


class Pushed(Struct, frozen=True, gc=False):
    """The result of a push."""

    job_ids: Sequence[str | None]
    """Ids in the order of the request; None for refused jobs."""
    ack: Ack | None
    """The level of safety reached; None if no job is new."""
    duplicates: Sequence[str] = ()
    """Ids that repeated jobs got: of jobs pushed before with the same content, or of jobs with the same unique key."""
    refused: Sequence[Fault] = ()


def expect_open(services: Services, *, under_pressure: bool = True) -> None:
    """Raise Closed if the daemon refuses pushes now. Called before a request is read or anything is written.

    `under_pressure`: also raise Overloaded if the daemon has too much to do already.
    """
    reason = services.control.push_ready()
    if reason is not None:
        raise Closed(reason, full=services.journal.refusing_full)
    if under_pressure and (pressed := services.control.pressed()) is not None:
        raise pressed


async def push(services: Services, batch: Batch, wanted: Ack = FSYNC, *, atomic: bool = False) -> Pushed:
    """Push jobs. Returns when the accepted jobs are as safe as `wanted` says. `atomic`: accept all jobs or none.

    Raises Denied, Invalid or Conflict if no job can be accepted, Incomplete, JournalRefused; and for jobs with pushers'
    own ids, which only the store knows: NotYet, IdsUnknown, StoreRefused.
    """
    if not services.principal.is_server:
        names = {job.name for job in batch.jobs} if batch.plain else names_of(batch.jobs)
        expect_allowed(services, map(services.qualified_name, names))
    if services.principal.scopes:
        batch = refuse_foreign(services, batch)
    if not batch.plain:
        batch = refuse_uncalled(services, refuse_dates(services, batch))
        batch = await refuse_replaced(services, await refuse_unset(services, batch))
        batch = batch if batch.is_own else await refuse_orphans(services, batch)
        if services.principal.scopes:
            await expect_groups_seen(services, batch.jobs)
    if batch.refused and not batch.single and atomic:
        wrong = len({fault.place for fault in batch.refused})
        why = f"nothing was taken: it is all of them or none, and {wrong} are wrong"
        raise Incomplete(why, batch.shown(batch.refused))
    if not batch.jobs:
        raise _all_refused(batch)
    if not services.principal.tenant:
        return await _push(services, batch, wanted, FREE, atomic=atomic)
    with await services.hooks.reserve(services, len(batch.jobs), len(batch.array)) as charge:
        return await _push(services, batch, wanted, charge, atomic=atomic)


async def _push(services: Services, batch: Batch, wanted: Ack, charge: Charge, *, atomic: bool) -> Pushed:
    if batch.plain or not has_links(batch.jobs):
        return await _push_good(services, batch, wanted, charge, None, atomic=atomic)
    async with PushLinks(services) as links:
        left, known = await without_known(services, batch, links)
        if not left.jobs:
            return Pushed(known.ids(()), None, known.duplicates(()), batch.shown(batch.refused))
        pushed = await _push_good(services, left, wanted, charge, links, atomic=atomic)
        if left is batch:
            return pushed
        refused = [*batch.refused, *known.faults(pushed.refused)]
        duplicates = [*pushed.duplicates, *known.duplicates(pushed.job_ids)]
        return Pushed(known.ids(pushed.job_ids), pushed.ack, duplicates, batch.shown(in_order(refused)))


async def _push_good(
    services: Services, batch: Batch, wanted: Ack, charge: Charge, links: PushLinks | None, *, atomic: bool
) -> Pushed:
    if batch.plain and wanted is FSYNC and not batch.refused:  # nearly all pushes, so in as few steps as possible
        frame = write(services, batch.array, batch.jobs, NO_CHANGES)
        await services.journal.wsync(frame.position, shielded=True)
        if charge is not FREE:  # nearly all are free, and need no partitions
            charge.taken(services.partitions_of(frame.job_ids), len(batch.array))
        services.control.entered(frame.job_ids, batch.jobs, services.principal.tenant)
        return Pushed(frame.job_ids, wanted)
    if not batch.plain and has_names(batch.jobs):
        expect_first(batch)
        async with _claim(services, batch) as in_progress:
            return await _push_named(services, batch, wanted, charge, in_progress, links, atomic=atomic)
    if links is not None:
        await links.join(batch.jobs)
    taken = await take(services, batch.array, batch.jobs, wanted, charge=charge, links=links)
    if not batch.refused:
        return Pushed(taken.job_ids, taken.ack)
    return Pushed(batch.ids_of_all(taken.job_ids), taken.ack, refused=batch.shown(batch.refused))


def _claim(services: Services, batch: Batch) -> AbstractAsyncContextManager[InProgressPush]:
    """Return a context (`async with`) during which other pushes of the same Idempotency-Key, or of the same own ids
    without `replace`, wait."""
    if batch.key:
        name = f"{services.qualified_name(batch.key)} {batch.request}"
        return services.concurrent_pushes.claim_names({name}, is_request=True)
    names = {services.qualified_name(job.job_id) for job in batch.jobs if job.job_id is not None and not job.replace}
    return services.concurrent_pushes.claim_names(names)


async def _push_named(
    services: Services,
    batch: Batch,
    wanted: Ack,
    charge: Charge,
    in_progress: InProgressPush,
    links: PushLinks | None,
    *,
    atomic: bool,
) -> Pushed:
    """Push jobs with pushers' own ids. A job that was pushed before is not pushed again; a job with other content under
    the same id is refused."""
    agreed = await _reserve(services, batch)
    refused = refusals(batch, agreed)
    if refused and batch.single:
        raise Conflict(refused[0].detail, batch.shown(refused))
    if refused and atomic:
        await release_ids(services, agreed)
        why = f"nothing was taken: it is all of them or none, and {len(refused)} ids are taken"
        raise Conflict(why, batch.shown(refused))
    lapsed: set[int] = set()

    async def confirmed(places: Sequence[int], frame: Written) -> None:
        lapsed.update(await confirm_ids(services, agreed, frame.position, places, frame.callbacks))
        if batch.key and lapsed:
            raise overtaken()
        if batch.key and places[-1] == len(agreed.jobs) - 1:
            in_progress.mark_stored()

    taken: Accepted | None = None
    if links is not None:
        await _join(services, batch, agreed, links)
    if agreed.jobs:
        parts = _parts(agreed, "" if atomic else batch.key)
        taken = await take(
            services,
            agreed.array,
            agreed.jobs,
            wanted,
            agreed.changes,
            charge=charge,
            request=agreed.request,
            parts=parts,
            confirmed=confirmed,
            links=links,
        )
    refused = refusals(batch, agreed)
    new = [job_id for place, job_id in enumerate(taken.job_ids if taken else ()) if place not in lapsed]
    if refused and batch.single:
        raise Conflict(refused[0].detail, batch.shown(refused))
    if refused and not new and not agreed.known:
        raise Conflict(f"none of the {batch.size} jobs can be taken", batch.shown(refused))
    ids = iter(new)
    good = (agreed.known.get(n) or (None if n in agreed.refused else next(ids)) for n in range(len(batch.jobs)))
    ack = taken.ack if taken and new else None
    return Pushed(batch.ids_of_all(good), ack, sorted(agreed.known.values()), batch.shown(refused))


async def _join(services: Services, batch: Batch, agreed: ReservedIds, links: PushLinks) -> None:
    """Reserve places in groups for the new jobs, and confirm the places of jobs that were pushed before. If that fails,
    release the reserved ids."""
    try:
        await links.confirm_known([batch.jobs[place] for place in agreed.known], agreed.ids)
        await links.join(agreed.jobs)
    except JqdError:
        await release_ids(services, agreed)
        raise


def _parts(agreed: ReservedIds, key: str) -> Sequence[Sequence[int]]:
    """Split the jobs of a push into parts, as indexes in `agreed.jobs`. Each part is journaled when the part before is
    synced and confirmed.

    With an Idempotency-Key (`key`) the job that stands for the request is the first part, and all other jobs the
    second. So whatever fails, the other jobs are in no journal while another request may still get the key. Without a
    key, jobs with own ids are the first part and jobs without ids the second, as they are in different lanes of the
    journal. If there is one kind only, all jobs are one part: all are journaled or none (adr/0010)."""
    places = range(len(agreed.jobs))
    if key and len(places) > 1 and agreed.jobs[0].job_id == key:
        return places[:1], places[1:]
    if 0 < len(agreed.changes) < len(places):
        return sorted(agreed.changes), [place for place in places if place not in agreed.changes]
    return (places,)


async def _reserve(services: Services, batch: Batch) -> ReservedIds:
    """Reserve the names of a batch. With an Idempotency-Key, all are reserved or the whole request is refused."""
    # A principal that may not change every job takes no id of a cancelled job, unless by `replace`, which is checked.
    is_any = not batch.key and not services.principal.scopes and not any_reserved(services)
    agreed = await reserve_ids(services, batch, over=batch.over if is_any else Replace.NONE)
    if batch.key and agreed.refused:
        raise other_request()
    return agreed


def _all_refused(batch: Batch) -> Invalid:
    first = batch.refused[0]
    where = first.pointer.lstrip("/") or "the job"
    detail = f"{where}: {first.detail}" if batch.single else f"none of the {batch.size} jobs can be taken"
    return Invalid(detail, batch.shown(batch.refused))


class Accepted(Struct, frozen=True, gc=False):
    """The result of journaling jobs: the ids and the safety level that the pusher gets."""

    job_ids: list[str]
    ack: Ack
    """The level of safety reached."""
    frame: Written
    """The last frame written for these jobs."""


async def take(
    services: Services,
    array: bytes,
    jobs: list[JobSpec],
    wanted: Ack = FSYNC,
    changes: Changes | None = None,
    *,
    charge: Charge = FREE,
    request: str = "",
    parts: Sequence[Sequence[int]] = (),
    confirmed: Callable[[Sequence[int], Written], Awaitable[None]] | None = None,
    links: PushLinks | None = None,
) -> Accepted:
    """Journal checked jobs. Returns when they are as safe as `wanted` says. `array`: the jobs as MessagePack.

    `changes`: what the store reserved for pushers' own ids; those ids are returned. `charge`: the reserved quota.
    `request`: digest of a request with an Idempotency-Key. `parts`: indexes of the jobs of each part that is journaled
    by itself. `confirmed`: called when a part with own ids is synced; if it raises, the next part is not written, so
    that a client may push all again. `links`: group places and unique keys. If the store is too slow, the level `store`
    becomes `fsync`. Raises JournalRefused: then nothing may be acknowledged."""
    changes = changes or {}
    several = write_parts(services, array, jobs, changes, parts, request) if len(parts) > 1 else None
    written: list[Written] = []
    try:
        for frame in several or (write(services, array, jobs, changes, request=request),):
            # Also for `memory` if there are links: other pushes rely on the job that has a key, so it must be on disk.
            if wanted.level != "memory" or links is not None:
                # Shielded: a pusher that hangs up must not stop a sync that others wait for.
                await services.journal.wsync(frame.position, shielded=True)
            if wanted.level == "memory" and frame.lane is Lane.CHANGES:
                services.journal.unsure_to = frame.position
            written.append(frame)
            if charge is not FREE:
                charge.taken(services.partitions_of(frame.job_ids), frame.size_bytes)
            its = [jobs[place] for place in frame.places] if several else jobs
            services.control.entered(frame.job_ids, its, services.principal.tenant)
            if links is not None:
                links.journaled(its, frame.job_ids)
            if confirmed is not None and frame.lane is Lane.CHANGES and wanted.level != "memory":
                with trio.CancelScope(shield=True):  # the next parts are written, too, if the pusher hangs up
                    await confirmed(frame.places or range(len(jobs)), frame)
            if links is not None:
                places = frame.places or range(len(jobs))
                revisions = {at: changes[place][1] for at, place in enumerate(places) if place in changes}
                await links.confirm(frame, revisions)
    except JournalRefused as error:
        if not 0 < len(written) < len(parts):
            raise
        raise in_part(error, written) from error
    job_ids = written[0].job_ids if len(written) == 1 else ids_in_order(written)
    names = job_ids
    if changes:
        names = [str(jobs[index].job_id) if index in changes else job_id for index, job_id in enumerate(job_ids)]
    if wanted.level == "store" and not await _safe_in_store(
        services, written, wanted.replicas, services.where(*job_ids)
    ):
        wanted = FSYNC
    return Accepted(names, wanted, written[-1])


async def _safe_in_store(services: Services, written: Sequence[Written], replicas: int, where: Collection[int]) -> bool:
    """Wait, up to `store_s`, until the partitions `where` of the store have applied these frames and would keep them in
    a crash. Return whether they would. `replicas`: how many replicas must have the frames, too."""
    deadline_s = trio.current_time() + services.config.store_s
    for frame in written:
        left_s = max(0.0, deadline_s - trio.current_time())
        if not await services.control.wait_caught_up(frame.lane, frame.position, left_s, where):
            return False
    try:
        return await services.store.wait_durable(replicas, max(0.1, deadline_s - trio.current_time()), where)
    except StoreError:
        return False
