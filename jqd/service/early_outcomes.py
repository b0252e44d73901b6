"""Reports that come before the store knows that their workers have the jobs: see docs/adr/0078.

Whoever names the lease is right in any case, for the claim that a daemon has under it becomes its worker's. This is of
those that name the worker alone.
"""

from jqd.domain.job import State
from jqd.service.find import Coming
from jqd.service.services import Services
from jqd.store import JobView


def lease_of(services: Services, job_id: str, worker_id: str) -> int:
    """Of a job that this daemon handed over to that worker: it knows that before the store does. 0: it does not.

    It forgets it when the store knows, so whoever asks here first and the store then misses nothing.
    """
    here = services.runner.running(job_id)
    return here.lease if here is not None and here.worker == worker_id else 0


def may_come(services: Services, view: JobView | Coming, worker_id: str) -> bool:
    """Whether a job may be on its way into the hand of that worker, or just came there. `view`: got after the report.

    A worker may report before its 202 was read, journaled and applied. Until then the store knows the daemon that holds
    the job, and that daemon alone whom it gave the job to. What was said of an earlier attempt must not answer for it.
    """
    if isinstance(view, Coming):
        return True  # a store that was emptied may be told of hand-overs first
    if view.state is not State.RUNNING:
        return False
    if not view.daemon:
        return view.worker == worker_id  # it came between two looks
    here = services.runner.running(view.id) if view.daemon == services.control.sharers()[0] else None
    return here is None or here.worker == worker_id
