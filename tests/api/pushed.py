"""Jobs just pushed, here and elsewhere."""

from jqd.domain.jobid import IdSource
from tests.api.edge import Edge
from tests.api.fakes import JOURNAL


async def pushed(edge: Edge) -> str:
    told = await edge.call("POST", "/v1/jobs", {"name": "mail"})
    assert told.status == 201
    return str(told.body["job_id"])


def foreign_id(edge: Edge) -> str:
    """An id another daemon's journal gave out just now."""
    return IdSource(journal=JOURNAL + 1, salt=3, clock=edge.clock).take(1).first
