"""A job that was pushed, as its pusher holds it: how it stands, what it returned, an end to it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio.to_thread
import msgspec

from jqd.client import Cancel, Client, JobInfo, NoResult, Pending
from jqd.domain.units import Duration, duration_s

T = TypeVar("T")


class Ref(Generic[T]):
    """One pushed job whose function returns a T. The methods raise what those of `Client` raise.

    `aconfirm`, `astatus`, `aresult` and `acancel` are the same for async code, under asyncio and trio.
    """

    def __init__(self, name: str, client: Callable[[], Client], returns: Any, *, kept: bool | None = None) -> None:
        """`returns`: what a result is converted to. `kept`: whether the result is kept; None: the daemon knows."""
        self.name = name
        self._client = client
        self._returns = returns
        self._kept = kept
        self._job_id: str | None = None
        self._duplicate = False
        self._pending: Pending | None = None  # it went through a buffer

    def __repr__(self) -> str:
        return f"<ref of {self.name!r} {self._job_id or 'not pushed yet'}>"

    @property
    def job_id(self) -> str:
        """The job's id. Raises RuntimeError as long as the batch that the job belongs to is open."""
        if self._job_id is None:
            raise RuntimeError(f"this job ({self.name}) has no id yet: a batch is pushed when its `with` block ends")
        return self._job_id

    @property
    def duplicate(self) -> bool:
        """The same push was there before: under its id the daemon knew the job already, and it counts once.

        Of a job that goes through a buffer it is known after `confirm`."""
        return self._duplicate if self._pending is None else self._pending.duplicate

    def taken(self, job_id: str, duplicate: bool) -> None:
        """A daemon took the job."""
        self._job_id, self._duplicate = job_id, duplicate

    def awaits(self, pending: Pending) -> None:
        """The job is in a buffer."""
        self._job_id, self._pending = pending.job_id, pending

    def confirm(self, wait: Duration | None = None) -> None:
        """Return when a daemon has acknowledged the job: at once, unless it waits in a buffer. Raises what its push
        met, and `TimedOut` after `wait`."""
        if self._pending is not None:
            self._pending.confirm(None if wait is None else duration_s(wait))

    def status(self, wait: Duration | None = None) -> JobInfo:
        """How the job stands; with `wait`, once it has ended or after so long."""
        self.confirm()
        return self._client().get(self.job_id, wait)

    def result(self, wait: Duration | None = None) -> T:
        """What its function returned. Raises `NoResult` for a job without `keep_result`, `TimedOut` when it has not
        ended (after `wait`), `JobFailed`; and TypeError when it returned something else than its annotation says."""
        if self._kept is False:
            raise NoResult(f"job {self.name!r} keeps no result; declare it, or push it, with keep_result=True")
        self.confirm()
        found = self._client().result(self.job_id, wait)
        try:
            return msgspec.convert(found, self._returns)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            raise TypeError(f"job {self.job_id} ({self.name}) returned what its function does not: {error}") from None

    def cancel(self) -> Cancel:
        """Cancel the job, if it has not ended."""
        self.confirm()
        return self._client().cancel(self.job_id)

    async def aconfirm(self, wait: Duration | None = None) -> None:
        """As `confirm`. Cancelled, it waits no longer."""
        await anyio.to_thread.run_sync(self.confirm, wait, abandon_on_cancel=True)

    async def astatus(self, wait: Duration | None = None) -> JobInfo:
        """As `status`. Cancelled, it waits no longer."""
        return await anyio.to_thread.run_sync(self.status, wait, abandon_on_cancel=True)

    async def aresult(self, wait: Duration | None = None) -> T:
        """As `result`. Cancelled, it waits no longer."""
        return await anyio.to_thread.run_sync(self.result, wait, abandon_on_cancel=True)

    async def acancel(self) -> Cancel:
        """As `cancel`."""
        return await anyio.to_thread.run_sync(self.cancel)
