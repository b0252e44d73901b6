"""The worker's programming surface: an `App` collects job functions under names.

    app = jqd.worker.App()

    @app.job(max_retry=3, timeout=60)
    def resize(argument: dict[str, object]) -> str: ...

    resize({"path": "a.png"})        # an ordinary call, here and now
    resize.push({"path": "a.png"})   # a job for whichever worker serves `resize`

A job has ONE argument, any MessagePack value, and the function gets it as it is, as one positional argument: a map
arrives as a dict and a list as a list; neither is spread over parameters. A function without parameters takes jobs
without an argument. The options of `@app.job` are what `.push` sends when the caller says nothing else; they do not
change how a job pushed by others runs, for that travels with the job.
"""

import inspect
import threading
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from jqd.client import Client
from jqd.words.job import NAME_LENGTH_MAX, is_name
from jqd.worker.context import Context

if TYPE_CHECKING:
    from jqd.worker.service import Service

P = ParamSpec("P")
R = TypeVar("R")


class Job(Generic[P, R]):
    """A function under a job's name. Calling it runs it inline; `push` makes a job of it."""

    def __init__(self, app: "App", function: Callable[P, R], name: str, defaults: Mapping[str, Any]) -> None:
        self.name = name
        self.function = function
        self.defaults = MappingProxyType(dict(defaults))
        self.is_async = inspect.iscoroutinefunction(function)
        self.parameters = _parameters(function, name)
        """How many values the function is called with: none, the argument, or the argument and the Context."""
        self._app = app
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, as if it had no decorator."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.name!r} of {self.__module__}.{self.__qualname__}>"

    def push(self, argument: Any = None, *, client: Client | None = None, **options: Any) -> str:
        """Push a job for this function; answers its id. Blocks for one request: not for use inside an async job.

        `options` are those of `Client.push` and win over those of `@app.job`. `client`: which one to push with;
        without it the app's own, made on first use. Raises what `Client.push` raises.
        """
        return (client or self._app.client).push(self.name, argument, **{**self.defaults, **options})


class App:
    """The jobs one worker runs.

    `url`: the daemon that `.push` of its jobs talks to. Without it that is, in a worker, the daemon it is registered at
    (the first of them that answers), elsewhere what `JQD_URL` says, else the one on this machine. Where the worker
    registers is `serve`'s business.
    """

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        self._jobs: dict[str, Job[..., Any]] = {}
        self._clients: dict[tuple[str | None, str | None], Client] = {}
        self._served_by: Callable[[], tuple[str, str | None]] | None = None
        self._service: Service | None = None
        self._making = threading.Lock()

    @property
    def jobs(self) -> Mapping[str, Job[..., Any]]:
        """Name → job, in the order of definition."""
        return MappingProxyType(self._jobs)

    @property
    def client(self) -> Client:
        """The client that `.push` uses; one for each daemon, whatever threads push."""
        where: tuple[str | None, str | None] = (self.url, None)
        if self.url is None and self._served_by is not None:
            where = self._served_by()
        # Nothing is locked: another thread may hold any lock at the moment of a fork. Of two made at once one stays.
        return self._clients.get(where) or self._clients.setdefault(where, Client(where[0], token=where[1]))

    @contextmanager
    def serving(self, daemon: Callable[[], tuple[str, str | None]]) -> Iterator[None]:
        """Within this process is a worker: `daemon` tells which one it works for, URL and token. For `serve`."""
        self._served_by = daemon
        try:
            yield
        finally:
            self._served_by = None
            for where in [where for where in self._clients if self.url is None and where[0] is not None]:
                self._clients.pop(where).close()

    @property
    def asgi(self) -> "Service":
        """This app as an ASGI application with the default limits, to mount under any ASGI server that runs on trio.

        Always the same one, for one trio loop. `jqd.worker.Service` takes other limits.
        """
        from jqd.worker.service import Service  # the service is built on apps, not apps on it

        with self._making:
            if self._service is None:
                self._service = Service(self)
            return self._service

    def job(
        self,
        name: str | None = None,
        *,
        priority: int = 0,
        max_retry: int = 5,
        timeout: float = 30.0,
        keep_result: bool = False,
    ) -> Callable[[Callable[P, R]], Job[P, R]]:
        """Register a plain or async function as a job; `name` defaults to the function's.

        Plain functions run in threads, several at once; async ones as trio tasks, and must not block. The options
        are defaults of `.push`. Raises ValueError or TypeError for what can never work.
        """
        if callable(name):
            raise TypeError("write @app.job() with parentheses, not @app.job")
        defaults = {"priority": priority, "max_retry": max_retry, "timeout": timeout, "keep_result": keep_result}

        def register(function: Callable[P, R]) -> Job[P, R]:
            own_name = str(name or getattr(function, "__name__", ""))
            _check_name(own_name)
            if own_name in self._jobs:
                raise ValueError(
                    f"two functions want the job name {own_name!r}; give one of them another: @app.job(name=…)"
                )
            job = Job(self, function, own_name, defaults)
            self._jobs[own_name] = job
            return job

        return register


def _check_name(name: str) -> None:
    if not is_name(name):
        raise ValueError(f"a job's name has 1 to {NAME_LENGTH_MAX} printable characters; got {name!r}")


def _parameters(function: Callable[..., Any], name: str) -> int:
    """0, 1 or 2: how many values to call `function` with. Raises TypeError for a shape that cannot be called so."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"job {name!r} is a generator; a job returns one value")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(function).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in kinds]
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    spreads = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    hints = _hints(function)
    if positional and _is_context(hints.get(positional[0].name)):
        raise TypeError(f"job {name!r}: the first parameter is the job's argument; take the Context as the second")
    wants_context = len(positional) > 1 and _is_context(hints.get(positional[1].name))
    taken = 2 if wants_context else min(1, len(positional) + spreads)
    if [parameter.name for parameter in needed] != [parameter.name for parameter in positional[: len(needed)]] or len(
        needed
    ) > taken:
        raise TypeError(
            f"job {name!r} needs {', '.join(p.name for p in needed)}, but a job function is called with one "
            "positional argument, and a Context if its second parameter is annotated so; take a dict or a list instead"
        )
    return taken


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        # Names known to type checkers only. As text the annotations still tell which parameter is the Context.
        return dict(getattr(function, "__annotations__", {}))


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.rpartition(".")[2] == Context.__name__
    return hint is Context or Context in typing.get_args(hint)
