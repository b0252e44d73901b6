"""Refuses pushed jobs that the pusher's token may not push, and jobs that could never run, such as jobs for a version
of a handler (`name@3`) that was never set."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal

from jqd.domain.errors import Denied, Fault, NotFound, NotYet
from jqd.domain.jobid import is_of_date
from jqd.domain.tenant import bare
from jqd.runner.handler import Handler, is_version
from jqd.service.act_on_each import act_on_each
from jqd.service.batch import Batch
from jqd.service.find import find, resolve
from jqd.service.flow_checks import names_of, stray_faults, uncalled
from jqd.service.parents import own_circles, replaced_circles, unknown_parents
from jqd.service.principal import EVERYBODY
from jqd.service.server_only import any_reserved, may_change
from jqd.service.services import Services
from jqd.service.settings import get_or_refresh
from jqd.store import JobView

NUMBER = re.compile(r"[1-9][0-9]{0,10}")  # of a version


async def refuse_unset(services: Services, batch: Batch) -> Batch:
    """Return the batch without jobs for handler versions that were never set, and without jobs that have such jobs in
    `then`: they would wait for ever. Jobs for a deleted version are accepted, and so are jobs for `name@3` if no
    handler `name` is known."""
    by_number = {services.qualified_name(name) for name in names_of(batch.jobs) if "@" in name and is_version(name)}
    # One question to the store for all of them, as it may take a second.
    if not by_number or await get_or_refresh(services, lambda: not _unset(services, by_number) or None):
        return batch
    why = {bare(name): _why_unset(services, name) for name in _unset(services, by_number)}
    batch = _without(batch, why)
    following = [next((why[name] for name in names_of([job]) if name in why), "") for job in batch.jobs]
    return batch.without({place: Fault("/then", each) for place, each in enumerate(following) if each})


def refuse_foreign(services: Services, batch: Batch) -> Batch:
    """Return the batch without jobs of types that the token may not push. Raises Denied if such jobs are in a
    `then`."""
    own = {job.name for job in batch.jobs}
    for name in names_of(batch.jobs) - own:
        if not services.principal.can_access(services.qualified_name(name)):
            raise Denied(f"then: this token is not for jobs {name[:64]!r}; nothing was taken")
    foreign = {name for name in own if not services.principal.can_access(services.qualified_name(name))}
    return _without(batch, {name: f"this token is not for jobs {name[:64]!r}" for name in foreign})


def refuse_uncalled(services: Services, batch: Batch) -> Batch:
    """Return the batch without jobs whose callback could not be sent, or that have such a job in their `then`."""
    if b"callback" not in batch.array:  # quick: nearly no push has a callback
        return batch
    judge = cache(services.workers.why_no_callback)  # many jobs have the same URL
    why = [uncalled(job, judge) for job in batch.jobs]
    return batch.without({place: Fault("/callback", each) for place, each in enumerate(why) if each})


async def refuse_orphans(services: Services, batch: Batch) -> Batch:
    """Return the batch without jobs whose parents do not exist, and without jobs that wait for each other in a circle.

    Raises StoreAway, StoreRefused.
    """
    batch = batch.without(own_circles(batch) or await replaced_circles(services, batch))
    batch = batch.without({place: fault for place, job in enumerate(batch.jobs) for fault in stray_faults(job)})
    own = {job.job_id for job in batch.jobs}
    asked = {parent: None for job in batch.jobs for parent in job.after if parent not in own}
    if not asked:
        return batch
    unknown = await unknown_parents(services, list(asked))
    faults = {
        place: Fault(f"/after/{at}", f"there is no job {parent[:64]!r}; push it first, or in the same request")
        for place, job in enumerate(batch.jobs)
        for at, parent in enumerate(job.after)
        if parent in unknown
    }
    return batch.without(faults)


def refuse_dates(services: Services, batch: Batch) -> Batch:
    """Return the batch without jobs whose id has the form of a schedule's date (`<schedule>@<date>`), unless the pusher
    may push all jobtypes: such a job would keep the schedule from firing that date, even a schedule that is set
    later."""
    dates = [job.job_id for job in batch.jobs if job.job_id is not None and is_of_date(job.job_id)]
    if not dates or not (services.principal.scopes or any_reserved(services)):
        return batch
    why = "has the form <schedule>@<date>, which this token may not take from a schedule; choose another"
    return _without(batch, {job_id: f"job_id {job_id[:64]!r} {why}" for job_id in dates}, "job_id")


async def refuse_replaced(services: Services, batch: Batch) -> Batch:
    """Return the batch without jobs that would replace a job which the pusher may not see or change.

    Raises NotYet if the replaced job is not in the store yet, StoreAway, StoreRefused.
    """
    wished = {job.job_id for job in batch.jobs if job.replace and job.job_id is not None}
    if not wished or (services.principal.is_server and not services.principal.scopes):
        return batch
    why: dict[str, str] = {}

    async def look(given: str) -> None:
        view = await _standing(services, given)
        if view is not None and not services.principal.can_access(view.jobtype):
            why[given] = f"job_id {given[:64]!r} is taken by a job that this token is not for; choose another"
        elif view is not None and not may_change(services, view):
            why[given] = f"job_id {given[:64]!r} is taken by a job that only the master key may replace; choose another"

    await act_on_each(wished, look)
    return _without(batch, why, "job_id")


async def _standing(services: Services, given: str) -> JobView | None:
    """Return the job that has a pusher's own id, even if the principal may not see it; None: there is none. Raises
    NotYet if the job is not in the store yet."""
    everybody = services.as_principal(EVERYBODY)
    try:
        job_id = await resolve(services, given)
        found = await find(everybody, job_id, named=job_id != given)
    except NotFound:
        return None
    if isinstance(found, JobView):
        return found
    raise NotYet(f"what stands under job_id {given[:64]!r} is not in the store yet; push it again")


def why_gone(services: Services, jobtype: str) -> str | None:
    """Return why jobs for one version of a handler wait: the version was deleted, or never set (such jobs may have been
    pushed by a worker's report). None if the version exists, and for other jobtypes."""
    name, handler, number = _parts(services, jobtype)
    if handler is None or any(version.number == number and not version.out for version in handler.versions):
        return None
    name = bare(name)
    if number > handler.last:
        why = f"handler {name!r} never had a version {number}: these jobs wait until it has"
        return f"{why}; cancel them, or push them for {name!r}"
    return f"version {number} of handler {name!r} is gone: these jobs wait; cancel them, or push them for {name!r}"


def _unset(services: Services, by_number: set[str]) -> set[str]:
    """Return those handler versions that were never set, as far as this daemon knows, and that no worker takes by
    name."""
    taken = (worker.jobs for worker in services.workers.list() if worker.jobs)
    return {name for name in by_number.difference(*taken) if not _was_set(services, name)}


def _was_set(services: Services, jobtype: str) -> bool:
    _, handler, number = _parts(services, jobtype)
    return handler is None or (_may_be(jobtype) and number <= handler.last)


def _may_be(jobtype: str) -> bool:
    """Return whether the number in `name@number` is one that a version can have: `mail@0` and `mail@01` cannot
    exist."""
    return NUMBER.fullmatch(jobtype.rpartition("@")[2]) is not None


def _why_unset(services: Services, jobtype: str) -> str:
    name, handler, number = _parts(services, jobtype)
    if not _may_be(jobtype):
        return f"{bare(jobtype)[:64]!r} can be no version of a handler: they are numbered from 1, without zeros before"
    kept = ", ".join(str(version.number) for version in handler.versions) if handler else ""
    there_are = f"it has {kept}" if kept else "it has none any more"
    return f"handler {bare(name)[:64]!r} never had a version {number}; {there_are}"


def _parts(services: Services, jobtype: str) -> tuple[str, Handler | None, int]:
    name, at, number = jobtype.rpartition("@")
    is_one = bool(at) and number.isascii() and number.isdecimal()
    return name, services.workers.handler(name) if is_one else None, int(number) if is_one else 0


def _without(batch: Batch, why: Mapping[str, str], field: Literal["name", "job_id"] = "name") -> Batch:
    values = (getattr(job, field) for job in batch.jobs)
    return batch.without({at: Fault(f"/{field}", why[each]) for at, each in enumerate(values) if each in why})
