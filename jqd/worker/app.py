"""An `App` collects job functions under names, for pushers and for the worker that runs them.

    app = jqd.App()

    @app.job(max_retry=3, timeout="1m", keep_result=True)
    def resize(path: str, width: int = 800) -> str: ...

    resize("a.png")                  # an ordinary call, here and now
    ref = resize.push("a.png")       # a job for whichever worker serves `resize`
    ref.result(wait="30s")

The options of `@app.job` hold for every such job, whoever pushes it: a worker registers them at the daemon. The
pusher's own options win. docs/use/PYTHON.md explains all. Nothing here needs trio: only a worker does.
"""

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, get_args, overload

import msgspec

from jqd.client import TIMEOUT_S_DEFAULT, Ack, Buffer, Client
from jqd.client.buffer import Limits
from jqd.domain.extras import install_with
from jqd.domain.fields import allowed
from jqd.domain.job_spec import DURATIONS, JobOptionsDict, TypeOptions, plain_option
from jqd.domain.suggest import suggestion
from jqd.domain.units import Duration, duration_s
from jqd.worker.context import at_work
from jqd.worker.job import Job, Loop
from jqd.worker.ref import PushBatch, Ref

if TYPE_CHECKING:
    from jqd.testing.trial import Mode, Trial
    from jqd.worker.service import Service

P = ParamSpec("P")
R = TypeVar("R")


class Declaring(JobOptionsDict, total=False):
    """The options that `@app.job` takes."""

    server_only: bool | None


DECLARED = ("name", *Declaring.__annotations__, "loop")


