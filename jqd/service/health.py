"""Describes the health of workers in words, and why no worker runs the waiting jobs of a type."""

import shlex
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Literal, NamedTuple

from jqd.domain.array_split import Steps, finish
from jqd.domain.dates import iso
from jqd.domain.flow import CALLBACK
from jqd.domain.pauses import all_of
from jqd.domain.tenant import bare, tenant_of
from jqd.runner import Worker, WorkerHealth
from jqd.runner.worker import takes_type
from jqd.service.handlers import why_unserved
from jqd.service.push_checks import why_gone
from jqd.service.services import Services
from jqd.service.wait_reason import Cause, WaitReason

NAMED_MAX = 3  # workers named in one sentence
WORKERS_MAX = 20  # workers in a `WaitReason`, for programs

DISOWNED = (
    "gets no jobs, as the token that it was registered with was revoked or is over: register it again with another"
)

WorkerState = Literal["ok", "trouble", "silent", "unknown", "backed_off", "unreachable", "token_ended"]


class Health(NamedTuple):
    """The health of one worker, over all daemons."""

    state: WorkerState = "ok"
    """`silent`: the worker pulls, has no ttl, and sent nothing for long; `unknown`: silent at this daemon, and the
    store, which would know more, is away; `backed_off`, `unreachable`: the worst state that any daemon reports."""
    why: str | None = None
    takes_jobs: bool = True
    """Whether some daemon may give the worker jobs now."""
    until_ms: int = 0
    """When the worker gets jobs again (Unix ms); 0: unknown."""


def health(services: Services, worker: Worker) -> Health:
    if services.workers.is_disowned(worker):
        return Health("token_ended", DISOWNED, takes_jobs=False)
    seen = services.control.seen(worker.id)
    bad = {daemon: each for daemon, each in seen.items() if each.state != "ok"}
    if bad:
        # A worker that one daemon backs off gets jobs from none. One that a daemon cannot reach, another may reach.
        now_ms = services.clock.wall_ms()
        resting = {name: each for name, each in bad.items() if each.state == "backed_off" and each.until_ms > now_ms}
        everywhere = bool(resting) or len(bad) == len(seen)
        daemon, worst = max((resting or bad).items(), key=lambda item: (item[1].until_ms, item[1].since_ms))
        why = _why(worst, now_ms) + ("" if everywhere else f" (by daemon {daemon})")
        return Health(worst.state, why, not everywhere, worst.until_ms if worst.until_ms > now_ms else 0)
    if worker.trouble is not None:
        return Health("trouble", worker.trouble)
    if (complaint := next((each.complaint for each in seen.values() if each.complaint), "")) != "":
        return Health("trouble", complaint)
    if not services.workers.is_overdue(worker):
        return Health()
    silent = f"was last seen at {iso(services.workers.last_seen_at_ms(worker.id))}"
    if services.workers.is_blind:
        return Health("unknown", f"{silent} by this daemon; the store is away, and with it what others heard")
    return Health("silent", silent, takes_jobs=False)  # it may be busy with its jobs, and ask for others later


def _why(seen: WorkerHealth, now_ms: int) -> str:
    if seen.state == "unreachable":
        text = "cannot be reached" + (f" since {iso(seen.since_ms)}" if seen.since_ms else "")
    elif seen.until_ms > now_ms:
        text = f"gets no jobs until {iso(seen.until_ms)}"
    else:
        text = "gets only one job at first, as a probe"
    why = seen.complaint or seen.why
    return f"{text}: {why}" if why else text


class Takers:
    """An index from jobtypes to the workers that take them, for callers that ask about many types."""

    def __init__(self, workers: Iterable[Worker] = ()) -> None:
        self._of_tenant: dict[str, list[Worker]] = {}  # tenant → its workers that take any type
        self._of_type: dict[str, list[Worker]] = {}
        finish(self.add(workers))

    def add(self, workers: Iterable[Worker]) -> Steps[None]:
        """Add workers, one in each step: there may be 10,000, which name up to 100,000 types."""
        for worker in workers:
            if worker.takes_any:
                self._of_tenant.setdefault(worker.tenant, []).append(worker)
            else:
                for jobtype in worker.jobs or ():
                    self._of_type.setdefault(jobtype, []).append(worker)
            yield

    def count(self, jobtype: str) -> int:
        return len(self._of_tenant.get(tenant_of(jobtype), ())) + len(self._of_type.get(jobtype, ()))

    def of(self, jobtype: str) -> Iterator[Worker]:
        return chain(self._of_type.get(jobtype, ()), self._of_tenant.get(tenant_of(jobtype), ()))


