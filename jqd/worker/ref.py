"""A pushed job, or a flow of them, as its pusher holds it; and the pushes of one block, sent in one request."""

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
LOOK_S = 20.0  # one wait of an `await`: a thread that is abandoned ends so late at most


class Ref(Generic[T]):
    """One pushed job whose function returns a T. The methods raise what those of `Client` raise.

    `aconfirm`, `astatus`, `aresult` and `acancel` are the same for async code, under asyncio and trio; `await ref` is
    its result, however long that takes.
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
        """Return whether the daemon knew the same push already: it counts once.

        Behind a buffer this is known after `confirm`.
        """
        return self._duplicate if self._pending is None else self._pending.duplicate

    def taken(self, job_id: str, duplicate: bool) -> None:
        self._job_id, self._duplicate = job_id, duplicate

    def awaits(self, pending: Pending) -> None:
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

    def events(self) -> JobEvents:
        """What happens to the job, as it happens, until it has ended: see `Client.events`."""
        self.confirm()
        return self._client().events(self.job_id)

    def log(self) -> str:
        """The end of what its last attempt printed."""
        self.confirm()
        return self._client().log(self.job_id)

    def flow(self) -> FlowInfo:
        """All jobs that the job has to do with: its parents, its children, theirs and so on."""
        self.confirm()
        return self._client().flow(self.job_id)

    def wait(self, wait: Duration | None = None) -> JobInfo:
        """How the job has ended. Raises `TimedOut` after `wait`; None: never."""
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
        """How the job has ended, however long it takes. Cancelled, it waits no longer."""
        while True:
            info = await self.astatus(LOOK_S)
            if info.ended:
                return info

    async def aconfirm(self, wait: Duration | None = None) -> None:
        """As `confirm`. Cancelled, it waits no longer."""
        await look(self.confirm, wait)

    async def astatus(self, wait: Duration | None = None) -> JobInfo:
        """As `status`. Cancelled, it waits no longer."""
        return await look(self.status, wait)

    async def aresult(self, wait: Duration | None = None) -> T:
        """As `result`. Cancelled, it waits no longer."""
        return await look(self.result, wait)

    async def acancel(self) -> Cancel:
        """As `cancel`."""
        return await anyio.to_thread.run_sync(self.cancel)


class PushBatch:
    """`with app.batch():` or, in async code, `async with app.batch():`. A block that raises pushes nothing."""

    def __init__(
        self, now: "ContextVar[PushBatch | None]", client: Callable[[], Client], *, atomic: bool, ack: Ack | None
    ) -> None:
        """`now`: the context variable that holds the open batch of a thread or task."""
        self._now, self._client, self._atomic, self._ack = now, client, atomic, ack
        self._token: Token[PushBatch | None] | None = None
        self.refs: list[Ref[Any]] = []
        """What was pushed, in order. They have their ids when the block has ended."""
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