class Declares(Protocol):
    """The decorator that `@app.job(…)` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Job[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R, R]: ...


class App:
    """Job functions by name, which pushers push and a worker runs."""

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        timeout: Duration = TIMEOUT_S_DEFAULT,
        loop: Loop = "trio",
    ) -> None:
        """`url`: the daemon that `.push` talks to; several daemons of one store as a list, or with commas. Without it,
        a worker pushes to the first of its daemons that answers; any other process to the daemon of `JQD_URL`, or to
        the one on this machine.

        `token`: for these daemons; without a `url`, `JQD_TOKEN`. `timeout`: how long to wait for an answer. `loop`: the
        event loop of async functions, unless their `@app.job` names another. Raises ValueError for another loop than
        trio and asyncio.
        """
        self.url = url if url is None or isinstance(url, str) else ",".join(url)
        self.loop = _loop(loop)
        self._token, self._timeout_s = token, duration_s(timeout)
        self._jobs: dict[str, Job[..., Any, Any]] = {}
        self._clients: dict[tuple[str | None, str | None], Client] = {}
        self._served_by: Callable[[], tuple[str, str | None]] | None = None
        self._pushes_by: Client | None = None
        self._buffer: Buffer | None = None
        self._batch: ContextVar[PushBatch | None] = ContextVar("jqd_batch", default=None)
        self._service: Service | None = None
        self._making = threading.Lock()

    @property
    def jobs(self) -> Mapping[str, Job[..., Any, Any]]:
        """Return name → job, in the order of definition."""
        return MappingProxyType(self._jobs)

    @property
    def client(self) -> Client:
        """Return the client with which `.push` pushes. There is one for each daemon, shared by all threads."""
        if self._pushes_by is not None:
            return self._pushes_by
        where: tuple[str | None, str | None] = (self.url, self._token)
        if self.url is None and self._served_by is not None:
            where = self._served_by()
        # No lock is used: another thread may hold it at the moment of a fork. If two clients are made at once, one
        # stays.
        return self._clients.get(where) or self._clients.setdefault(where, self._connect(*where))

    def _connect(self, url: str | None, token: str | None) -> Client:
        return Client(url, token=token, timeout_s=self._timeout_s)

    @contextmanager
    def serving(self, daemon: Callable[[], tuple[str, str | None]]) -> Iterator[None]:
        """During this block, push to the worker's daemon if the app has no URL. `daemon`: returns URL and token of that
        daemon, and is called for each push. For `serve` and `child` only."""
        self._served_by = daemon
        try:
            yield
        finally:
            self._served_by = None
            for where in [where for where in self._clients if self.url is None and where[0] is not None]:
                self._clients.pop(where).close()

    @contextmanager
    def pushing_by(self, client: Client) -> Iterator[None]:
        """Push with `client` during this block, in all threads, instead of the app's own client."""
        before, self._pushes_by = self._pushes_by, client
        try:
            yield
        finally:
            self._pushes_by = before

    def testing(self, mode: "Mode" = "fake", *, raises: bool = False) -> "Trial":
        """Use this app without a daemon, for tests: `with app.testing("fake") as t:` (docs/use/PYTHON.md, Test).

        "fake": pushed jobs run by `t.run_all()` or `t.advance("5m")`. "inline": a job has run when its push returns.
        `raises`: an unexpected exception in a job's function is also raised by the call that ran the job.
        """
        try:
            from jqd.testing.trial import Trial
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{error}; app.testing needs more of jqd: {install_with('testing')}") from error
        return Trial(self, mode, raises=raises)

    @property
    def asgi(self) -> "Service":
        """Return this app as an ASGI application with the default limits, for any ASGI server that runs on trio.

        All calls return the same object, which works in one trio loop. For other limits make a
        `jqd.worker.service.Service`.
        """
        from jqd.worker.service import Service

        with self._making:
            if self._service is None:
                self._service = Service(self.jobs)
            return self._service

    @property
    def keeps_pushes(self) -> bool:
        """Return whether a push now would be kept and sent later: a batch is open in this thread or task, or there is a
        buffer with room."""
        if self._batch.get() is not None:
            return True
        return self._buffer is not None and self._buffers_here and self._buffer.has_room()

    def send(self, job: Mapping[str, Any], ack: Ack | None, ref: Ref[Any]) -> None:
        """Send a job now, or add it to the batch that is open in this thread or task, or to the buffer. `ref`: gets the
        job's id. `Pushing.push` calls this."""
        batch, buffer = self._batch.get(), self._buffer
        if batch is not None:
            batch.add(job, ack, ref)
            return
        if buffer is not None and self._buffers_here:
            if ack is None and not job.get("replace"):
                pending = buffer.offer(job)
                if pending is not None:
                    ref.awaits(pending)
                    return
            elif job.get("job_id") is not None:
                buffer.settle(None)  # a job that was buffered under that id must arrive first
        ref.taken(*self.client.push_one(job, ack=ack))

    @property
    def _buffers_here(self) -> bool:
        """Return whether pushes in this thread or task may go to the buffer. In a test they may not. In a running job
        they may not either, as the job might succeed before a daemon has what it pushed."""
        return self._pushes_by is None and at_work.get() is None

    def buffer(self, **limits: Unpack[Limits]) -> Buffer:
        """Open and return a buffer. Until it is closed, this app's pushes, of all threads, are sent in the background.

        Use `with app.buffer():` for a block, or no `with` for the rest of the process. Batches, pushes with `ack` or
        `replace`, and pushes by jobs are still sent at once. Buffered jobs are not acknowledged: docs/use/PYTHON.md.
        `limits`: how much the buffer holds, and how long it waits (`jobs`, `size`, `linger`, `wait`, `patience`).
        Raises RuntimeError if the app has a buffer already.
        """
        with self._making:
            if self._buffer is not None:
                raise RuntimeError("this app has a buffer already; close that, or push through it")

            def closed() -> None:
                self._buffer = None

            self._buffer = Buffer(lambda jobs: self.client.push_all(jobs), closed=closed, **limits)
            return self._buffer

    def batch(self, *, atomic: bool = False, ack: Ack | None = None) -> PushBatch:
        """Collect the pushes that this thread or task makes in a block, `with app.batch():`, and send them when the
        block ends.

        `atomic`: all jobs go in one request, and all are taken or none. Without it many jobs go in several requests,
        and `PartlyPushed` says which were taken. If a job's id was known already, its `Ref.duplicate` is True. `ack`:
        how safe the jobs must be before they count as taken.
        """
        return PushBatch(self._batch, lambda: self.client, atomic=atomic, ack=ack)

    @overload
    def job(self, name: Callable[P, Coroutine[Any, Any, R]], /) -> Job[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def job(self, name: Callable[P, R], /) -> Job[P, R, R]: ...
    @overload
    def job(self, name: str | None = None, *, loop: Loop | None = None, **options: Unpack[Declaring]) -> Declares: ...
    def job(self, name: Callable[..., Any] | str | None = None, *, loop: Loop | None = None, **options: Any) -> Any:
        """Register a plain or async function as a job; `name` defaults to the function's.

        Plain functions run in threads, several at once, or in processes (`jqd worker --processes`); async ones as
        tasks of trio, or of asyncio with `loop="asyncio"`, and must not block. `priority`, `max_retry`, `timeout`
        (seconds, or like "20s"), `keep_result`, `expires_in` and `backoff` (the first wait after a failed attempt, or a
        list of all) hold for every such job unless its pusher sets them; those left out have the daemon's defaults.
        `server_only`: only the master key, or jobs, may push, change and cancel it. Raises ValueError or TypeError for
        options or functions that cannot work.
        """
        for given in (one for one in options if one not in DECLARED):
            raise TypeError(f"@app.job has no option {given!r}{suggestion(given, DECLARED)}")
        if callable(name):
            return self._register(name, None, {}, loop)
        declared = _options(**options)
        if loop is not None:
            _loop(loop)
        return lambda function: self._register(function, name, declared, loop)

    def _register(
        self, function: Callable[..., Any], name: str | None, options: Mapping[str, Any], loop: Loop | None
    ) -> Job[..., Any, Any]:
        own_name = str(name or getattr(function, "__name__", ""))
        if own_name in self._jobs:
            raise ValueError(
                f"two functions want the job name {own_name!r}; give one of them another: @app.job(name=…)"
            )
        if loop is not None and not inspect.iscoroutinefunction(function):
            raise TypeError(f"job {own_name!r} is a plain function and needs no loop; leave loop={loop!r} out")
        job: Job[..., Any, Any] = Job(function, own_name, options, self, loop or self.loop)
        self._jobs[own_name] = job
        return job


def _loop(loop: Loop) -> Loop:
    if loop not in get_args(Loop):
        raise ValueError(f'loop is "trio" or "asyncio", not {loop!r}')
    return loop


def _options(**given: Any) -> dict[str, Any]:
    """Return the options of `@app.job`, without those that are None, in the form in which a worker sends them to a
    daemon. Raises ValueError for values that a daemon would refuse."""
    fields = {name: plain_option(name, value) for name, value in given.items() if value is not None}
    for field in msgspec.structs.fields(TypeOptions):
        if field.name in fields:
            try:
                msgspec.convert(fields[field.name], field.type)
            except msgspec.ValidationError:
                what = allowed(field.type).replace("true", "True").replace("false", "False")
                what += ', or like "20s"' if field.name in DURATIONS else ""
                raise ValueError(f"a job's {field.name} is {what}; got {given[field.name]!r}") from None
    return fields
