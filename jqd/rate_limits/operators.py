"""The operators and functions of CEL on Python values, and the steps that each takes. They have no side effects.

Values have the types of a job's argument: None, bool, int of 64 bits, float, str, bytes, list, dict.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
CHARS_A_STEP = 64  # characters of a text that are compared or copied in a step
ITEMS_A_STEP = 8  # items of a list that are copied in a step
COMPARED_A_STEP = 256  # characters of a search that are compared in a step
# Python searches a text shorter than this, or than SEARCH_TIMES the part, by comparing the whole part at each place.
SEARCH_TEXT_CHARS, SEARCH_TIMES = 2_500, 3
SEARCH_PART_CHARS = 100  # in other texts a longer part takes no longer than one of this length
NUMBER_CHARS, INT_CHARS = 100, 21  # a number's text must be shorter


class Failed(Exception):
    """An expression has no value for this job, or a value of a wrong type."""


class Missing(Failed):
    """An expression reads a field that this job does not have."""


class TooLong(Failed):
    """An expression has used up its steps. Unlike other failures, operators such as `||` do not ignore it."""


class Steps:
    """The budget of an evaluation, in steps; `left`: how many are left."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        """Take steps from the budget. Raises TooLong if it has too few."""
        self.left -= steps
        if self.left < 0:
            raise TooLong("it takes too many steps")


Scope = dict[str, Any]
Run = Callable[[Scope, Steps], Any]
"""Evaluates a node of an expression. The scope maps variable names to values."""

_TYPES: Mapping[type, str] = {
    type(None): "NULL_TYPE",
    bool: "BOOL",
    int: "INT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BYTES",
    list: "a LIST",
    dict: "a MAP",
}


def type_of(value: Any) -> str:
    return _TYPES[type(value)]


def no_such(name: str, *values: Any) -> Failed:
    """Return the error for an operator that is not defined for these values."""
    return Failed(f"{name} is not for {' and '.join(map(type_of, values))}")


def equal(left: Any, right: Any, steps: Steps) -> bool:
    """Return whether two values are equal. Numbers are compared by value; other values must have the same type."""
    kind = type(left)
    if kind is not type(right):
        return kind in _NUMBERS and type(right) in _NUMBERS and bool(left == right)
    if kind is list:
        if len(left) != len(right):
            return False
        steps.spend(len(left))
        return all(equal(*pair, steps) for pair in zip(left, right, strict=True))
    if kind is dict:
        if len(left) != len(right):
            return False
        steps.spend(2 * len(left))
        return all(_has(right, key, steps) and equal(value, right[key], steps) for key, value in left.items())
    if kind in _TEXTS:
        steps.spend(len(left) // CHARS_A_STEP)
    return bool(left == right)


_NUMBERS, _TEXTS = frozenset({int, float}), frozenset({str, bytes})


def _has(whole: Mapping[Any, Any], key: Any, steps: Steps) -> bool:
    if type(key) not in (str, int, bool, float):
        raise no_such("in", key, whole)
    spend_key(key, steps)
    if key not in whole:
        return False
    if type(key) is str:
        return True
    steps.spend(len(whole))  # compared again, because in Python True equals 1
    return any(equal(known, key, steps) for known in whole)


def spend_key(key: Any, steps: Steps) -> None:
    """Spend the steps of looking a key up in a map: of a text, for its length."""
    if type(key) is str:
        steps.spend(len(key) // CHARS_A_STEP)


def _in(item: Any, whole: Any, steps: Steps) -> bool:
    if type(whole) is dict:
        return _has(whole, item, steps)
    if type(whole) is not list:
        raise no_such("in", item, whole)
    steps.spend(len(whole))
    return any(equal(item, member, steps) for member in whole)


def _index(whole: Any, key: Any, steps: Steps) -> Any:
    if type(whole) is dict:
        if _has(whole, key, steps):
            return whole[key]
        raise Missing(f"there is no field {str(key)[:80]}")
    if type(whole) is not list or type(key) not in _NUMBERS or key != key // 1:
        raise no_such("[]", whole, key)
    if not 0 <= key < len(whole):
        raise Failed("index out of bounds")
    return whole[int(key)]


def _compare(name: str, right_way: Callable[[Any, Any], bool], left: Any, right: Any, steps: Steps) -> bool:
    kind, other = type(left), type(right)
    if not (kind in _NUMBERS and other in _NUMBERS) and (kind is not other or kind not in (bool, str, bytes)):
        raise no_such(name, left, right)
    if kind in _TEXTS:
        steps.spend(len(left) // CHARS_A_STEP)
    return right_way(left, right)


def _add(left: Any, right: Any, steps: Steps) -> Any:
    kind = type(left)
    if kind is not type(right):
        raise no_such("+", left, right)
    if kind in _TEXTS:
        steps.spend((len(left) + len(right)) // CHARS_A_STEP)
    elif kind is list:
        steps.spend((len(left) + len(right)) // ITEMS_A_STEP)
    elif kind not in _NUMBERS:
        raise no_such("+", left, right)
    return _whole(left + right)


def _calculate(name: str, how: Callable[[Any, Any], Any], left: Any, right: Any, _: Steps) -> Any:
    kind = type(left)
    if kind is not type(right) or kind not in _NUMBERS:
        raise no_such(name, left, right)
    return _whole(how(left, right))


def _divide(left: Any, right: Any) -> Any:
    if type(left) is float:
        if right == 0.0:
            return (
                math.nan if left == 0.0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
            )
        return left / right
    if right == 0:
        raise Failed("divide by zero")
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _remainder(left: Any, right: Any) -> Any:
    if type(left) is float:
        raise no_such("%", left, right)
    if right == 0:
        raise Failed("modulus by zero")
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def _negative(value: Any, _: Steps) -> Any:
    if type(value) not in _NUMBERS:
        raise no_such("-", value)
    return _whole(-value)


def _whole(value: Any) -> Any:
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise Failed("integer overflow")
    return value


def _not(value: Any, _: Steps) -> bool:
    if type(value) is not bool:
        raise no_such("!", value)
    return not value


def _size(value: Any, _: Steps) -> int:
    if type(value) not in (str, bytes, list, dict):
        raise no_such("size", value)
    return len(value)


def _texts(name: str, how: Callable[[str, str], bool], text: Any, part: Any, steps: Steps) -> bool:
    if type(text) is not str or type(part) is not str:
        raise no_such(name, text, part)
    steps.spend(len(part) // CHARS_A_STEP)
    if name == "contains":
        steps.spend(_compared(len(text), len(part)) // COMPARED_A_STEP)
    return how(text, part)


def _compared(text_chars: int, part_chars: int) -> int:
    """Return how many characters a search for a part in a text compares at most."""
    if text_chars >= max(SEARCH_TEXT_CHARS, SEARCH_TIMES * part_chars):
        part_chars = min(part_chars, SEARCH_PART_CHARS)
    return (max(text_chars - part_chars, 0) + 1) * (part_chars + 10)


def _int(value: Any, _: Steps) -> int:
    kind = type(value)
    try:
        if kind in (int, bool) or (kind is str and len(value) < INT_CHARS and _is_digits(value)):
            return int(_whole(int(value)))
        if kind is float and abs(value) < 2.0**63:
            return int(value)
    except ValueError:
        raise Failed(f"{value!r} is no whole number") from None
    raise no_such("int", value)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.lstrip("-").isdigit()


def _double(value: Any, _: Steps) -> float:
    try:
        if type(value) in (int, float, str) and len(str(value)) < NUMBER_CHARS:
            return float(value)
    except ValueError:
        raise Failed(f"{value!r} is no number") from None
    raise no_such("double", value)


def _string(value: Any, _: Steps) -> str:
    if type(value) is str:
        return str(value)
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in _NUMBERS:
        return str(value) if type(value) is int else f"{value:.17g}"
    raise no_such("string", value)


FUNCTIONS: Mapping[tuple[str, int], Callable[..., Any]] = {
    ("_==_", 2): equal,
    ("_!=_", 2): lambda left, right, steps: not equal(left, right, steps),
    ("_<_", 2): partial(_compare, "<", lambda left, right: left < right),
    ("_<=_", 2): partial(_compare, "<=", lambda left, right: left <= right),
    ("_>_", 2): partial(_compare, ">", lambda left, right: left > right),
    ("_>=_", 2): partial(_compare, ">=", lambda left, right: left >= right),
    ("_+_", 2): _add,
    ("_-_", 2): partial(_calculate, "-", lambda left, right: left - right),
    ("_*_", 2): partial(_calculate, "*", lambda left, right: left * right),
    ("_/_", 2): partial(_calculate, "/", _divide),
    ("_%_", 2): partial(_calculate, "%", _remainder),
    ("_[_]", 2): _index,
    ("@in", 2): _in,
    ("!_", 1): _not,
    ("-_", 1): _negative,
    ("size", 1): _size,
    ("contains", 2): partial(_texts, "contains", lambda text, part: part in text),
    ("startsWith", 2): partial(_texts, "startsWith", str.startswith),
    ("endsWith", 2): partial(_texts, "endsWith", str.endswith),
    ("int", 1): _int,
    ("double", 1): _double,
    ("string", 1): _string,
    ("dyn", 1): lambda value, _: value,
}


def _decided(by: bool, left: Run, right: Run) -> Run:
    """Return the operator `&&` (`by` is False) or `||` (`by` is True). If one side has the value `by`, that is the
    result, even if the other side fails."""

    def run(scope: Scope, steps: Steps) -> bool:
        trouble: Failed | None = None
        for side in (left, right):
            try:
                value = side(scope, steps)
                if type(value) is not bool:
                    raise no_such("||" if by else "&&", value)
            except TooLong:
                raise
            except Failed as error:
                trouble = trouble or error
            else:
                if value is by:
                    return by
        if trouble is not None:
            raise trouble
        return not by

    return run


def _choice(asked: Run, yes: Run, no: Run) -> Run:
    def run(scope: Scope, steps: Steps) -> Any:
        value = asked(scope, steps)
        if type(value) is not bool:
            raise no_such("?:", value)
        return (yes if value else no)(scope, steps)

    return run


def _not_false(of: Run) -> Run:
    """Return a `Run` that tells whether a loop continues: unless `of` is false. After an error it continues, as a later
    item may still decide."""

    def run(scope: Scope, steps: Steps) -> bool:
        try:
            return of(scope, steps) is not False
        except TooLong:
            raise
        except Failed:
            return True

    return run


LAZY: Mapping[str, Callable[..., Run]] = {
    "_&&_": partial(_decided, False),
    "_||_": partial(_decided, True),
    "_?_:_": _choice,
    "@not_strictly_false": _not_false,
}
