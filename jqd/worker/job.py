"""A function under a job's name, and how it may be called."""

import inspect
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar

from jqd.client import Client
from jqd.words.job import NAME_LENGTH_MAX, is_name
from jqd.worker.context import Context

P = ParamSpec("P")
R = TypeVar("R")
Loop = Literal["trio", "asyncio"]


class Declared(Protocol):
    """What a worker must know of a job to take it: the function itself may be in another process."""

    @property
    def name(self) -> str:
        """The jobtype."""

    @property
    def loop(self) -> Loop | None:
        """What its async function runs under; None: it is a plain one."""

    @property
    def options(self) -> Mapping[str, Any]:
        """What its declaration says of every such job; it travels with the registration."""


class Job(Generic[P, R]):
    """A function under a job's name. Calling it runs it inline; `push` makes a job of it."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        options: Mapping[str, Any],
        client: Callable[[], Client],
        loop: Loop = "trio",
    ) -> None:
        """`options`: those that its declaration gives. `client`: the one to push with. `loop`: for an async function.

        Raises ValueError and TypeError for what can never work.
        """
        if not is_name(name):
            raise ValueError(f"a job's name has 1 to {NAME_LENGTH_MAX} printable characters; got {name!r}")
        self.name = name
        self.function = function
        self.options = MappingProxyType(dict(options))
        self.is_async = inspect.iscoroutinefunction(function)
        self.loop = loop if self.is_async else None
        self.parameters = _parameters(function, name)
        """How many values the function is called with: none, the argument, or the argument and the Context."""
        self._client = client
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

        `options` are those of `Client.push` and win over those of `@app.job`, which win over the daemon's own.
        `client`: which one to push with; without it the app's own, made on first use. Raises what `Client.push` raises.
        """
        return (client or self._client()).push(self.name, argument, **{**self.options, **options})


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
