"""Handles of pushed jobs (`Ref`) and of flows (`FlowRef`). `PushBatch` sends the pushes of a block together."""

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
    """A pushed job whose function returns a T. Its methods raise the same errors as those of `Client`.

    `aconfirm`, `astatus`, `aresult` and `acancel` are for async code, under asyncio and trio. `await ref` waits for the
    result without a time limit.
    """

    def __init__(self, name: str, client: Callable[[], Client], returns: Any, *, kept: bool | None = None) -> None:
        """`client`: returns the client that asks about the job. `returns`: the type to which the result is converted.
        `kept`: whether the job keeps its result; None: this process does not know."""
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
        """The job's id. Raises RuntimeError while the batch to which the job belongs is still open."""
        if self._job_id is None:
            raise RuntimeError(f"this job ({self.name}) has no id yet: a batch is pushed when its `with` block ends")
        return self._job_id

    @property
    def duplicate(self) -> bool:
        """Whether the same job was pushed before, so that this push added none. If the app has a buffer, call `confirm`
        first."""
        return self._duplicate if self._pending is None else self._pending.duplicate

    def taken(self, job_id: str, duplicate: bool) -> None:
        self._job_id, self._duplicate = job_id, duplicate

    def awaits(self, pending: Pending) -> None:
        self._job_id, self._pending = pending.job_id, pending

    def confirm(self, wait: Duration | None = None) -> None:
        """Wait until a daemon has acknowledged the job. A job waits for that only in a buffer; any other is
        acknowledged already. Raises the error of its push, or `TimedOut` after `wait`."""
        if self._pending is not None:
            self._pending.confirm(None if wait is None else duration_s(wait))

    def status(self, wait: Duration | None = None) -> JobInfo:
        """Return the job's present state. With `wait`: wait until the job has ended, but no longer than that, and
        return its state then."""
        self.confirm()
        return self._client().get(self.job_id, wait)

    def result(self, wait: Duration | None = None) -> T:
        """Return the job's result. Raises `NoResult` if it was not kept, `TimedOut` if the job has not ended, even
        after `wait`, `JobFailed` if it has failed, and TypeError if the result does not fit the function's return
        annotation."""
        if self._kept is False:
            raise NoResult(f"job {self.name!r} keeps no result; declare it, or push it, with keep_result=True")
        self.confirm()
        found = self._client().result(self.job_id, wait)
        try:
            return msgspec.convert(found, self._returns)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            raise TypeError(f"job {self.job_id} ({self.name}) returned what its function does not: {error}") from None

    def events(self) -> JobEvents:
        """Return an iterator of the job's events as they happen: `state`, `progress`, `log` (lines that it prints), and
        at last `end`."""
        self.confirm()
        return self._client().events(self.job_id)

    def log(self) -> str:
        """Return the last lines that the last attempt printed."""
        self.confirm()
        return self._client().log(self.job_id)

    def flow(self) -> FlowInfo:
        """Return the job's flow: the job, its parents and children, their parents and children, and so on."""
        self.confirm()
        return self._client().flow(self.job_id)

    def wait(self, wait: Duration | None = None) -> JobInfo:
        """Wait until the job has ended, and return it. Raises `TimedOut` after `wait`; None: no time limit."""
        self.confirm()
        return self._client().wait([self.job_id], None if wait is None else duration_s(wait))[0]

    def cancel(self) -> Cancel:
        """Cancel the job, if it has not ended. Returns whether it is cancelled, will be cancelled soon, or had ended
        already."""
        self.confirm()
        return self._client().cancel(self.job_id)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._whole().__await__()

    async def _whole(self) -> T:
        await self.aended()
        return await self.aresult()

    async def aended(self) -> JobInfo:
        """Wait until the job has ended, without a time limit, and return it. A cancellation ends the wait."""
        while True:
            info = await self.astatus(LOOK_S)
            if info.ended:
                return info

    async def aconfirm(self, wait: Duration | None = None) -> None:
        """Wait until a daemon has acknowledged the job, for async code. Raises the error of its push, or `TimedOut`
        after `wait`. A cancellation ends the wait."""
        await look(self.confirm, wait)

    async def astatus(self, wait: Duration | None = None) -> JobInfo:
        """Return the job's present state, for async code. With `wait`: its state when it has ended or `wait` is over. A
        cancellation ends the wait."""
        return await look(self.status, wait)

    async def aresult(self, wait: Duration | None = None) -> T:
        """Return the job's result, for async code. Raises `NoResult` if it was not kept, `TimedOut` after `wait`,
        `JobFailed` if the job has failed. A cancellation ends the wait."""
        return await look(self.result, wait)

    async def acancel(self) -> Cancel:
        """Cancel the job, if it has not ended, for async code. Returns whether it is cancelled, will be cancelled soon,
        or had ended already."""
        return await anyio.to_thread.run_sync(self.cancel)


