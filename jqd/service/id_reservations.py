"""Reserves pushers' own job ids (names) in the store before jobs are journaled, so that one id means one job
everywhere."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import trio
from msgspec import Raw

from jqd.domain.errors import Fault, IdsUnknown, JournalRefused, NotYet, StoreAway, StoreError
from jqd.domain.job import ChangeKind, State
from jqd.domain.job_spec import FOLLOWER_DIGEST, KEPT, JobRecord, JobSpec, date_digest, digest_of, keyed_digest
from jqd.domain.jobid import homes_of, is_made, partition_of_name
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, cancel_of, encode_cancels, expires_at_ms
from jqd.service.batch import Batch, in_order
from jqd.service.find import once_settled
from jqd.service.idempotency import overtaken
from jqd.service.job_limits import eligible_at_ms
from jqd.service.key_returns import GIVE_BACK_S
from jqd.service.services import Services
from jqd.store import JobView, NameGiven, NameJournaled, NameStanding, NameState, NameWanted, Replace

DIFFERENCES_MAX = 10  # refused names of a request whose differences are looked up: each is a call of the store
NAMES_PER_CALL = 500  # each is four small steps in the store: one call stays below about 5 ms

Changes = dict[int, tuple[str, int, int, ChangeKind]]
"""Index of a job in its frame or list → its id, revision, generation and kind of change, as in `record.Head`."""

_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


class ReservedIds(NamedTuple):
    """The result of reserving names (pushers' own ids): which jobs of a batch may be journaled now, which were pushed
    before, and why the others are refused."""

    array: bytes
    """`jobs` as a MessagePack array."""
    jobs: list[JobSpec]
    changes: Changes
    known: dict[int, str]
    """Jobs that were pushed before with the same content: index in `Batch.jobs` → the pusher's id."""
    refused: dict[int, str]
    """Index in `Batch.jobs` → why the job is refused."""
    size: int
    """Number of jobs in `Batch.jobs`."""
    life: str = ""
    """The store's life in which it reserved the names. A new life begins when the store has lost data."""
    dated: bool = False
    """Whether these are jobs that schedules push for their dates."""
    request: str = ""
    """Digest of the request, if it has an Idempotency-Key."""
    ids: Mapping[str, str] = {}
    """Pusher's own id → the daemon's id of that job, for the jobs to be journaled and those in `known`."""

    digests: Sequence[str] = ()
    """Digest of the content of each job in `jobs`."""


def has_names(jobs: Sequence[JobSpec]) -> bool:
    """Return whether any of these jobs has an id that its pusher chose."""
    return any(job.job_id is not None for job in jobs)


async def reserve_ids(
    services: Services, batch: Batch, *, dated: bool = False, over: Replace = Replace.NONE
) -> ReservedIds:
    """Reserve the names (pushers' own ids) in a batch. Raises IdsUnknown, StoreRefused: no job of the batch is accepted
    then.

    `dated`: schedules push these jobs, whose names contain a date: jobs of the same name are repeats, whatever their
    content. `over`: which stored jobs lose their names to jobs of the batch that do not say `replace`."""
    items = _items_decoder.decode(batch.array)
    try:
        digests = [_digest(job, item, batch.request, dated=dated) for job, item in zip(batch.jobs, items, strict=True)]
        answers = await _ask(services, batch.jobs, digests, over)
    except StoreAway as error:
        why = "only the store knows whose a job_id is, so nothing of this push was taken; pushes without a job_id go on"
        raise IdsUnknown(f"{error}; {why}") from error
    agreed = ReservedIds(b"", [], {}, {}, {}, len(batch.jobs))
    kept: list[Raw] = []
    kept_digests: list[str] = []
    for place, job in enumerate(batch.jobs):
        given = answers.get(place)
        if given is None and job.job_id is not None:
            agreed.refused[place] = f"job_id {job.job_id!r} appears twice in this request; give each job its own"
            continue
        if given is not None and given.state is NameState.DUPLICATE:
            agreed.known[place] = str(job.job_id)
            continue
        if given is not None and given.state is NameState.CONFLICT:
            differ = (
                await _differing(services, given.job_id, job, items[place])
                if len(agreed.refused) < DIFFERENCES_MAX
                else ""
            )
            agreed.refused[place] = (
                f"another job stands under job_id {job.job_id!r}, with other content{differ}; {_advice(services)}"
            )
            continue
        if given is not None and given.state is NameState.PROMISED:
            agreed.refused[place] = (
                f"job_id {job.job_id!r} was given to another push with other content, which may be on its way: if that "
                "is not taken, the id is free again within half a minute (store.name_reserve_s)"
            )
            continue
        if given is not None:
            kind = ChangeKind.REPLACE if given.state is NameState.REPLACE else ChangeKind.NEW
            agreed.changes[len(kept)] = given.job_id, given.revision, given.revision, kind
        kept.append(items[place])
        kept_digests.append(digests[place])
        agreed.jobs.append(job)
    life = next((given.life for given in answers.values()), "")
    ids = {str(batch.jobs[n].job_id): given.job_id for n, given in answers.items() if n not in agreed.refused}
    array = batch.array if len(kept) == len(items) else _encoder.encode(kept)
    return agreed._replace(array=array, life=life, dated=dated, request=batch.request, ids=ids, digests=kept_digests)


async def release_ids(services: Services, agreed: ReservedIds) -> None:
    """Release the names of jobs that will not be journaled, so that they are free for other content at once. A stored
    job that was to be replaced keeps its name, and may be edited again a moment later."""
    wanted = [
        NameWanted(services.qualified_name(str(agreed.jobs[place].job_id)), job_id, agreed.digests[place], Replace.NONE)
        for place, (job_id, _, _, kind) in agreed.changes.items()
        if kind is ChangeKind.NEW
    ]
    try:
        with trio.move_on_after(GIVE_BACK_S):
            for at in range(0, len(wanted), NAMES_PER_CALL):
                await services.store.free_names(wanted[at : at + NAMES_PER_CALL])
    except StoreError as error:  # the pusher gets the error of the push; the names lapse by themselves soon
        get_logger("names").warning("names.kept", count=len(wanted), error=str(error))


async def confirm_ids(
    services: Services,
    agreed: ReservedIds,
    position: int,
    places: Iterable[int] | None = None,
    callbacks: Mapping[int, str] = {},
) -> set[int]:
    """Confirm to the store that jobs are in this daemon's journal, so that they are found as soon as they are
    acknowledged.

    `position`: the journal's position after their frame. `places`: indexes in `agreed.jobs` of the jobs to confirm;
    None: all. `callbacks`: index → id of the job's callback, which is cancelled if the job is.

    Returns the indexes in `agreed.jobs` of jobs that must not be acknowledged: while the disk was slow their
    reservations expired, and a job with other content got the name. They are refused in `agreed`, and cancelled in the
    journal before this returns. If a request with an Idempotency-Key has one such job, all of `places` are returned.

    Raises NotYet if the store is away, if a job that was to be replaced was edited meanwhile (the edit came later and
    stays), or if the journal refuses the cancels.
    """
    rows = {}
    for index in agreed.changes if places is None else [place for place in places if place in agreed.changes]:
        job_id, revision, _, kind = agreed.changes[index]
        name, digest = services.qualified_name(str(agreed.jobs[index].job_id)), agreed.digests[index]
        rows[index] = NameJournaled(name, job_id, digest, revision, kind is ChangeKind.REPLACE)
    due, stands, written = list(rows), list[NameStanding](), (services.journal.journal_id, position)
    try:
        for at in range(0, len(due), NAMES_PER_CALL):
            some = [rows[place] for place in due[at : at + NAMES_PER_CALL]]
            stands += await services.store.confirm_names(some, written)
    except StoreError as error:
        # Up to `written`, not `position`: jobs acknowledged with ack=memory may not be on disk yet.
        services.journal.unsure_to = services.journal.written
        raise NotYet(
            f"the jobs with a job_id are in the journal, but the store could not confirm their ids ({error}): "
            "push them again, the same push counts once"
        ) from error
    lost = {place for place, stays in zip(due, stands, strict=True) if stays is NameStanding.LOST}
    if lost and agreed.request:  # the other names contain the request's digest, so no other pusher was given them
        lost = set(due)
    if lost:
        get_logger("names").warning("names.lapsed", count=len(lost))
        among_good = [place for place in range(agreed.size) if place not in agreed.known | agreed.refused]
        for place in lost:
            agreed.refused[among_good[place]] = (
                f"while this job was written to disk another one was pushed under job_id "
                f"{agreed.jobs[place].job_id!r}, and has it now; this one is not taken; {_advice(services)}"
            )
        records = [cancel_of(rows[place].job_id, rows[place].revision) for place in sorted(lost)]
        records += [cancel_of(callbacks[place], 0) for place in sorted(lost & callbacks.keys())]
        try:
            position = services.journal.write(Lane.CANCELS, len(records), encode_cancels(records))
            await services.journal.wsync(position, shielded=True)
        except JournalRefused as error:
            raise _kept(agreed, sorted(lost), error) from error
    if NameStanding.OVERTAKEN in stands:
        raise NotYet(
            "a job that was to be replaced was changed while its replacement was written to disk: push it again"
        )
    return lost


def _kept(agreed: ReservedIds, lost: Sequence[int], refused: JournalRefused) -> NotYet:
    """Return the error for jobs that lost their names to other jobs, and may run all the same, as the journal refused
    to cancel them (error `refused`). `lost`: their indexes in `agreed.jobs`."""
    if agreed.request:
        return overtaken(refused)
    which = f"job_id {agreed.jobs[lost[0]].job_id!r}" + (f" and {len(lost) - 1} others" if len(lost) > 1 else "")
    return NotYet(
        f"{which} is another job's by now, which was pushed while this one was written to disk; this one could not be "
        f"taken back ({refused}) and may run. Push the same again: it says which ids are taken; the rest counts once"
    )


def _advice(services: Services) -> str:
    """Return advice for a pusher whose id is taken. For a token with scopes it is vaguer, since nobody checked whether
    that token may replace the other job."""
    if services.principal.scopes:
        return "choose another id, or replace it if it is of a jobtype that this token is for"
    return "a push with replace takes its place"


async def _differing(services: Services, job_id: str, job: JobSpec, item: Raw) -> str:
    """Return the names of the fields in which a pushed job differs from the stored job with the same id, for an error.
    A field left out counts as its registered default. Empty if the stored job cannot be read, or the principal may not
    see it."""
    try:
        view = await services.store.get_job(job_id)
    except StoreError:
        return ""
    if not isinstance(view, JobView) or not services.principal.can_access(view.jobtype):
        return ""
    record = msgspec.msgpack.decode(item, type=JobRecord)
    for options, _ in services.options.left_out([job], services.principal.tenant):
        for field, value in options.given():
            setattr(record, field, value)
    at_ms = view.created_at_ms
    eligible_ms = eligible_at_ms(record.run_at, record.delay, at_ms)
    pairs = {
        "name": (services.qualified_name(record.name), view.jobtype),
        "argument": (bytes(record.argument), view.argument),
        **{field: (getattr(record, field), getattr(view, field)) for field in KEPT if field != "keep_result"},
        "tags": (record.tags, view.tags),
        "run_at or delay": (eligible_ms, eligible_ms if view.state is State.RETRYING else view.eligible_at_ms),
        "expires_in": (expires_at_ms(record.expires_in, max(at_ms, eligible_ms)), view.expires_at_ms),
    }
    differ = [field for field, (pushed, stored) in pairs.items() if pushed != stored]
    return f" ({', '.join(differ)})" if differ else ""


def _digest(job: JobSpec, item: Raw, request: str, *, dated: bool) -> str:
    if job.job_id is None:
        return ""
    if request:
        return keyed_digest(job.job_id, request)
    if job.parent is not None and is_made(job.job_id):
        return FOLLOWER_DIGEST
    return date_digest(job.job_id) if dated else digest_of(item)


async def _ask(
    services: Services, jobs: Sequence[JobSpec], digests: Sequence[str], over: Replace
) -> dict[int, NameGiven]:
    """Reserve the names of jobs in the store. Returns index of the job → answer. If a name appears twice, only its
    first job gets an answer."""
    places: dict[str, int] = {}
    for place, job in enumerate(jobs):
        if job.job_id is not None:
            places.setdefault(services.qualified_name(job.job_id), place)
    # A pusher's own id may come with any jobtype, so its partition follows from the id alone.
    ids = services.journal.ids.take(len(places), homes_of(list(places))).ids()
    wanted = [
        NameWanted(name, job_id, digests[place], Replace.ANY if jobs[place].replace else over)
        for (name, place), job_id in zip(places.items(), ids, strict=True)
    ]
    given: list[NameGiven] = []
    for at in range(0, len(wanted), NAMES_PER_CALL):
        some = wanted[at : at + NAMES_PER_CALL]
        where = {partition_of_name(each.name, services.partitions) for each in some} if services.partitions > 1 else {0}
        given += await once_settled(services, where, partial(services.store.reserve_names, some))
    return dict(zip(places.values(), given, strict=True))


def refusals(batch: Batch, agreed: ReservedIds) -> list[Fault]:
    """Return the faults of a batch and those of its reserved names, in the order of the request."""
    named = {at: Fault("/job_id", why) for at, why in agreed.refused.items()}
    return in_order([*batch.refused, *batch.placed(named)])
