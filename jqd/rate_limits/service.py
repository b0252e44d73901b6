"""Sets, finds, tries out and deletes constraints, at any daemon for all daemons. The store counts the jobs they
limit."""

from collections.abc import Mapping, Sequence
from functools import partial

import trio
from msgspec import Struct
from msgspec.structs import replace

from jqd.domain.clock import thread_s
from jqd.domain.dates import instant_ms, iso
from jqd.domain.errors import Fault, Invalid, NotFound
from jqd.domain.job import Job, State, is_name
from jqd.domain.queue_name import FAILED, WITHIN, items_of
from jqd.domain.settings import CONSTRAINT, NIL, SettingTable
from jqd.domain.shares import Share
from jqd.domain.tenant import bare, tenant_of
from jqd.rate_limits.constraints import (
    EVER_MS,
    KEY_TYPES,
    Constraint,
    Constraints,
    KnownConstraint,
    Limits,
    body_of,
    counted_apart,
    expect_understood,
    why_not_exact,
    with_digest,
)
from jqd.service.job_filter import JobFilter
from jqd.service.job_limits import expect_new_name
from jqd.service.listing import page_of
from jqd.service.services import Services
from jqd.service.settings import expect_revision, expect_room, get_or_refresh, refresh, save, wait_loaded
from jqd.service.wait_reason import Cause, WaitReason
from jqd.store import JobView, QueuePlace

# Each job is matched against all constraints of its tenant and of "": 100 take some 0.3 ms if all read its argument.
CONSTRAINTS = Share("constraints", 1_000, own=100)
TRIED_JOBS = 500  # jobs of a trial, whose arguments are read one by one: half a second
ENDLESS_MS = 9_000_000_000_000_000  # the store's mark of a pause without an end: EVER_MS in limits.lua
TRIED_S = 1.0  # of evaluation in a trial; most expressions take a thousandth of that for all jobs


class Trial(Struct, frozen=True):
    """The result of a dry run: which of the waiting jobs a constraint would match."""

    looked_at: int
    """How many of the newest waiting jobs were evaluated."""
    matched: int
    failed: int
    error: str | None
    keys: int
    delayed: int
    """How many of the matching jobs would not start at once."""
    warning: str | None
    """What several partitions, which count by themselves, may let through together."""


async def put(services: Services, name: str, wish: Limits, revision: int | None = None) -> bool:
    """Set a constraint; it is on disk when this returns. Returns True if it is new, False if it replaces one of that
    name.

    `revision`: set it only if the present one still has this revision. Raises Invalid, Conflict, NotYet,
    JournalRefused.
    """
    constraint = understood(services, name, wish)
    await wait_loaded(services)
    if revision is not None:
        await refresh(services)  # another daemon may have changed it a moment ago
    own, new = services.qualified_name(name), list[bool]()

    def make() -> Mapping[tuple[str, str], bytes]:
        expect_revision(services, "constraint", CONSTRAINT, own, revision)
        before = services.feature(Constraints).known.get(own)
        new.append(before is None)
        if before is None:
            expect_new_name("constraint", name)
            tenants = (each.tenant for each in services.feature(Constraints).known.values())
            expect_room(CONSTRAINTS, tenant_of(own), tenants)
        return {(CONSTRAINT, own): body_of(_rated_on(constraint, before))}

    await save(services, make)
    return new[-1]


def _rated_on(constraint: Constraint, before: KnownConstraint | None) -> Constraint:
    """Return the constraint with `rated_ms` set: since when it has had a rate (Unix ms). If `before`, which it
    replaces, had a rate, too, the date stays.

    So a store that has lost the count of a rate knows that the rate is older, and treats it as used up."""
    if constraint.rate is None or before is None or before.constraint.rate is None:
        return constraint
    return replace(constraint, rated_ms=before.constraint.rated_ms or before.changed_ms)


async def delete(services: Services, name: str) -> None:
    """Delete a constraint: it no longer holds back any job. Raises NotFound, NotYet, JournalRefused."""
    await wait_loaded(services)
    await known(services, name)
    await save(services, lambda: {(CONSTRAINT, services.qualified_name(name)): NIL})


async def known(services: Services, name: str) -> KnownConstraint:
    """Return a constraint; ask the store if this daemon does not know it, as another daemon may have just set it.
    Raises NotFound."""
    await get_or_refresh(services, partial(services.feature(Constraints).known.get, services.qualified_name(name)))
    return find(services, name)


def find(services: Services, name: str) -> KnownConstraint:
    """Return a constraint that this daemon knows, without asking the store. Raises NotFound."""
    found = services.feature(Constraints).known.get(services.qualified_name(name))
    if found is None:
        raise NotFound(f"there is no constraint {name[:64]!r}")
    return found


