"""The client for async code, under asyncio and trio. It calls the blocking client in threads.

So it repeats requests, changes to other daemons and raises errors exactly as the blocking client does.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import anyio
import anyio.to_thread

from jqd.client.abandoned import look
from jqd.client.buffer import Buffer, Limits
from jqd.client.client import TIMEOUT_S_DEFAULT, Client
from jqd.client.connections import CONNECTIONS_MAX
from jqd.client.events import JobEvent

P = ParamSpec("P")
R = TypeVar("R")
AT_ONCE = 100  # jobs of a list that one call in a thread fetches


def _call(
    method: Callable[Concatenate[Client, P], R], *, looks: bool = False
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]":
    """Return an async method that calls a blocking one. If its task is cancelled, it still waits for the call's end,
    for the daemon may have acted. `looks`: the method only reads, so a cancelled task does not wait, and the thread
    ends after its present request."""

    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.in_thread(partial(method, self.client, *args, **kwargs), abandon=looks)

    call.__doc__ = method.__doc__
    return call


def _each(
    method: Callable[Concatenate[Client, P], Iterator[R]],
) -> "Callable[Concatenate[AsyncClient, P], AsyncIterator[R]]":

    async def each(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        found = method(self.client, *args, **kwargs)
        while some := await self.in_thread(lambda: list(islice(found, AT_ONCE))):
            for one in some:
                yield one

    each.__doc__ = method.__doc__
    return each


class AsyncClient:
    """An async `Client`: the same methods, for one event loop. At most 32 calls that read and 32 other calls run at
    once.

        async with AsyncClient("http://127.0.0.1:7420") as client:
            job_id = await client.push("resize", {"path": "a.png"}, keep_result=True)
            print(await client.result(job_id, wait="1m"))
    """

    def __init__(
        self, url: str | Sequence[str] | None = None, *, timeout_s: float = TIMEOUT_S_DEFAULT, token: str | None = None
    ) -> None:
        self.client = Client(url, timeout_s=timeout_s, token=token)
        """The blocking client, which can be used beside this one."""
        self._limiter, self._lookers = (anyio.CapacityLimiter(CONNECTIONS_MAX) for _ in range(2))

    def speaking_for(self, tenant: str) -> Self:
        """Return a view of this client that acts for one tenant, if the token allows it. It shares the client's
        connections and need not be closed."""
        view = copy(self)
        view.client = self.client.speaking_for(tenant)
        return view

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    async def in_thread(self, call: Callable[[], R], *, abandon: bool = False) -> R:
        """Call a blocking function in a thread and return its result. `abandon`: if the task is cancelled, do not wait
        for the thread."""
        if abandon:
            return await look(call, limiter=self._lookers)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter)

    def buffer(self, **limits: Unpack[Limits]) -> Buffer:
        """Return a `Buffer` for many pushes: `async with client.buffer() as buffer:`, `await buffer.apush(…)`."""
        return self.client.buffer(**limits)

    flow = _call(Client.flow, looks=True)
    cancel_flow = _call(Client.cancel_flow)
    retry_flow = _call(Client.retry_flow)
    group = _call(Client.group, looks=True)
    close_group = _call(Client.close_group)
    cancel_group = _call(Client.cancel_group)
    retry_group = _call(Client.retry_group)
    push = _call(Client.push)
    push_one = _call(Client.push_one)
    push_many = _call(Client.push_many)
    push_all = _call(Client.push_all)
    cancel = _call(Client.cancel)
    retry = _call(Client.retry)
    run_now = _call(Client.run_now)
    change = _call(Client.change)
    delete = _call(Client.delete)
    cancel_many = _call(Client.cancel_many)
    retry_many = _call(Client.retry_many)
    clean = _call(Client.clean)
    delete_many = _call(Client.delete_many)
    unregister = _call(Client.unregister)
    drain = _call(Client.drain)
    resume_daemon = _call(Client.resume_daemon)
    pause_type = _call(Client.pause_type)
    pause_all = _call(Client.pause_all)
    resume_all = _call(Client.resume_all)
    paused_tenants = _call(Client.paused_tenants, looks=True)
    resume_type = _call(Client.resume_type)
    create_token = _call(Client.create_token)
    derive_token = _call(Client.derive_token)
    revoke_token = _call(Client.revoke_token)
    set_quota = _call(Client.set_quota)
    delete_quota = _call(Client.delete_quota)
    set_constraint = _call(Client.set_constraint)
    delete_constraint = _call(Client.delete_constraint)
    set_schedule = _call(Client.set_schedule)
    delete_schedule = _call(Client.delete_schedule)
    pause_schedule = _call(Client.pause_schedule)
    resume_schedule = _call(Client.resume_schedule)
    run_schedule = _call(Client.run_schedule)
    set_handler = _call(Client.set_handler)
    delete_handler = _call(Client.delete_handler)

    async def events(self, job_id: str) -> AsyncIterator[JobEvent]:
        """Yield the job's events as they happen: `state`, `progress`, `log`, and at last `end`. If the task is
        cancelled, its thread ends within 15 s."""
        found = self.client.events(job_id)
        try:
            while (event := await self.in_thread(partial(next, found, None), abandon=True)) is not None:
                yield event
        finally:
            found.close()

    async def counters(self) -> AsyncIterator[JobEvent]:
        """Yield one daemon's counters each second, until the daemon ends the stream. If the task is cancelled, its
        thread ends within 1 s."""
        found = self.client.counters()
        while (event := await self.in_thread(partial(next, found, None), abandon=True)) is not None:
            yield event

    get = _call(Client.get, looks=True)
    log = _call(Client.log, looks=True)
    result = _call(Client.result, looks=True)
    wait = _call(Client.wait, looks=True)
    ready = _call(Client.ready, looks=True)
    stats = _call(Client.stats, looks=True)
    errors = _call(Client.errors, looks=True)
    workers = _call(Client.workers, looks=True)
    gone_workers = _call(Client.gone_workers, looks=True)
    handler = _call(Client.handler, looks=True)
    handlers = _call(Client.handlers, looks=True)
    types = _call(Client.types, looks=True)
    history = _call(Client.history, looks=True)
    tenants = _call(Client.tenants, looks=True)
    why = _call(Client.why, looks=True)
    daemons = _call(Client.daemons, looks=True)
    gone_daemons = _call(Client.gone_daemons, looks=True)
    me = _call(Client.me, looks=True)
    tokens = _call(Client.tokens, looks=True)
    audit = _call(Client.audit, looks=True)
    quotas = _call(Client.quotas, looks=True)
    constraint = _call(Client.constraint, looks=True)
    constraints = _call(Client.constraints, looks=True)
    schedule = _call(Client.schedule, looks=True)
    schedules = _call(Client.schedules, looks=True)

    ask = _call(Client.ask)
    jobs = _each(Client.jobs)
