"""Turns a call of a job function into the job's argument, a map of its parameters by name; and an argument into a call.

    def send(to: str, subject: str = "") -> int      {"to": "ann", "subject": "hi"}, or {"to": "ann"}
    def total(*numbers: float) -> float              {"numbers": [1, 2.5]}
    def note(**fields: str) -> None                  {"fields": {"a": "x"}}
    def tick() -> None                               no argument, or an empty map
    def load(rows: list[str], /) -> int              the argument itself, whatever it is

`msgspec` checks the argument against the annotations, when it is pushed and when it is run.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

import msgspec

from jqd.domain import media

NOT_GIVEN = object()  # value of a field that the argument lacks: the function's own default holds


class Call(NamedTuple):
    """A packed call. Its first parameter may be missing, to be filled with the result of another job."""

    argument: bytes | None
    """The given parameters, as MessagePack; None: none were given."""
    gap: str | None = None
    """The name of the missing first parameter; None: the call is complete."""


class Parameters:
    """The parameters of a job function. Packs calls into arguments, and unpacks arguments."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """`name`: the job's name, for messages. Raises TypeError for a function that cannot be a job."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"job {name!r} is a generator; a job returns one value")
        self._name = name
        self._signature = inspect.signature(function)
        self._parameters = list(self._signature.parameters.values())
        hints = self._hints = _hints(function)
        self.returns = hints.get("return", Any)
        """The function's return annotation; Any if it has none."""
        unnamed = [each.name for each in self._parameters if each.kind is Parameter.POSITIONAL_ONLY]
        self.is_whole = len(unnamed) == 1 and len(self._parameters) == 1
        """Whether the function has one positional-only parameter, which takes the job's argument as it is."""
        if unnamed and not self.is_whole:
            raise TypeError(
                f"job {name!r}: {unnamed[0]} has no name to be pushed under, for it stands before a '/'; "
                "such a parameter stands alone, and gets the whole argument"
            )
        try:
            kind = _checked(hints, self._parameters[0]) if self.is_whole else _struct(name, hints, self._parameters)
            self._decoders: Mapping[str, Callable[[Any], Any]] = {
                media.MSGPACK: msgspec.msgpack.Decoder(kind).decode,
                media.JSON: msgspec.json.Decoder(kind).decode,
            }
        except TypeError as error:
            raise TypeError(f"job {name!r}: its parameters cannot be checked: {error}") from None

    @property
    def may_be_left_out(self) -> bool:
        """Return whether the first parameter of the function has a default."""
        return bool(self._parameters) and self._parameters[0].default is not Parameter.empty

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        try:
            given = self._signature.bind(*args, **kwargs).arguments
            if not given:
                return None
            packed = msgspec.msgpack.encode(next(iter(given.values())) if self.is_whole else given)
            self._decoders[media.MSGPACK](packed)
        except (TypeError, OverflowError, msgspec.ValidationError) as error:
            raise TypeError(f"job {self._name!r} takes {self}: {error}") from None
        return packed

    def pack_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return a call as the argument of a job. A first parameter without a default may be left out, to be filled
        with the result of another job. Raises TypeError if the call does not fit."""
        try:
            argument = self.pack(args, kwargs)
        except TypeError:
            call = self._without_first(args, kwargs)
            if call is None:
                raise
            return call
        return Call(argument, self._parameters[0].name if self.is_whole and argument is None else None)

    def _without_first(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """Pack a call that leaves out the first parameter; None if it has a default or the call does not fit even
        so."""
        first = self._parameters[0] if self._parameters else None
        if first is None or first.kind is first.VAR_POSITIONAL or first.default is not Parameter.empty:
            return None
        if first.name in kwargs:
            return None  # the first parameter was given; below, a `**fields` would take it
        try:
            given = self._signature.replace(parameters=self._parameters[1:]).bind(*args, **kwargs).arguments
            packed = msgspec.msgpack.encode(given)
            if self._parameters[1:]:
                msgspec.msgpack.decode(packed, type=_struct(self._name, self._hints, self._parameters[1:]))
        except (TypeError, OverflowError, msgspec.ValidationError):
            return None
        return Call(packed if given else None, first.name)

    def _hint(self, why: str) -> str:
        if self.is_whole or not self._parameters or not why.startswith("Expected `object`, got") or " - at " in why:
            return ""
        names = ", ".join(f'"{each.name}": …' for each in self._parameters)
        return f". Push a map of its parameters, {{{names}}}; one parameter before a '/' takes any argument whole"

    def unpack(self, argument: msgspec.Raw, content_type: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and named values with which to call the function. Raises ValueError if the argument
        does not fit; its message names the wrong parameters."""
        try:
            if self.is_whole:
                if _is_nil(argument):
                    if self._parameters[0].default is not Parameter.empty:
                        return [], {}
                    argument = msgspec.Raw(b"null" if content_type == media.JSON else b"\xc0")
                return [self._decoders[content_type](argument)], {}
            if _is_nil(argument):
                argument = msgspec.Raw(b"{}" if content_type == media.JSON else b"\x80")
            found = self._decoders[content_type](argument)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"job {self._name!r} takes {self}: {error}{self._hint(str(error))}") from None
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for number, parameter in enumerate(self._parameters):
            value = getattr(found, f"p{number}")
            if value is NOT_GIVEN:
                continue
            if parameter.kind is Parameter.VAR_POSITIONAL:
                # With *args the parameters before it must be given by position.
                args = [_or_default(found, at, each) for at, each in enumerate(self._parameters[:number])]
                kwargs.clear()
                args += value
            elif parameter.kind is Parameter.VAR_KEYWORD:
                kwargs |= value
            else:
                kwargs[parameter.name] = value
        return args, kwargs

    def __str__(self) -> str:
        """Return the parameters as text for people: `(to: str, subject: str = '')`, or `no argument`."""
        return str(self._signature.replace(return_annotation=Parameter.empty)) if self._parameters else "no argument"


