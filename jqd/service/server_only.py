"""Jobtypes that only the server itself may push, or change what was pushed: those that are `server_only`.

Their handler says so, or who registered last with options for them, as long as those hold (`options.py`). The server
is who has the master key, and jobs and schedules themselves. Dates of schedules do not come by here (`firing.py`): who
said the schedule was asked then.
"""

from collections.abc import Iterable
from itertools import chain

from jqd.domain.errors import Denied
from jqd.domain.tenant import bare, tenant_of
from jqd.service.find import Coming
from jqd.service.services import Desk
from jqd.store import JobView


def is_reserved(desk: Desk, jobtype: str) -> bool:
    """Whether a jobtype is `server_only`. A job for one version of a handler alone is of that handler, too."""
    for name in (jobtype, jobtype.rpartition("@")[0]):
        handler = desk.workers.handler(name)
        if name in desk.options.reserved or (handler and handler.versions and handler.versions[-1].server_only):
            return True
    return False


def expect_allowed(desk: Desk, jobtypes: Iterable[str]) -> None:
    """Raises Denied for what somebody else than the server must not push. `jobtypes`: as jqd knows them."""
    for jobtype in jobtypes:
        if not desk.principal.is_server and is_reserved(desk, jobtype):
            quoted = repr(bare(jobtype)[:64])
            raise Denied(f"jobs {quoted} are server_only: that is for the master key, and for jobs")


def may_change(desk: Desk, view: JobView | Coming) -> bool:
    """Whether a job is for who asks to cancel, change or delete. Of what is on its way nobody knows the type."""
    if desk.principal.is_server:
        return True
    return not (is_reserved(desk, view.jobtype) if isinstance(view, JobView) else any_reserved(desk))


def any_reserved(desk: Desk) -> bool:
    """Whether a job of which nobody knows the type may be one that is not for who asks to change."""
    if desk.principal.is_server:
        return False
    handlers = (name for name, one in desk.workers.handlers().items() if one.versions[-1].server_only)
    return any(desk.principal.sees(tenant_of(name)) for name in chain(desk.options.reserved, handlers))
