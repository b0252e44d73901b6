"""Evaluates a CEL expression that the library has parsed and checked, and counts the steps.

A step takes 0.1 to 0.4 µs: a node of the expression, an item of a list that is iterated, compared or copied, a few
characters of a text. An expression that has used up its steps is stopped (`TooLong`), so none takes longer than its
budget, whatever is in it and in the job. Loops spend the steps of their body before each iteration.

The tree is a `CheckedExpr` of github.com/google/cel-spec, as bytes. Parts of the language that this module does not
know are refused.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jqd.rate_limits.operators import (
    FUNCTIONS,
    INT_MAX,
    LAZY,
    Failed,
    Missing,
    Run,
    Scope,
    Steps,
    TooLong,
    no_such,
    spend_key,
    type_of,
)


class Unknown(Exception):
    """The expression uses something that this evaluator does not support. `offset`: where, in characters from its
    beginning."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.offset = offset


Matcher = Callable[[str], tuple[int, float, Callable[[str], bool]]]
"""Pattern → (the steps that each match costs, the steps for each character of the text, a function that matches a
text). Raises Failed."""


class Node(NamedTuple):
    """A compiled part of an expression."""

    run: Run
    nodes: int
    """Number of nodes in it, without the bodies of loops: the steps that evaluating it once takes."""


class Tree:
    """A compiled expression, which can be evaluated."""

    def __init__(self, checked: bytes, matcher: Matcher) -> None:
        """Compile an expression. `checked`: a `CheckedExpr`, as the library serializes it. Raises Unknown,
        RecursionError."""
        tree = _message(_message(checked)[2][0])
        self._matcher = matcher
        self._positions = dict(_position(entry) for entry in _message(tree[5][0]).get(4, ())) if 5 in tree else {}
        self.fields: list[tuple[str, int]] = []
        """(name, offset) of the fields of a job that the expression reads."""
        self._node = self._build(tree[4][0], frozenset())

    def value(self, job: Mapping[str, Any], steps: Steps) -> Any:
        """Return the value of the expression for a job. Raises Failed, even for an internal error of an operator: a
        crash would be repeated at each start of the daemon."""
        steps.spend(self._node.nodes)
        try:
            return self._node.run({"job": job}, steps)
        except RecursionError as error:
            raise Failed("it is nested too deeply") from error
        except (ArithmeticError, ValueError, TypeError, LookupError) as error:
            raise Failed(f"internal error: {type(error).__name__}: {error}"[:200]) from error

    def _build(self, data: bytes, bound: frozenset[str]) -> Node:
        fields = _message(data)
        kind = next((kind for kind in _KINDS if kind in fields), 0)
        at = self._positions.get(fields.get(2, [0])[0], 0)
        if kind == 0:
            raise Unknown("this is not known here", at)
        return _KINDS[kind](self, _message(fields[kind][0]), at, bound)

    def _constant(self, fields: "Message", at: int, _: frozenset[str]) -> Node:
        ((kind, (raw,)),) = fields.items()
        match kind:
            case 1:
                value: Any = None
            case 2:
                value = bool(raw)
            case 3:
                value = raw - (1 << 64) if raw > INT_MAX else raw
            case 5:
                (value,) = struct.unpack("<d", raw)
            case 6:
                value = raw.decode()
            case 7:
                value = raw
            case _:
                raise Unknown("numbers are written without u here", at)
        return Node(lambda _, __: value, 1)

    def _name(self, fields: "Message", at: int, bound: frozenset[str]) -> Node:
        name = fields[1][0].decode()
        if name != "job" and name not in bound:
            raise Unknown(f"{name} is no value here", at)

        def run(scope: Scope, _: Steps) -> Any:
            value = scope[name]
            if isinstance(value, Failed):
                raise value  # the error of an earlier round of the loop
            return value

        return Node(run, 1)

    def _select(self, fields: "Message", at: int, bound: frozenset[str]) -> Node:
        operand, key = self._build(fields[1][0], bound), fields[2][0].decode()
        self._note(fields[1][0], key, at, bound)
        of, only_asks = operand.run, bool(fields.get(3, [0])[0])

        def run(scope: Scope, steps: Steps) -> Any:
            whole = of(scope, steps)
            if type(whole) is not dict:
                raise Missing(f"{type_of(whole)} has no fields")
            if only_asks:
                return key in whole
            try:
                return whole[key]
            except KeyError:
                raise Missing(f"there is no field {key[:80]}") from None

        return Node(run, operand.nodes + 1)

    def _note(self, operand: bytes, key: str, at: int, bound: frozenset[str]) -> None:
        name = _message(operand).get(4)
        if name is not None and "job" not in bound and _message(name[0])[1][0] == b"job":
            self.fields.append((key, at))

    def _call(self, fields: "Message", at: int, bound: frozenset[str]) -> Node:
        name = fields[2][0].decode()
        given = [*fields.get(1, ()), *fields.get(3, ())]
        args = [self._build(each, bound) for each in given]
        nodes = 1 + sum(arg.nodes for arg in args)
        if name == "_[_]" and (key := _text(given[1])) is not None:
            self._note(given[0], key, at, bound)
        if name == "_+_" and _is_gathered(given):
            return Node(_append(*(arg.run for arg in args)), nodes)
        if name == "matches":
            return Node(self._matches(args[0].run, given, at), nodes)
        if (lazy := LAZY.get(name)) is not None:
            return Node(lazy(*(arg.run for arg in args)), nodes)
        function = FUNCTIONS.get((name, len(args)))
        if function is None:
            raise Unknown(f"{name} is not known here", at)
        if len(args) == 1:
            (only,) = (arg.run for arg in args)
            return Node(lambda scope, steps: function(only(scope, steps), steps), nodes)
        left, right = (arg.run for arg in args)
        return Node(lambda scope, steps: function(left(scope, steps), right(scope, steps), steps), nodes)

    def _matches(self, of: Run, given: list[bytes], at: int) -> Run:
        pattern = _text(given[-1]) if len(given) == 2 else None
        if pattern is None:
            why = "matches is written as .matches('...'), with the pattern itself: one that a job has may take long"
            raise Unknown(why, at)
        try:
            steps_always, steps_each, matches = self._matcher(pattern)
        except Failed as error:
            raise Unknown(str(error), at) from error

        def run(scope: Scope, steps: Steps) -> bool:
            text = of(scope, steps)
            if type(text) is not str:
                raise no_such("matches", text)
            steps.spend(steps_always + int(len(text) * steps_each))
            return matches(text)

        return run

    def _list(self, fields: "Message", _: int, bound: frozenset[str]) -> Node:
        items = [self._build(each, bound) for each in fields.get(1, ())]
        runs = [item.run for item in items]
        return Node(lambda scope, steps: [run(scope, steps) for run in runs], 1 + sum(item.nodes for item in items))

    def _map(self, fields: "Message", at: int, bound: frozenset[str]) -> Node:
        entries = [_message(each) for each in fields.get(2, ())]
        if fields.get(1) or any(3 not in entry for entry in entries):
            raise Unknown("this is not known here", at)
        pairs = [(self._build(entry[3][0], bound), self._build(entry[4][0], bound)) for entry in entries]

        def run(scope: Scope, steps: Steps) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key_node, value_node in pairs:
                key = key_node.run(scope, steps)
                spend_key(key, steps)
                if type(key) not in (str, int, bool) or key in made:
                    raise Failed(f"a map cannot have this {type_of(key)} as one of its keys, or not twice")
                made[key] = value_node.run(scope, steps)
            return made

        return Node(run, 1 + sum(key.nodes + value.nodes for key, value in pairs))

    def _loop(self, fields: "Message", at: int, bound: frozenset[str]) -> Node:
        if 8 in fields:
            raise Unknown("a loop has one variable here", at)
        item, result = fields[1][0].decode(), fields[3][0].decode()
        over, start = self._build(fields[2][0], bound), self._build(fields[4][0], bound)
        inside = bound | {item, result}
        goes_on, step = self._build(fields[5][0], inside), self._build(fields[6][0], inside)
        end = self._build(fields[7][0], bound | {result})
        round_nodes = goes_on.nodes + step.nodes

        def run(scope: Scope, steps: Steps) -> Any:
            items, names = over.run(scope, steps), dict(scope)
            if type(items) not in (list, dict):
                raise no_such("a loop", items)
            names[result] = start.run(scope, steps)
            for value in items:
                steps.spend(round_nodes)
                names[item] = value
                if not goes_on.run(names, steps):
                    break
                try:
                    names[result] = step.run(names, steps)
                except TooLong:
                    raise
                except Failed as error:
                    names[result] = error
            return end.run({**scope, result: names[result]}, steps)

        return Node(run, 1 + over.nodes + start.nodes + end.nodes)


