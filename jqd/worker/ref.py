"""Handles of pushed jobs (`Ref`) and flows (`FlowRef`); and `PushBatch`, which sends a block's pushes together."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import anyio.to_thread
import msgspec

from jqd.client import (
    Ack,
    Cancel,
    Changed,
    Client,
    FlowInfo,
    JobEvents,
    JobInfo,
    LessSafe,
    NoResult,
    PartlyPushed,
    Pending,
)
from jqd.client.abandoned import look
from jqd.domain.units import Duration, duration_s

T = TypeVar("T")
LOOK_S = 20.0  # one long poll of an `await`: after a cancellation its thread ends so late at most


class Ref(Generic[T]):
    """One pushed job whose function returns a T. Its methods raise the same errors as those of `Client`.

    `aconfirm`, `astatus`, `aresult` and `acancel` are for async code, under asyncio and trio; `await ref` waits for the
    result, however long that takes.
    """

    def __init__(self, name: str, client: Callable[[], Client], returns: Any, *, kept: bool | None = None) -> None:
        """`returns`: the type that a result is converted to. `kept`: whether it is kept; None: unknown here."""
        self.name = name
        self._client = client
        self._returns = returns
        self._kept = kept
        self._job_id: str | None = None
        self._duplicate = False
        self._pending: Pending | None = None  # set if it was pushed through a buffer

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
        """Return whether the daemon knew the same push already: it counts once. With a buffer, call `confirm` first."""
        return self._duplicate if self._pending is None else self._pending.duplicate

    def taken(self, job_id: str, duplicate: bool) -> None:
        self._job_id, self._duplicate = job_id, duplicate

    def awaits(self, pending: Pending) -> None:
        self._job_id, self._pending = pending.job_id, pending

    def confirm(self, wait: Duration | None = None) -> None:
        """Return when a daemon has acknowledged the job: at once, unless it waits in a buffer. Raises the error of its
        push, and `TimedOut` after `wait`."""
        if self._pending is not None:
            self._pending.confirm(None if wait is None else duration_s(wait))

    def status(self, wait: Duration | None = None) -> JobInfo:
        """Return the job as it is now; with `wait`, when it has ended or that time is over."""
        self.confirm()
        return self._client().get(self.job_id, wait)

    def result(self, wait: Duration | None = None) -> T:
        """Return the job's result. Raises `NoResult` for a job without `keep_result`, `TimedOut` when it has not ended
        (after `wait`), `JobFailed`; and TypeError if the result does not fit the function's return annotation."""
        if self._kept is False:
            raise NoResult(f"job {self.name!r} keeps no result; declare it, or push it, with keep_result=True")
        self.confirm()
        found = self._client().result(self.job_id, wait)
        try:
            return msgspec.convert(found, self._returns)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            raise TypeError(f"job {self.job_id} ({self.name}) returned what its function does not: {error}") from None

    def events(self) -> JobEvents:
        """Return an iterator of the job's events as they happen, until it has ended: see `Client.events`."""
        self.confirm()
        return self._client().events(self.job_id)

    def log(self) -> str:
        """Return the end of what the last attempt printed."""
        self.confirm()
        return self._client().log(self.job_id)

    def flow(self) -> FlowInfo:
        """Return the job's flow: the job, its parents and children, their parents and children, and so on."""
        self.confirm()
        return self._client().flow(self.job_id)

    def wait(self, wait: Duration | None = None) -> JobInfo:
        """Return the job when it has ended. Raises `TimedOut` after `wait`; None: never."""
        self.confirm()
        return self._client().wait([self.job_id], None if wait is None else duration_s(wait))[0]

    def cancel(self) -> Cancel:
        """Cancel the job, if it has not ended."""
        self.confirm()
        return self._client().cancel(self.job_id)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._whole().__await__()

    async def _whole(self) -> T:
        await self.aended()
        return await self.aresult()

    async def aended(self) -> JobInfo:
        """Return the job when it has ended, however long that takes. A cancellation ends the wait."""
        while True:
            info = await self.astatus(LOOK_S)
            if info.ended:
                return info

    async def aconfirm(self, wait: Duration | None = None) -> None:
        """`confirm` for async code. A cancellation ends the wait."""
        await look(self.confirm, wait)

    async def astatus(self, wait: Duration | None = None) -> JobInfo:
        """`status` for async code. A cancellation ends the wait."""
        return await look(self.status, wait)

    async def aresult(self, wait: Duration | None = None) -> T:
        """`result` for async code. A cancellation ends the wait."""
        return await look(self.result, wait)

    async def acancel(self) -> Cancel:
        """Cancel the job, for async code."""
        return await anyio.to_thread.run_sync(self.cancel)


