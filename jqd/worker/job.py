"""A function registered as a job, and how to call and push it."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

import anyio.to_thread
import msgspec

from jqd.client import Ack, Client
from jqd.client.job_info import job_map
from jqd.domain.job import NAME_LENGTH_MAX, is_name, why_no_place
from jqd.domain.job_spec import OnePush
from jqd.domain.suggest import suggestion
from jqd.worker.parameters import Parameters
from jqd.worker.ref import Ref
from jqd.worker.steps import Signature

if TYPE_CHECKING:
    from jqd.worker.app import App

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")
Loop = Literal["trio", "asyncio"]


class Declared(Protocol):
    """What a worker needs to know of a job. The function itself may be in another process."""

    @property
    def name(self) -> str:
        """The jobtype."""

    @property
    def loop(self) -> Loop | None:
        """Return the event loop of its async function; None: it is a plain function."""

    @property
    def declared(self) -> Mapping[str, Any]:
        """Return the options given to `@app.job`. A worker sends them to the daemon when it registers."""


class Pushing(Generic[P, R]):
    """A job with options for its pushes. The parameters of `push` are those of the function."""

    def __init__(self, job: "Job[P, Any, R]", app: "App", options: Mapping[str, Any], ack: Ack | None) -> None:
        self._job, self._app, self._ack = job, app, ack
        self._options = {**job.usual, **{name: value for name, value in options.items() if value is not None}}

    def push(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Push one job. Blocks for one request, so async functions use `apush`.

        Raises TypeError for an argument that the function does not take; otherwise as `Client.push`.
        """
        return self._send(self._map(args, kwargs))

    def following(self, *args: P.args, **kwargs: P.kwargs) -> Mapping[str, Any]:
        """Return the job as a map for `jqd.current().push`, which pushes it when the running job succeeds. `ack` is
        ignored.

        Raises ValueError for `replace=True`: see docs/use/WORKERS.md.
        """
        if self._options.get("replace"):
            raise ValueError(
                "a job that follows another cannot replace one: push it by itself, or without replace=True"
            )
        return self._map(args, kwargs)

    def _map(self, args: Any, kwargs: Any) -> dict[str, Any]:
        packed = self._job.parameters.pack(args, kwargs)
        return job_map(self._job.name, None if packed is None else msgspec.Raw(packed), **self._options)

    def _send(self, job: Mapping[str, Any]) -> Ref[R]:
        kept = bool(job.get("keep_result", False))
        ref: Ref[R] = Ref(self._job.name, lambda: self._app.client, self._job.parameters.returns, kept=kept)
        self._app.send(job, self._ack, ref)
        return ref

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Push one job from async code, under asyncio and trio. It cannot be cancelled once it has begun, as a daemon
        may have taken the job. Raises TypeError for an argument that the function does not take; otherwise as
        `Client.push`."""
        if self._app.keeps_pushes:
            return self.push(*args, **kwargs)
        return await anyio.to_thread.run_sync(lambda: self.push(*args, **kwargs))

    delay = enqueue = push


class Job(Pushing[P, R], Generic[P, C, R]):
    """A function registered as a job. Calling it runs the function here and returns a C. `push` pushes a job, whose
    result is an R, with the declared options."""

    def __init__(
        self, function: Callable[P, C], name: str, options: Mapping[str, Any], app: "App", loop: Loop = "trio"
    ) -> None:
        """`options`: those given to `@app.job`. `loop`: the event loop of an async function. Raises ValueError or
        TypeError if the name or the function cannot be a job's."""
        if not is_name(name):
            raise ValueError(f"a job's name has 1 to {NAME_LENGTH_MAX} printable characters; got {name!r}")
        if why := why_no_place(name):
            raise ValueError(f"a job's name {why}; got {name!r}")
        self.name = name
        self.function = function
        self.declared = MappingProxyType(dict(options))
        """The options of the declaration."""
        self.usual = {name: value for name, value in options.items() if name != "server_only"}
        """Those of the declared options that each push sends."""
        self.is_async = inspect.iscoroutinefunction(function)
        self.loop = loop if self.is_async else None
        self.parameters = Parameters(function, name)
        super().__init__(self, app, {}, None)
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now, as if it had no decorator."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name!r} of {self.__module__}.{self.__qualname__}>"

    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        ack: Ack | None = None,
        **options: Unpack[OnePush],
    ) -> Pushing[P, R]:
        """Return the job with options that replace those of `@app.job`: `send.options(delay="5m").push("ann")`.

        They are the options of `Client.push`. `id` is your own id for the job, called `job_id` in `Client.push`.
        """
        known = ("id", "ack", *OnePush.__annotations__)
        for given in (one for one in options if one not in known):
            raise TypeError(f"a job has no option {given!r}{suggestion(given, known)}")
        return Pushing(self, self._app, {"job_id": id, **options}, ack)

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[object, R]: ...
    @overload
    def s(self: Callable[Concatenate[A, Q], Any], *args: Q.args, **kwargs: Q.kwargs) -> Signature[A, R]: ...
    def s(self, *args: Any, **kwargs: Any) -> Signature[Any, R]:
        """Return a call that is pushed later, in a `chain` or `group`. If you leave out the first parameter, it gets
        the result of the previous step: docs/use/FLOWS.md. Raises TypeError for an argument that the function does not
        take."""
        return Signature(self, self.parameters.pack_call(args, kwargs))

    @property
    def client(self) -> Client:
        """Return the client with which the job's app pushes."""
        return self._app.client

    def ref(self, job_id: str) -> Ref[R]:
        """Return a `Ref` for a job of this function that was pushed before, by its id."""
        ref: Ref[R] = Ref(self.name, lambda: self._app.client, self.parameters.returns)
        ref.taken(job_id, duplicate=False)
        return ref
