"""Decides which jobtypes are `server_only`: only the server may push or change their jobs. Their handler says so, or
the options that a worker registered for them (`registered_options.py`).

The server is a caller with the master key, a running job, or a schedule. A schedule was checked when it was saved, so
the jobs that it pushes (`cron/firing.py`) are not checked again.
"""

from collections.abc import Iterable
from itertools import chain

from jqd.domain.errors import Denied
from jqd.domain.tenant import bare, tenant_of
from jqd.service.find import Coming
from jqd.service.services import Services
from jqd.store import JobView


def is_reserved(services: Services, jobtype: str) -> bool:
    """Return whether a jobtype is `server_only`. The jobtype of one version of a handler (`name@3`) is `server_only` if
    the handler is."""
    for name in (jobtype, jobtype.rpartition("@")[0]):
        handler = services.workers.handler(name)
        if name in services.options.reserved or (handler and handler.versions and handler.versions[-1].server_only):
            return True
    return False


def expect_allowed(services: Services, jobtypes: Iterable[str]) -> None:
    """Raise Denied for jobtypes (qualified names) that only the server may push."""
    for jobtype in jobtypes:
        if not services.principal.is_server and is_reserved(services, jobtype):
            quoted = repr(bare(jobtype)[:64])
            raise Denied(f"jobs {quoted} are server_only: that is for the master key, and for jobs")


def may_change(services: Services, view: JobView | Coming) -> bool:
    """Return whether the principal may cancel, change or delete a job. While a job is on its way into the store, its
    jobtype is unknown: then it may be changed only if no jobtype is `server_only`."""
    if services.principal.is_server:
        return True
    return not (is_reserved(services, view.jobtype) if isinstance(view, JobView) else any_reserved(services))


def any_reserved(services: Services) -> bool:
    """Return whether there are `server_only` jobtypes that the principal sees but must not push or change."""
    if services.principal.is_server:
        return False
    handlers = (name for name, each in services.workers.handlers().items() if each.versions[-1].server_only)
    return any(services.principal.can_see(tenant_of(name)) for name in chain(services.options.reserved, handlers))
