"""Pushes the jobs that follow others. Each job is pushed once, however often the push is tried, and by whichever
daemon."""

from collections.abc import Container, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec
import trio
from msgspec import Raw
from msgspec.structs import replace

from jqd.chaining.outbox import UNREADABLE, OutboxResult, OverQuota
from jqd.domain.charge import FREE, Charge
from jqd.domain.errors import JournalRefused, JqdError, StoreAway
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.followers import Item, read_entry
from jqd.domain.job_spec import FOLLOWER_DIGEST, JobSpec
from jqd.domain.jobid import is_made, partition_of_name
from jqd.domain.log import get_logger
from jqd.domain.outcome_followers import Options, need_push
from jqd.domain.tenant import annotate
from jqd.service.batch import DETAIL_LENGTH_MAX, Batch
from jqd.service.find import exists
from jqd.service.id_reservations import NAMES_PER_CALL, ReservedIds, confirm_ids, reserve_ids
from jqd.service.principal import Principal
from jqd.service.push import take
from jqd.service.push_links import PushLinks, has_links
from jqd.service.services import Services
from jqd.tenants.quota_service import reserve_owed
from jqd.tenants.quotas import Quotas

ALL_HERE = frozenset({0})  # of a store that is one partition

_jobs_decoder = msgspec.msgpack.Decoder(list[JobSpec])
_fields_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


class Follower(NamedTuple):
    """One entry of an outbox, decoded: the jobs that follow one parent."""

    entry: bytes
    parent: str
    tenant: str
    items: list[Raw]
    jobs: list[JobSpec]
    charge: Charge = FREE
    """The room in the tenant's quota that is reserved for these jobs."""


async def follow(services: Services, entries: Sequence[bytes], *, from_shelf: bool = False) -> OutboxResult:
    """Push the jobs of outbox entries, as far as their tenants' quotas have room. Returns the entries that have to
    wait.

    `from_shelf`: whether the entries have waited for a quota until now. Raises JournalRefused.
    """
    children = list[tuple[str, str]]()
    done = OutboxResult({}, {}, children)
    refused: list[JournalRefused] = []

    async def push(homes: frozenset[int], some: Sequence[Follower]) -> None:
        began_s = services.clock.mono_s()
        try:
            if (why := services.partition_breaker.why(homes, began_s)) is not None:
                done.waits.update((each.entry, why) for each in some)
                return
            tenant = some[0].tenant
            own = services.as_principal(Principal(tenant)) if tenant else services
            done.waits.update(await _push(own, some, children))
        except JournalRefused as error:
            refused.append(error)  # raised below: the nursery would wrap it in a group
        except JqdError as error:
            if isinstance(error, StoreAway):
                now_s = services.clock.mono_s()
                services.partition_breaker.note(homes, str(error), took_s=now_s - began_s, now_s=now_s)
            done.waits.update((each.entry, str(error)) for each in some)

    with ExitStack() as charges:
        found = await _within(services, _read(entries, done.waits), done.over, charges, shelf=from_shelf)
        async with trio.open_nursery() as nursery:
            for homes, some in _by_partition(services, found):
                nursery.start_soon(push, homes, some)
    if refused:
        raise refused[0]
    return done


async def _within(
    services: Services,
    found: Iterable[Follower],
    over: dict[str, OverQuota],
    charges: ExitStack,
    *,
    shelf: bool,
) -> list[Follower]:
    """Return the entries for which their tenants' quotas have room, and add the other entries to `over` (tenant →
    entries). If one entry of a tenant has to wait, all later entries of that tenant wait, too. The reservations in the
    quotas are entered into `charges`, which settles them when it is closed."""
    admitted: list[Follower] = []
    for each in found:
        charge: Charge | str = FREE
        if each.tenant in over:
            over[each.tenant].entries.append(each.entry)
            continue
        if each.tenant in services.feature(Quotas).known:
            if shelf or not services.control.waits_for_quota(each.tenant):
                size_bytes = sum(len(bytes(item)) for item in each.items)
                charge = await reserve_owed(services, each.tenant, len(each.jobs), size_bytes)
            else:
                charge = f"others of tenant {each.tenant!r} wait for its quota already"
        if charge is FREE:  # nearly always
            admitted.append(each)
        elif isinstance(charge, str):
            over[each.tenant] = OverQuota(charge, [each.entry])
        else:
            admitted.append(each._replace(charge=charges.enter_context(charge)))
    return admitted


