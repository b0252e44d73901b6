"""Jobtypes that only the server itself may push: those whose handler is `server_only`.

The server is who has the master key, and jobs and schedules themselves. Dates of schedules do not come by here
(`firing.py`): who said the schedule was asked then.
"""

from collections.abc import Iterable

from jqd.desk.desk import Desk
from jqd.words.errors import Denied
from jqd.words.tenant import bare


def is_reserved(desk: Desk, jobtype: str) -> bool:
    """Whether the newest version of its handler says so. A job for one version alone is of that handler, too."""
    for name in (jobtype, jobtype.rpartition("@")[0]):
        handler = desk.workers.handler(name)
        if handler is not None and handler.versions and handler.versions[-1].server_only:
            return True
    return False


def expect_allowed(desk: Desk, jobtypes: Iterable[str], *, by_server: bool) -> None:
    """Raises Denied for what somebody else than the server must not push. `jobtypes`: as jqd knows them."""
    if by_server:
        return
    for jobtype in jobtypes:
        if is_reserved(desk, jobtype):
            quoted = repr(bare(jobtype)[:64])
            raise Denied(f"handler {quoted} is server_only: only the master key, and jobs, may push its jobs")