class PushBatch:
    """Collects the pushes of a block and sends them when the block ends: `with app.batch():`, or `async with` in async
    code. If the block raises, nothing is pushed."""

    def __init__(
        self, now: "ContextVar[PushBatch | None]", client: Callable[[], Client], *, atomic: bool, ack: Ack | None
    ) -> None:
        """`now`: the context variable for the batch that is open in a thread or task. `atomic`, `ack`: see
        `App.batch`."""
        self._now, self._client, self._atomic, self._ack = now, client, atomic, ack
        self._token: Token[PushBatch | None] | None = None
        self.refs: list[Ref[Any]] = []
        """The pushed jobs, in order. They get their ids when the block ends."""
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
    """The pushed jobs of a flow. R is the type of the last job's result, or a list if the flow ends with a group.

    `await ref` waits for the result without a time limit, under asyncio and trio. The methods raise the same errors as
    those of `Client`.
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
        """Ids of all jobs, in an order in which each comes after those that it waits for."""
        self.last = list(last)
        """The last job, or all members of the group with which the flow ends."""
        self.groups = list(groups)
        """Names of the groups in the flow, in order."""
        self._client, self._is_list = client, is_list

    def __repr__(self) -> str:
        return f"<flow of {len(self.job_ids)} jobs, the last is {self.last[-1].job_id}>"

    @property
    def job_id(self) -> str:
        """The id of the last job. If the flow ends with a group, that of the group's last member."""
        return self.last[-1].job_id

    def wait(self, wait: Duration | None = None) -> list[JobInfo]:
        """Wait until the last job has ended, or all members of the group with which the flow ends. Returns them. Raises
        `TimedOut` after `wait`; None: no time limit."""
        return self._client().wait([ref.job_id for ref in self.last], None if wait is None else duration_s(wait))

    def result(self, wait: Duration | None = None) -> R:
        """Return the last job's result, or the list of results if the flow ends with a group. Raises `NoResult` if it
        was not kept, `TimedOut` after `wait`, `JobFailed` if a job has failed."""
        self.wait(0 if wait is None else wait)
        found = [ref.result() for ref in self.last]
        return cast("R", found if self._is_list else found[0])

    def flow(self) -> FlowInfo:
        """Return the present state of all jobs of the flow, and of other jobs linked to them."""
        return self._client().flow(self.job_id)

    def cancel(self) -> Changed:
        """Cancel all jobs of the flow, and all jobs linked to them, if they have not ended."""
        return self._client().cancel_flow(self.job_id)

    def retry(self) -> Changed:
        """Retry all failed jobs of the flow and of jobs linked to it. A job that was cancelled because one of these
        failed is retried, too."""
        return self._client().retry_flow(self.job_id)

    async def aresult(self, wait: Duration | None = None) -> R:
        """Return the last job's result, or the list of results if the flow ends with a group, for async code. A
        cancellation ends the wait."""
        return await look(self.result, wait)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._whole().__await__()

    async def _whole(self) -> R:
        for ref in self.last:
            await ref.aended()
        return await self.aresult()