def _read(entries: Iterable[bytes], waits: dict[bytes, str]) -> list[Follower]:
    """Decode entries and return them. Entries that cannot be decoded are added to `waits`, with the reason; the health
    report shows them."""
    found = []
    for entry in entries:
        try:
            parent, tenant, raw = read_entry(entry)
            jobs = _jobs_decoder.decode(raw)
            if not jobs or any(job.job_id is None for job in jobs):
                raise ValueError("it has no jobs, or one without an id")
            found.append(Follower(entry, parent, tenant, _items_decoder.decode(raw), jobs))
        except DECODE_ERRORS as error:
            waits[entry] = f"{UNREADABLE}: {str(error)[:DETAIL_LENGTH_MAX]}"
    return found


def _by_partition(services: Services, found: Iterable[Follower]) -> list[tuple[frozenset[int], list[Follower]]]:
    """Group entries into batches of one tenant and the same partitions, so that a partition which is away delays no
    others."""
    parts: dict[tuple[str, frozenset[int]], list[list[Follower]]] = {}
    sizes: dict[tuple[str, frozenset[int]], int] = {}  # jobs in the last batch
    for each in found:
        where = _homes(services, each) if services.partitions > 1 else ALL_HERE
        part = each.tenant, where
        batches = parts.setdefault(part, [[]])
        if batches[-1] and sizes[part] + len(each.jobs) > NAMES_PER_CALL:
            batches.append([])
            sizes[part] = 0
        batches[-1].append(each)
        sizes[part] = sizes.get(part, 0) + len(each.jobs)
    return [(where, some) for (_, where), batches in parts.items() for some in batches]


def _homes(services: Services, each: Follower) -> frozenset[int]:
    named = [name for job in each.jobs for name in (job.job_id, job.group) if name is not None]
    return frozenset(partition_of_name(annotate(each.tenant, name), services.partitions) for name in named)


async def _push(services: Services, some: Sequence[Follower], children: list[tuple[str, str]]) -> dict[bytes, str]:
    """Push the jobs of these entries. Returns entry → why it has to wait. Adds (parent, child) pairs to `children`."""
    owners = [each for each in some for _ in each.jobs]
    jobs = [job for each in some for job in each.jobs]
    items = [item for each in some for item in each.items]
    batch = Batch(False, len(jobs), _encoder.encode(items), jobs)
    agreed = await reserve_ids(services, batch)
    if agreed.jobs:
        async with PushLinks(services, follows=True) as links:
            if has_links(agreed.jobs):
                agreed = _outside(agreed, await links.join(agreed.jobs))
            taken = await take(services, agreed.array, agreed.jobs, changes=agreed.changes, links=links)
        for place, (owner, item) in enumerate(zip(owners, items, strict=True)):
            if owner.charge is not FREE and place not in agreed.known and place not in agreed.refused:
                home = partition_of_name(annotate(owner.tenant, str(jobs[place].job_id)), services.partitions)
                owner.charge.taken([home], len(bytes(item)))
        await confirm_ids(services, agreed, taken.frame.position, _chosen(agreed), taken.frame.callbacks)
    ids = agreed.ids
    children += (
        (each.parent, ids[name]) for each, job in zip(owners, jobs, strict=True) if (name := str(job.job_id)) in ids
    )
    waits: dict[bytes, str] = {}
    for place, why in agreed.refused.items():
        job_id, owner = str(jobs[place].job_id), owners[place]
        if not await exists(services, job_id):
            waits[owner.entry] = why
        elif not is_made(job_id):
            # Its parent chose the id. As with any push, the job that has the id already stays.
            get_logger("outbox").error("outbox.refused", parent=owner.parent, job_id=job_id, why=why)
    return waits


def _outside(agreed: ReservedIds, groups: Container[str | None]) -> ReservedIds:
    """Return `agreed` with `groups` removed from its jobs, so that applying the journal does not add the jobs to these
    groups."""
    fields, jobs = _fields_decoder.decode(agreed.array), list(agreed.jobs)
    for place, job in enumerate(agreed.jobs):
        if job.group in groups:
            del fields[place]["group"]
            jobs[place] = replace(job, group=None)
    return agreed._replace(array=_encoder.encode(fields), jobs=jobs)


def options_of(services: Services, tenant: str, items: Sequence[Item]) -> Options | None:
    """Return the registered default options for followers that leave them out. None if the followers cannot be part of
    the outcome and have to be pushed, because their tenant has a quota or they need more than an outcome can carry."""
    if need_push(items) or tenant in services.feature(Quotas).known:
        return None
    if not services.options.has_defaults:
        return []
    return services.options.left_out(_jobs_decoder.decode(_encoder.encode(items)), tenant)


def _chosen(agreed: ReservedIds) -> list[int]:
    """Return the indexes of jobs whose ids were chosen by their parent's worker. Another push may want the same id, so
    the caller has to confirm these ids.

    An id that jqd derived from the parent's id is never given to another job. If its outbox entry is pushed again, the
    job gets the same revision again.
    """
    return [place for place, digest in enumerate(agreed.digests) if digest != FOLLOWER_DIGEST]