def why_odd(services: Services, jobtype: str) -> str | None:
    """Return a warning for a client that pauses a jobtype which no worker or handler takes: its name may be
    mistyped."""
    own = services.qualified_name(jobtype)
    if Takers(services.workers.list()).count(own) or services.workers.handler(own):
        return None
    return f"no worker or handler of {jobtype!r} is known here; if that is a slip, `jqd types resume` takes it back"


def why_waiting(
    services: Services, jobtype: str, priority: int | None = None, *, takers: Takers | None = None
) -> WaitReason | None:
    """Return why no worker runs jobs of this type and priority; None if some worker does, so that they only wait their
    turn.

    `priority`: None: of any priority. `takers`: an index of the workers, if the caller has one.
    """
    if (paused := _why_paused(services, jobtype)) is not None:
        return paused
    if (gone := why_gone(services, jobtype)) is not None:
        return WaitReason(Cause.VERSION_GONE, gone)
    if bare(jobtype) == CALLBACK:
        return None
    takers = takers or Takers(worker for worker in services.workers.list() if takes_type(worker.jobs, jobtype))
    if not takers.count(jobtype):
        why = why_unserved(services.workers, jobtype) or "no worker takes these jobs"
        return WaitReason(Cause.NO_WORKER, why)
    down: list[tuple[Worker, Health]] = []
    for worker in takers.of(jobtype):
        if priority is None or worker.takes(jobtype, priority):
            how = health(services, worker)
            if how.takes_jobs:
                return None
            down.append((worker, how))
    if not down:
        some = islice(takers.of(jobtype), NAMED_MAX if services.principal.can_read else 0)
        ranges = [f"{worker.name} takes {worker.priority_min} to {worker.priority_max}" for worker in some]
        why = f"no worker takes these jobs with priority {priority}"
        return WaitReason(Cause.OTHER_PRIORITIES, f"{why}: {', '.join(ranges)}" if ranges else why)
    until_ms = min((how.until_ms for _, how in down if how.until_ms), default=0)
    if not services.principal.can_read:  # workers' complaints contain addresses
        return WaitReason(Cause.WORKERS_DOWN, "no worker that takes these jobs gets any now", until_ms=until_ms)
    texts = [f"worker {worker.name} {how.why}" for worker, how in down[:NAMED_MAX]]
    texts += [f"{len(down) - NAMED_MAX} more are not better"] if len(down) > NAMED_MAX else []
    workers = tuple((worker.name, how.state, how.why or "") for worker, how in down[:WORKERS_MAX])
    return WaitReason(Cause.WORKERS_DOWN, "; ".join(texts), until_ms=until_ms, workers=workers)


def _why_paused(services: Services, jobtype: str) -> WaitReason | None:
    tenant, name = tenant_of(jobtype), bare(jobtype)
    resume = ["jqd", *(["--tenant", tenant] if tenant and services.principal.sees_all else []), "types", "resume"]
    if (since_ms := services.pauses.since_ms.get(jobtype)) is not None:
        by, what = services.pauses.by.get(jobtype, ""), f"{name!r} is"
        command = [*resume, *(["--"] if name.startswith("-") else []), name]
    elif (since_ms := services.halts.since_ms.get(all_of(tenant))) is not None:
        by, command = bare(services.halts.by.get(all_of(tenant), "")), [*resume, "--all"]
        what = f"all jobs of tenant {tenant!r} are" if tenant else "all jobs without a tenant are"
    else:
        return None
    if not services.principal.can_read:
        return WaitReason(Cause.PAUSED, f"{what} paused since {iso(since_ms)}", since_ms)
    reason = services.pauses.reasons.get(jobtype, "")
    text = f" ({reason})" if reason else ""
    why = f"{what} paused{f' by {by}' if by else ''} since {iso(since_ms)}{text}: `{shlex.join(command)}`"
    return WaitReason(Cause.PAUSED, why, since_ms, by=by)