async def try_out(services: Services, name: str, wish: Limits) -> Trial:
    """Return what a constraint would do to the jobs that wait now if it were set. Raises Invalid, StoreAway."""
    constraint = understood(services, name, wish)
    settings = SettingTable()
    alone = Constraints(settings)
    setting = settings.make(
        {(CONSTRAINT, services.qualified_name(name)): body_of(constraint)}, now_ms=services.clock.wall_ms(), origin=0
    )
    settings.take(setting)
    (tried,) = alone.known.values()
    page = await page_of(services, JobFilter(state=State.WAITING), TRIED_JOBS, "")
    keys = dict[str, list[int]]()
    matched = failed = looked = 0
    held_s = 0.0
    for view in page.jobs:
        whole = await services.store.get_job(view.id) if tried.reads_argument else view
        await trio.lowlevel.checkpoint()
        began_s, looked = thread_s(), looked + 1
        for item in items_of(alone.queue_of(job_of(whole if isinstance(whole, JobView) else view))):
            failed += item.cost is None
            matched += item.cost is not None
            if item.cost is not None:
                keys.setdefault(item.key, []).append(item.cost)
        held_s += thread_s() - began_s
        if held_s > TRIED_S:
            break
    delayed = failed + sum(_delayed(constraint, costs) for costs in keys.values())
    warning = counted_apart(constraint, services.partitions)
    return Trial(looked, matched, failed, tried.error or None, len(keys), delayed, warning)


def understood(services: Services, name: str, wish: Limits) -> Constraint:
    """Check a constraint and return it in the form in which it is stored. Raises Invalid, which points into the
    expression."""
    found = []
    if not is_name(name):
        why = f"the name of a constraint must be 1 to 128 printable characters, not {name[:64]!r}"
        found.append(Fault("/name", why))
    for field, text, types in (
        ("match", wish.match, ("BOOL",)),
        ("cost", wish.cost, ("INT",)),
        ("key", wish.key, KEY_TYPES),
    ):
        try:
            if text is not None:
                expect_understood(types, text)
        except ValueError as error:
            found.append(Fault(f"/{field}", str(error)))
    if wish.rate is None and wish.concurrency is None and not wish.pause:
        found.append(Fault("", "it limits nothing: give rate, concurrency or pause, or several of them"))
    if wish.cost is not None and wish.rate is None:
        found.append(Fault("/cost", "a cost counts for a rate, and there is none"))
    until_ms = EVER_MS if wish.pause is True else 0
    if wish.pause not in (None, True, False):
        try:
            until_ms = instant_ms(wish.pause)
            if until_ms <= services.clock.wall_ms():
                raise ValueError(f"that date has passed: a pause until {iso(until_ms)} holds nothing up")
        except ValueError as error:
            found.append(Fault("/pause", str(error)))
    if not found and wish.exact and (apart := why_not_exact(wish, services.partitions)):
        found.append(Fault("/exact", f"it cannot be exact: {apart}"))
    if found:
        raise Invalid(found[0].detail, found)
    return with_digest(services.qualified_name(name), Constraint(**wish.own_fields(), until_ms=until_ms))


def _delayed(constraint: Constraint, costs: Sequence[int]) -> int:
    """Return how many of some jobs with the same key could not start at once, if no other job had used up any of the
    constraint's limits.

    `costs`: the cost of each job."""
    if constraint.until_ms:
        return len(costs)
    rate, slots = constraint.rate, constraint.concurrency or len(costs)
    left = rate.limit + rate.burst if rate else sum(costs)
    started = 0
    for cost in costs[:slots]:
        if cost > left:
            break
        left -= cost
        started += 1
    return len(costs) - started


def job_of(view: JobView) -> Job:
    """Return a `Job` with those fields of a stored job that expressions read."""
    return Job(view.id, view.jobtype, view.argument, priority=view.priority, tags=tuple(view.tags))


def why_limited(services: Services, view: JobView, place: QueuePlace) -> WaitReason:
    """Return why a job waits if a constraint holds back its queue. `place`: the job's place in the queue."""
    until_ms = place.until_ms if place.until_ms < ENDLESS_MS else 0
    until = f" until about {iso(until_ms)}" if until_ms else ""
    if place.until_ms and not until_ms:
        until = ", a pause without an end, until that is set anew or deleted"
    name, _, key = place.limited_by.partition(WITHIN)
    held = place.holds if _may_know(services, name) else ()
    holds = f", which counts {', '.join(held)} in flight" if held else ""
    by, ahead, is_exact = bare(name), place.ahead, place.exact
    if key == FAILED:
        text = (
            f"constraint {by!r} could not be asked about it{_failure(services, name, view)}, and holds such jobs up"
            ": it waits until the constraint is said anew or deleted"
        )
        return WaitReason(Cause.LIMITED, text, by=by, ahead=ahead, is_exact=is_exact)
    kind, _, value = key.partition(":")
    for_key = f" for its key {key[1:]!r}" if key[:1] == "=" else f" for its key {value}" if kind and value else ""
    text = f"it is limited by constraint {by!r}{for_key}{until}{holds}"
    return WaitReason(Cause.LIMITED, text, until_ms=until_ms, by=by, ahead=ahead, is_exact=is_exact, holds=held)


def _may_know(services: Services, constraint: str) -> bool:
    """Return whether the principal may see all jobs that a constraint counts. A constraint without a tenant counts the
    jobs of all tenants."""
    who = services.principal
    return not who.is_bound or (bool(who.tenant) and tenant_of(constraint) == who.tenant and who.can_read)


def _failure(services: Services, name: str, view: JobView) -> str:
    """Return, in brackets, why a constraint fails on this job; "" if it does not now, or the principal may not see
    it."""
    if not services.principal.can_see(tenant_of(name)):
        return ""
    error = services.feature(Constraints).failure_of(name, job_of(view))
    return f" ({error})" if error else ""