Message = dict[int, list[Any]]
_KINDS: Mapping[int, Callable[[Tree, Message, int, frozenset[str]], Node]] = {
    3: Tree._constant,
    4: Tree._name,
    5: Tree._select,
    6: Tree._call,
    7: Tree._list,
    8: Tree._map,
    9: Tree._loop,
}


def _message(data: bytes) -> Message:
    """Decode a Protocol Buffers message. Returns field number → values, each an int or bytes."""
    found: Message = {}
    at, end = 0, len(data)
    while at < end:
        key, at = _number(data, at)
        size = 8
        if key & 7 == 0:
            value, at = _number(data, at)
            found.setdefault(key >> 3, []).append(value)
            continue
        if key & 7 == 2:
            size, at = _number(data, at)
        found.setdefault(key >> 3, []).append(data[at : at + size])
        at += size
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def _position(entry: bytes) -> tuple[int, int]:
    fields = _message(entry)
    return fields.get(1, [0])[0], fields.get(2, [0])[0]


def _is_gathered(given: list[bytes]) -> bool:
    """Return whether the arguments `given` to `+` are the result list of a `map` or `filter` loop and a list of new
    items, so that the items can be appended in place."""
    name, items = _message(given[0]).get(4), _message(given[1]).get(7)
    return name is not None and _message(name[0])[1][0] == b"@result" and items is not None


def _append(of: Run, added: Run) -> Run:
    """Return a function that appends the items of `added` to a loop's result list (`of`) in place: a copy at each
    iteration would take quadratic time."""

    def run(scope: Scope, steps: Steps) -> Any:
        found = of(scope, steps)
        found += added(scope, steps)
        return found

    return run


def _text(node: bytes) -> str | None:
    """Return the text if the node is a text literal, else None."""
    constant = _message(node).get(3)
    raw = None if constant is None else _message(constant[0]).get(6)
    return None if raw is None else raw[0].decode()
