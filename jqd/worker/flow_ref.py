"""The jobs of a flow that was pushed, as its pusher holds them."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar, cast

from jqd.client import Changed, Client, FlowInfo, JobInfo
from jqd.client.abandoned import look
from jqd.domain.units import Duration, duration_s
from jqd.worker.ref import Ref

R = TypeVar("R")


class FlowRef(Generic[R]):
    """Pushed jobs that follow each other. An R is the result of the last one; a list, where a group ends the flow.

    `await ref` is the result, however long it takes, under asyncio and trio. The methods raise what those of `Client`
    raise.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        job_ids: Sequence[str],
        last: Sequence[Ref[Any]],
        *,
        is_list: bool,
        groups: Sequence[str],
    ) -> None:
        self.job_ids = list(job_ids)
        """Ids of all jobs, each behind those that it waits for."""
        self.last = list(last)
        """The last job, or each member of the group that ends it."""
        self.groups = list(groups)
        """The names of its groups, in order."""
        self._client, self._is_list = client, is_list

    def __repr__(self) -> str:
        return f"<flow of {len(self.job_ids)} jobs, the last is {self.last[-1].job_id}>"

    @property
    def job_id(self) -> str:
        """The id of the last job, or of the last member of the group that ends it."""
        return self.last[-1].job_id

    def wait(self, wait: Duration | None = None) -> list[JobInfo]:
        """How the last jobs stand, once they have ended. Raises `TimedOut` after `wait`; None: never."""
        return self._client().wait([ref.job_id for ref in self.last], None if wait is None else duration_s(wait))

    def result(self, wait: Duration | None = None) -> R:
        """Return the result of the last job, or the list of the last ones' results; raises as `Ref.result` does."""
        self.wait(0 if wait is None else wait)
        found = [ref.result() for ref in self.last]
        return cast("R", found if self._is_list else found[0])

    def flow(self) -> FlowInfo:
        """All of its jobs as they stand, and others that they have to do with."""
        return self._client().flow(self.job_id)

    def cancel(self) -> Changed:
        """Cancel all of its jobs that have not ended; and others that they have to do with."""
        return self._client().cancel_flow(self.job_id)

    def retry(self) -> Changed:
        """Have those of its jobs tried anew that failed, and what waits for them; and others that they have to do
        with."""
        return self._client().retry_flow(self.job_id)

    async def aresult(self, wait: Duration | None = None) -> R:
        """As `result`. Cancelled, it waits no longer."""
        return await look(self.result, wait)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._whole().__await__()

    async def _whole(self) -> R:
        for ref in self.last:
            await ref.aended()
        return await self.aresult()