def _is_nil(argument: msgspec.Raw) -> bool:
    return len(argument) <= 4 and bytes(argument) in (b"", b"\xc0", b"null")


def _or_default(found: Any, number: int, parameter: Parameter) -> Any:
    value = getattr(found, f"p{number}")
    return parameter.default if value is NOT_GIVEN else value


def _struct(name: str, hints: Mapping[str, Any], parameters: list[Parameter]) -> type[msgspec.Struct]:
    """Make a struct with a field for each parameter. Fields are named `p0`, `p1`, …, as Python or msgspec may reserve a
    parameter's name."""
    fields: list[Any] = []
    for number, parameter in enumerate(parameters):
        kind = _checked(hints, parameter)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            fields.append((f"p{number}", list[kind], NOT_GIVEN))  # type: ignore[valid-type]
        elif parameter.kind is Parameter.VAR_KEYWORD:
            fields.append((f"p{number}", dict[str, kind], NOT_GIVEN))  # type: ignore[valid-type]
        elif parameter.default is Parameter.empty:
            fields.append((f"p{number}", kind))
        else:
            fields.append((f"p{number}", kind, NOT_GIVEN))
    values = {f"p{number}": parameter.name for number, parameter in enumerate(parameters)}
    return msgspec.defstruct(name, fields, rename=values, kw_only=True, forbid_unknown_fields=True)


def _checked(hints: Mapping[str, Any], parameter: Parameter) -> Any:
    """Return the annotation of a parameter for msgspec. Raises TypeError for a class whose values no argument can
    hold."""
    kind = hints.get(parameter.name, Any)
    if kind is object or isinstance(kind, str | typing.TypeVar):
        return Any
    if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
        raise TypeError(
            f"{parameter.name} is a {getattr(kind, '__name__', kind)}, which no argument can carry; "
            "take plain values, a dataclass or a msgspec.Struct"
        )
    return kind


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        # Some names are known to type checkers only. Annotations that stay text are not checked.
        return dict(getattr(function, "__annotations__", {}))
