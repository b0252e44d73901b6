"""The jobs that listeners follow at this daemon, as the store showed them last; job_events.py finds the changes.

One loop for each partition reads all of them from the store twice a second, however many listen: so reports of workers
to other daemons are seen. No call is made while nobody listens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from jqd.domain.errors import Closed, NotFound, NotYet, Overloaded, StoreError
from jqd.domain.jobid import partition_of
from jqd.service.find import find
from jqd.service.services import Services
from jqd.service.watched import Watched
from jqd.store import BRIEFS_MAX, JobView, OnItsWay

LOOK_S = 0.5  # between looks: as soon as a person sees that something moves
WATCH_MS = 15_000  # workers are told so long that somebody watches: they ask every 5 s, and a look may fail
WATCHERS_MAX = 1_024  # streams at a daemon: each is a connection, and to wake all of them takes some 30 ms of the loop
KEPT = 128  # of them for who sees all tenants: an operator can look, however many watch
TENANT_MAX = 256  # streams of one tenant: a page for each of its people, and not the place of all others
RETRY_S = 5  # until who was refused asks again: others leave as their jobs end


def check_room(services: Services) -> None:
    """Raise Closed, NotYet or Overloaded where no further listener may follow a job here."""
    if services.pulls.is_closed:
        raise Closed("this daemon is shutting down; ask another one", full=False)
    whose = [tenant for watched in services.watched.values() for tenant in watched.bells.values()]
    if len(whose) >= WATCHERS_MAX:
        raise NotYet(f"{WATCHERS_MAX} follow jobs here already, which is the most; try again, or at another daemon")
    if not services.principal.is_bound:
        return
    if whose.count(services.principal.tenant) >= TENANT_MAX:
        detail = f"{TENANT_MAX} streams of this tenant follow jobs here already, which is the most: end one"
        raise Overloaded(detail, retry_after_s=RETRY_S)
    if len(whose) - whose.count(None) >= WATCHERS_MAX - KEPT:
        raise NotYet(f"{WATCHERS_MAX - KEPT} of tenants follow jobs here already; try again, or at another daemon")


@contextmanager
def watching(
    services: Services, job_id: str, view: JobView | None, *, named: bool
) -> Iterator[tuple[Watched, Callable[[], trio.Event]]]:
    """Give what is known of the job while it is watched, and the source of its next bell. Raises as `check_room`."""
    check_room(services)
    watched = services.watched.setdefault(job_id, Watched(job_id, view, named=named))
    tenant = services.principal.tenant if services.principal.is_bound else None
    bell = trio.Event()
    watched.bells[bell] = tenant

    def next_bell() -> trio.Event:
        nonlocal bell
        if bell.is_set():
            del watched.bells[bell]
            bell = trio.Event()
            watched.bells[bell] = tenant
        return bell

    try:
        yield watched, next_bell
    finally:
        del watched.bells[bell]
        if not watched.bells and services.watched.get(job_id) is watched:
            del services.watched[job_id]


async def watch(
    services: Services, partition: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Look at the watched jobs of one partition; runs as long as the daemon."""
    task_status.started()
    try:
        while True:
            await trio.sleep(LOOK_S)
            some = _of(services, partition)
            for at in range(0, len(some), BRIEFS_MAX):
                await look(services, some[at : at + BRIEFS_MAX])
    finally:
        for each in _of(services, partition):
            each.ring()  # who follows it is told that the daemon shuts down


def _of(services: Services, partition: int) -> list[Watched]:
    watched = services.watched.values()
    return [each for each in watched if partition_of(each.job_id, services.partitions) == partition]


async def look(services: Services, some: list[Watched]) -> None:
    """Ask the store about some jobs, and wake the listeners of those that changed.

    While it is away all stays as it is.
    """
    known = [(each.job_id, each.log.fence, each.log.end) for each in some]
    try:
        views = await services.store.get_briefs([each.job_id for each in some])
        # Behind the views: of a job that has ended all that it printed is there.
        logs = await services.store.watch_logs(known, WATCH_MS)
    except StoreError:
        return  # the store's own loops say so, and the streams go on with what is known
    for each, view, log in zip(some, views, logs, strict=True):
        changed = await _take(services, each, view)
        if each.add(log) or changed or not each.is_looked_at:
            each.is_looked_at = True
            await each.wake()


async def _take(services: Services, watched: Watched, view: JobView | OnItsWay | None) -> bool:
    """Take a new view of the job. Returns whether it differs."""
    before = watched.view
    if isinstance(view, JobView):
        watched.view = view
    elif view is None:
        try:  # this daemon may know better
            known = await find(services, watched.job_id, named=watched.named)
        except NotFound:
            watched.is_gone = True
            return True
        except (StoreError, NotYet):
            return False
        watched.view = known if isinstance(known, JobView) else None
    return _mark(watched.view) != _mark(before)


def _mark(view: JobView | None) -> object:
    return view and (view.state, view.attempts, view.progress, view.jobtype)
