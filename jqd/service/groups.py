"""Groups: jobs that are shown, cancelled and retried together, and a job that waits until all of them have ended."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import trio
from msgspec import Raw

from jqd.domain.errors import Denied, Fault, Invalid, NotFound, NotYet
from jqd.domain.flow import OnFailure
from jqd.domain.job import NAME_LENGTH_MAX, State
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import partition_of_name
from jqd.domain.tenant import bare
from jqd.service.batch import Batch, read_array, with_trace
from jqd.service.bulk import Tally
from jqd.service.callbacks import group_callback
from jqd.service.find import once_settled
from jqd.service.flow import cancel_all, retry_all
from jqd.service.job_limits import CALLBACK_TAIL, GROUP_STEM, faults
from jqd.service.push import Pushed, expect_open, push
from jqd.service.services import Services
from jqd.service.settings import noting, record
from jqd.service.walk import Breathe, Flow, look, wait_ingested
from jqd.store import JobView
from jqd.store.links import Closing, Group, Linked

ERRORS_MAX = 10  # failed jobs shown of a group
FIRST_MAX = 10  # jobs shown of a group, from which people find the others
CLOSE_S = 2.0  # a close waits so long for pushes into the group to end: each is a sync of some milliseconds
POLL_S = 0.05

_encoder = msgspec.msgpack.Encoder()
_jobs_decoder = msgspec.msgpack.Decoder(list[JobSpec])
_item_decoder = msgspec.msgpack.Decoder(dict[str, Raw])


class Then(NamedTuple):
    """The job that waits until all members of a group have ended."""

    job_id: str
    state: State | None
    """None: the job is not in the store yet."""


class GroupView(NamedTuple):
    """The state of a group: its members by state, and the job that waits for them."""

    group: Group
    counts: Mapping[str, int]
    """State → number of members. Those that are not in the store yet, or were deleted, count as "unknown"."""
    then: Then | None
    failed: Sequence[JobView]
    first: Sequence[Linked] = ()
    """The members that joined first, a limited number."""

    @property
    def progress(self) -> float:
        """Return the share of members that have ended, from 0 to 1."""
        if self.then is not None and self.then.state not in (None, State.BLOCKED):
            return 1.0
        ended = sum(number for state, number in self.counts.items() if state != UNKNOWN and State(state).is_final)
        return ended / len(self.group.job_ids) if self.group.job_ids else 0.0


UNKNOWN = "unknown"


async def get(services: Services, name: str, breathe: Breathe) -> GroupView:
    """Return the state of a group. Raises NotFound, StoreAway, StoreRefused."""
    await wait_ingested(services)  # jobs that are not in the store then are counted as unknown
    group = await _expect(services, name)
    found = await look(services, group.job_ids, breathe)
    if services.principal.scopes:
        if not found:
            raise _none(name)  # all its jobs are of types that this token is not for
        group = group._replace(job_ids=list(found))  # the others may be of types that the token is not for
    counts = Counter(row.state for row in found.values())
    if missing := len(group.job_ids) - len(found):
        counts[UNKNOWN] = missing
    bad = [job_id for job_id, row in found.items() if row.state == State.FAILED][:ERRORS_MAX]
    views = [view for job_id in bad if isinstance(view := await services.store.get_job(job_id), JobView)]
    first = [found[job_id] for job_id in group.job_ids if job_id in found][:FIRST_MAX]
    return GroupView(group, dict(counts), await _then(services, name), views, first)


async def close(
    services: Services,
    name: str,
    then: Raw | None,
    on_failure: OnFailure | None,
    callback: str | None = None,
    trace: str = "",
) -> Then | None:
    """Close a group, and push the job `then` and the callback, which wait for all members. A repeat pushes nothing new.
    Return the job that waits for the group; None: there is none.

    `on_failure`: what happens to `then` if a member fails; None: its own option decides. `trace`: the request's
    traceparent, for jobs that name none. Raises Invalid, Conflict if another job waits for the group, NotYet while
    members are being pushed, and the errors of `push`."""
    expect_open(services)
    _expect_name(name)
    job = None if then is None else _read(services, then)
    if callback is not None:
        _expect_callable(services, name, callback)
    await _expect_all_seen(services, name)
    await record(services, "group close", name)
    members = await _close(services, services.qualified_name(name))
    await _expect_all_seen(services, name, members)  # again: jobs may have joined meanwhile
    if callback is not None:
        answer = await group_callback(services, callback, name, members)
        own = services.as_principal(services.principal._replace(scopes=()))  # scopes are not about callbacks
        await _push_own(own, {**answer, "job_id": _callback_id(name)}, trace)
    if then is None or job is None:
        return await _then(services, name)
    item: dict[str, Any] = {**_item_decoder.decode(then), "job_id": GROUP_STEM + name}
    if members:
        item["after"] = sorted(members)
    if on_failure is not None:
        item["on_parent_failure"] = on_failure
    pushed = await _push_own(services, item, trace)
    return await _then(services, name) or Then(str(pushed.job_ids[0]), None)


async def _push_own(services: Services, item: Mapping[str, Any], trace: str = "") -> Pushed:
    array = _encoder.encode([item])
    batch = Batch(True, 1, array, _jobs_decoder.decode(array), is_own=True)
    return await push(services, with_trace(batch, trace))


def _callback_id(group: str) -> str:
    return f"{GROUP_STEM}{group}{CALLBACK_TAIL}"


def _expect_callable(services: Services, name: str, url: str) -> None:
    """Raise Invalid for a callback URL to which nothing could be sent."""
    why = next((fault.detail for fault in faults(JobSpec(name="x", callback=url), 1)), None)
    if why is None and (refused := services.workers.why_no_callback(url)):
        why = f"the URL {url[:200]!r} {refused}"
    if why is None and len(_callback_id(name)) > NAME_LENGTH_MAX:
        why = f"a group with a callback has a shorter name, of {NAME_LENGTH_MAX - len(_callback_id(''))} characters"
    if why is not None:
        raise Invalid.at("/callback", why)


async def cancel(services: Services, name: str, breathe: Breathe, *, dry_run: bool = False) -> Tally:
    """Cancel the job that waits for a group, and all members that have not ended. Raises NotFound."""
    group = await _expect(services, name)
    note = None if dry_run else noting(services, "group cancel", name)
    then, found = await _members(services, name, group, breathe)
    waits = {job_id: row for job_id, row in found.items() if job_id == then}
    before = await cancel_all(services, waits, [], note)
    missing = [] if services.principal.scopes else [job_id for job_id in group.job_ids if job_id not in found]
    members = {job_id: row for job_id, row in found.items() if job_id != then}
    tally = await cancel_all(services, members, missing, note)
    return Tally(before.matched + tally.matched, before.changed + tally.changed)


async def retry(services: Services, name: str, breathe: Breathe, *, dry_run: bool = False) -> Tally:
    """Retry all members that failed, and then the job that waits for them if it failed. Raises NotFound."""
    group = await _expect(services, name)
    note = None if dry_run else noting(services, "group retry", name)
    _, found = await _members(services, name, group, breathe)
    names = {row.job.name: job_id for job_id, row in found.items() if row.job.name}
    return await retry_all(services, Flow(found, names, is_whole=True), note)


async def _expect_all_seen(services: Services, name: str, job_ids: Sequence[str] | None = None) -> None:
    """Raise Denied if the token may not see all members of a group: the job that waits for the group gets their
    results.

    `job_ids`: the members; None: they are read from the store."""
    if not services.principal.scopes:
        return
    if job_ids is None:
        qualified = services.qualified_name(name)
        group = await services.home(qualified).get_group(qualified)
        job_ids = group.job_ids if group is not None else ()
    await wait_ingested(services)
    if len(await look(services, job_ids, trio.lowlevel.checkpoint)) < len(set(job_ids)):
        raise Denied(
            f"group {name!r} has jobs that this token is not for, or that are on their way: it cannot close it"
        )


async def _members(
    services: Services, name: str, group: Group, breathe: Breathe
) -> tuple[str | None, dict[str, Linked]]:
    """Look up the jobs of a group. Return the id of the job that waits for the group (None: there is none), and id →
    job for that job and all members."""
    await wait_ingested(services)
    then = await services.store.resolve(services.qualified_name(GROUP_STEM + name))
    ids = [*group.job_ids, *([then] if then else ())]
    return then, await look(services, ids, breathe)


async def _expect(services: Services, name: str) -> Group:
    _expect_name(name)
    qualified = services.qualified_name(name)
    group = await services.home(qualified).get_group(qualified)
    if group is None:
        raise _none(name)
    return group


def _none(name: str) -> NotFound:
    return NotFound(f"there is no group {name[:64]!r}; it has had no job yet, or was left alone for a week")


def _expect_name(name: str) -> None:
    spec = JobSpec(name="x", group=name)
    for fault in faults(spec, 1):
        raise Invalid(fault.detail, [fault])


async def _then(services: Services, name: str) -> Then | None:
    job_id = await services.store.resolve(services.qualified_name(GROUP_STEM + name))
    if job_id is None:
        return None
    view = await services.store.get_job(job_id)
    return Then(GROUP_STEM + name, view.state if isinstance(view, JobView) else None)


def _read(services: Services, then: Raw) -> JobSpec:
    """Decode the job that is to wait for a group, and check it like a pushed one. Raises Invalid."""
    batch = read_array(b"\x91" + bytes(then), True, services.config)
    found = [fault._replace(pointer=f"/then{fault.pointer}", place=None) for fault in batch.refused]
    for job in batch.jobs:
        given = [field for field in ("job_id", "after", "unique", "replace") if getattr(job, field)]
        found += [Fault(f"/then/{field}", f"{field} is not for a job that waits for a group") for field in given]
    if found:
        raise Invalid(found[0].detail, found)
    return batch.jobs[0]


async def _close(services: Services, group: str) -> list[str]:
    """Close a group, wait for pushes into it that are in progress, and return the ids of its members. Raises NotYet."""
    where, deadline_s = {partition_of_name(group, services.partitions)}, trio.current_time() + CLOSE_S
    while True:
        closing: Closing = await once_settled(services, where, lambda: services.home(group).close_group(group))
        if not closing.unconfirmed:
            return closing.job_ids
        if trio.current_time() >= deadline_s:
            raise NotYet(
                f"group {bare(group)!r} is closed, but {closing.unconfirmed} jobs are being pushed into it still; "
                "nothing waits for it yet: close it again in a moment"
            )
        await trio.sleep(POLL_S)