class PushBatch:
    """Gathers the pushes of a block and sends them when it ends: `with app.batch():`, or `async with` in async code. A
    block that raises pushes nothing."""

    def __init__(
        self, now: "ContextVar[PushBatch | None]", client: Callable[[], Client], *, atomic: bool, ack: Ack | None
    ) -> None:
        """`now`: the context variable that holds the open batch of a thread or task."""
        self._now, self._client, self._atomic, self._ack = now, client, atomic, ack
        self._token: Token[PushBatch | None] | None = None
        self.refs: list[Ref[Any]] = []
        """The pushed jobs, in order. They have ids once the block has ended."""
        self._jobs: list[Mapping[str, Any]] = []

    def add(self, job: Mapping[str, Any], ack: Ack | None, ref: Ref[Any]) -> None:
        if ack is not None:
            raise ValueError("the jobs of a batch are acknowledged together: write app.batch(ack=…)")
        self._jobs.append(job)
        self.refs.append(ref)

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("this batch was used before, and its jobs are pushed: make another with app.batch()")
        if self._now.get() is not None:
            raise RuntimeError("a batch is open here already; its jobs go in one request, so one is enough")
        self._token = self._now.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if error is None:
            self._push()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if error is None:
            await anyio.to_thread.run_sync(self._push)

    def _close(self) -> None:
        assert self._token is not None
        self._now.reset(self._token)

    def _push(self) -> None:
        if not self._jobs:
            return
        try:
            taken = self._client().push_all(self._jobs, atomic=self._atomic, ack=self._ack)
        except (PartlyPushed, LessSafe) as error:
            for ref, job_id in zip(self.refs, error.job_ids, strict=True):
                if job_id is not None:
                    ref.taken(job_id, duplicate=False)
            raise
        for ref, (job_id, duplicate) in zip(self.refs, taken, strict=True):
            ref.taken(job_id, duplicate)


R = TypeVar("R")


class FlowRef(Generic[R]):
    """The pushed jobs of a flow. R is the type of the last job's result; a list, if a group ends the flow.

    `await ref` waits for the result, however long it takes, under asyncio and trio. The methods raise the same errors
    as those of `Client`.
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
        """Ids of all jobs, each after those that it waits for."""
        self.last = list(last)
        """The last job, or all members of the group that ends the flow."""
        self.groups = list(groups)
        """The names of its groups, in order."""
        self._client, self._is_list = client, is_list

    def __repr__(self) -> str:
        return f"<flow of {len(self.job_ids)} jobs, the last is {self.last[-1].job_id}>"

    @property
    def job_id(self) -> str:
        """The id of the last job, or of the last member of the group that ends the flow."""
        return self.last[-1].job_id

    def wait(self, wait: Duration | None = None) -> list[JobInfo]:
        """Return the last jobs when they have ended. Raises `TimedOut` after `wait`; None: never."""
        return self._client().wait([ref.job_id for ref in self.last], None if wait is None else duration_s(wait))

    def result(self, wait: Duration | None = None) -> R:
        """Return the last job's result, or the list of the last group's results. Raises as `Ref.result`."""
        self.wait(0 if wait is None else wait)
        found = [ref.result() for ref in self.last]
        return cast("R", found if self._is_list else found[0])

    def flow(self) -> FlowInfo:
        """Return all jobs of the flow, and others linked to them, as they are now."""
        return self._client().flow(self.job_id)

    def cancel(self) -> Changed:
        """Cancel all jobs of the flow, and others linked to them, that have not ended."""
        return self._client().cancel_flow(self.job_id)

    def retry(self) -> Changed:
        """Retry all failed jobs of the flow, and others linked to them, with those that were cancelled for them."""
        return self._client().retry_flow(self.job_id)

    async def aresult(self, wait: Duration | None = None) -> R:
        """`result` for async code. A cancellation ends the wait."""
        return await look(self.result, wait)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._whole().__await__()

    async def _whole(self) -> R:
        for ref in self.last:
            await ref.aended()
        return await self.aresult()
