"""Long polls that wait for jobs to end, and the one loop for each partition that looks for all of them.

A job that ends by this daemon's hand rings at once (loops/waiters.py). Jobs end through other daemons, too: a loop asks
the store which of those waited for have not ended, hundreds in one call, and rings for the others. What a poll then
hears it looks up itself; a bell that rings for nothing costs one look.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from jqd.domain.errors import NotYet, StoreAway, StoreRefused
from jqd.domain.record import Lane
from jqd.service.find import Coming, expect_promised, find, resolve, wait_shown
from jqd.service.services import Services
from jqd.store import JobView

JOBS_PER_CALL = 500  # looked at in one script of the store: it stays below a millisecond or two


async def look(services: Services, given: str, wait_s: float) -> JobView | Coming:
    """As `wait_final`, of a job by the daemon's or its pusher's id."""
    job_id = await resolve(services, given)
    return await wait_final(services, job_id, wait_s, named=job_id != given, given=given)


async def take_result(services: Services, view: JobView | Coming, *, consume: bool) -> bytes | None:
    """What the worker of a job that was looked at answered; None when there is none, not yet or not any more.

    `consume`: it is dropped then. Raises StoreAway, StoreRefused.
    """
    result = view.result if isinstance(view, JobView) else None
    if result is not None and consume:
        await services.store.drop_result(view.id)
    return result


async def wait_final(
    services: Services, job_id: str, wait_s: float, *, named: bool = False, given: str = ""
) -> JobView | Coming:
    """Look until the job has ended or `wait_s` is over; the last look counts. Meanwhile the store may be away.

    `watch` must be running for the partition of the job.
    """
    deadline_s = trio.current_time() + wait_s
    while True:
        # Listen first, look then: an ending between the two rings.
        with _waiting(services, job_id) as bell:
            left_s = deadline_s - trio.current_time()
            try:
                is_shown = await wait_shown(services, job_id)
                view = await find(services, job_id, named=named, given=given)
                if not is_shown and not view.state.is_final:
                    raise NotYet(f"a report of job {(given or job_id)[:64]!r} is not in the store yet; look again")
                if named and isinstance(view, Coming):
                    await expect_promised(services, given)
            except (StoreAway, NotYet):
                if left_s <= 0:
                    raise
            else:
                if view.state.is_final or left_s <= 0:
                    return view
            with trio.move_on_after(left_s):
                await bell.wait()


async def watch(
    services: Services, partition: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Look for all that wait for jobs of one partition, `poll_s` after they began to and again."""
    task_status.started()
    while True:
        await trio.sleep(services.config.poll_s)
        # What is in our journal and not applied cannot have ended: under a backlog that is most of them.
        read_point = services.journal.read_point(Lane.JOBS, partition)
        asked: dict[str, list[trio.Event]] = {}
        for bell, job_id in services.polls.get(partition, {}).items():
            if not services.recent_pushes.awaits(job_id, read_point):
                asked.setdefault(job_id, []).append(bell)
        job_ids = list(asked)
        for at in range(0, len(job_ids), JOBS_PER_CALL):
            piece = job_ids[at : at + JOBS_PER_CALL]
            try:
                going_on = frozenset(await services.store.unfinished(piece))
            except StoreAway:
                break  # asked again after a pause; who waits no longer looks himself, and says that it is away
            except StoreRefused:
                going_on = frozenset()  # each looks himself, and hears what is wrong with his own job
            for job_id in piece:
                if job_id not in going_on:
                    for bell in asked[job_id]:
                        bell.set()


@contextmanager
def _waiting(services: Services, job_id: str) -> Iterator[trio.Event]:
    """An event that is set when the job may have ended."""
    (partition,) = services.where(job_id)
    with services.control.ended(job_id) as bell:
        bells = services.polls.setdefault(partition, {})
        bells[bell] = job_id
        try:
            yield bell
        finally:
            del bells[bell]
