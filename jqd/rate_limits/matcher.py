"""CEL expressions on a job: whether a constraint matches it, what it costs, and the value of its key.

    job.name == "mail" && job.argument.customer == "acme"

A job has name, argument, priority, tags and tenant.

Google's library (docs/adr/0048) checks an expression: errors and their places, and the type of its value. `cel.py`
evaluates it and counts each step, because the library limits only the rounds of loops.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from jqd.domain.suggest import suggestion
from jqd.rate_limits.cel import Tree, Unknown
from jqd.rate_limits.operators import Failed, Steps, TooLong, type_of

FIELDS = ("name", "argument", "priority", "tags", "tenant")  # of a job, as an expression sees it
EXPRESSION_LENGTH_MAX = 1_000  # characters: nobody reads a longer one
STEPS_MAX = 20_000  # of an expression on a job, some 4 ms: 1,000 items of a list with a short condition take 10,000
EXPRESSIONS_CACHED = 32  # compiled, of up to 200 kB each: a constraint's three are compiled once while it is set
PLACES_MAX = 100  # of a pattern, as `places_of` counts
CLASS_PLACES = 20  # what each place counts in a pattern with a Unicode class, which has hundreds of ranges
PATTERN_STEPS, CLASS_STEPS = 10, 200  # for each place at each match, which builds the pattern; the latter with a class
MATCH_STEPS = 40  # of each match
PATTERN_CHARS = 5  # of a pattern take what a place takes: building it takes long without any place, too
CHAR_STEPS = 0.2  # for each place and character of the text: where the library follows all ways through the pattern
SHOWN_CHARS = 80  # of an expression, in the text why it has no value
CLASS_CHARS = 10  # so many characters of a written-out class count as a place: 200 members take as long as Unicode's
ARGUMENT_BYTES_MAX = 16_384  # of an argument that expressions may read: decoding it takes a millisecond

_COUNTED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MEMBERS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_NAMED_CLASS = re.compile(r"\\[pP]|\(\?[a-zA-Z]*i")  # Unicode classes, and flag i, which costs as much
_PLACE = re.compile(r"<input>:(\d+):(\d+): (.*)")
_ONE_EQUALS = re.compile(r"token recognition error at: '=")
# Finds the jobtypes that an expression can match, so that others need not be evaluated. See `only_names`.
_TEXT = r"""(?:"[^"\\\n]*"|'[^'\\\n]*')"""
_NAME = re.compile(rf"\s*job\.name\s*(?:==\s*({_TEXT})|in\s*\[\s*({_TEXT}(?:\s*,\s*{_TEXT})*)\s*\])\s*(?:&&|$)")


class NotUnderstood(ValueError):
    """An expression cannot be compiled. `offset`: where, in characters from its beginning."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.offset = offset


class Expression:
    """A CEL expression that is checked and compiled."""

    def __init__(self, text: str, types: tuple[str, ...]) -> None:
        """Check and compile an expression. `types`: CEL's names of the types that its value may have. Raises
        NotUnderstood."""
        if len(text) > EXPRESSION_LENGTH_MAX:
            raise NotUnderstood(f"an expression may have {EXPRESSION_LENGTH_MAX} characters", EXPRESSION_LENGTH_MAX)
        self.text = text
        self._types = types
        try:
            compiled = _environment().compile(text)
            self._tree = tree = Tree(compiled.serialize(), _matcher)
        except Unknown as unknown:
            raise NotUnderstood(str(unknown), unknown.offset) from unknown
        except RecursionError as error:
            raise NotUnderstood("it is nested too deeply", 0) from error
        except RuntimeError as error:
            raise _not_understood(text, str(error)) from error
        for name, offset in tree.fields:
            if name not in FIELDS:
                why = f"a job has no field {name!r} here{suggestion(name, FIELDS).rstrip('?')}"
                raise NotUnderstood(why, max(text.find(name, offset), offset))
        type_ = compiled.return_type().name()
        if type_ not in (*types, "DYN"):
            raise NotUnderstood(f"this is a value of the type {type_}; it must be {' or '.join(types)}", 0)
        self.reads_argument = "argument" in text or "[" in text
        """Whether the expression may read the argument. `[` counts, as `job["arg" + "ument"]` reads it, too."""

    def value(self, job: Mapping[str, Any], steps: Steps | None = None) -> Any:
        """Return the value of the expression for a job. `steps`: a budget shared with other expressions, of which this
        one takes at most STEPS_MAX; None: it has STEPS_MAX alone. Raises Failed."""
        steps = steps or Steps(STEPS_MAX)
        own = Steps(min(STEPS_MAX, steps.left))
        before = own.left
        try:
            found = self._tree.value(job, own)
        except TooLong as error:
            others = "" if before == STEPS_MAX else ", which is what others of these constraints left it"
            raise TooLong(f"it takes more than {before} steps{others}") from error
        finally:
            steps.left -= before - max(own.left, 0)
        type_ = type_of(found)
        if type_ not in self._types:
            raise Failed(f"{self.shown} is {type_}, not {' or '.join(self._types)}")
        return found

    @property
    def shown(self) -> str:
        """The text of the expression, shortened if it is long."""
        return shortened(self.text)


@lru_cache(maxsize=EXPRESSIONS_CACHED)
def compiled(text: str, types: tuple[str, ...]) -> Expression:
    """Return `Expression(text, types)`, which takes up to 8 ms unless it was asked for lately. Raises
    NotUnderstood."""
    return Expression(text, types)


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def _matcher(pattern: str) -> tuple[int, float, Callable[[str], bool]]:
    """Return the steps that each match costs, the steps for each character of the text, and a function that matches a
    text.

    Raises Failed if `pattern` is no valid pattern, or too large.
    """
    places = places_of(pattern)
    if places > PLACES_MAX:
        raise Failed(
            f"its pattern has {places} places, at most {PLACES_MAX} are taken, and [a-z]{{50}} has 50 of them;"
            " write * or + instead of large numbers, or say less"
        )

    def matches(text: str) -> bool:
        found = _patterns().eval(_pattern_environment().Activation({"text": text, "pattern": pattern}))
        if found.type().name() != "BOOL":
            raise Failed(f"this is no pattern: {found.value()}"[:200])
        return bool(found.value())

    matches("")
    each = CLASS_STEPS if _NAMED_CLASS.search(pattern) else PATTERN_STEPS
    weight = places + len(pattern) // PATTERN_CHARS + 1
    return MATCH_STEPS + weight * each, weight * CHAR_STEPS, matches


def places_of(pattern: str) -> int:
    """Return an upper estimate of the size of a pattern: its characters and classes, counted as often as they are
    repeated."""
    each = CLASS_PLACES if _NAMED_CLASS.search(pattern) else 1
    open_, last, at = [0], 0, 0
    while at < len(pattern):
        sign, size = pattern[at], 1
        if sign == "(":
            open_.append(0)
        elif sign == ")" and len(open_) > 1:
            last = open_.pop()
            open_[-1] += last
        elif sign == "{" and (counted := _COUNTED.match(pattern, at)):
            times = max(int(counted[1]), int(counted[2] or 0), 1)
            open_[-1] += last * (times - 1)
            last, size = last * times, len(counted[0])
        elif sign not in "*+?|":
            members = _MEMBERS.match(pattern, at) if sign == "[" else None
            size = len(members[0]) if members else 2 if sign == "\\" else 1
            last = max(each, size // CLASS_CHARS) if members else each
            open_[-1] += last
        at += size
    return sum(open_)


def only_names(text: str) -> Sequence[str] | None:
    """Return the only jobtypes for which an expression can be true; None if that is unknown, for example if it has an
    "or"."""
    found = _NAME.match(text)
    if not found or "||" in text or "?" in text:
        return None
    return [each[1:-1] for each in re.findall(_TEXT, found[1] or found[2])]


@cache
def _environment() -> Any:
    from cel_expr_python import cel  # here, as it takes some 10 ms and 14 MB

    return cel.NewEnv(variables={"job": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})


@cache
def _pattern_environment() -> Any:
    from cel_expr_python import cel

    return cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING})


@cache
def _patterns() -> Any:
    return _pattern_environment().compile("text.matches(pattern)")


def _not_understood(text: str, expected: str) -> NotUnderstood:
    found = _PLACE.search(expected)
    if found is None:
        return NotUnderstood(expected.split("\n")[0][:200], 0)
    line, column = int(found[1]), int(found[2])
    offset = sum(len(row) + 1 for row in text.split("\n")[: line - 1]) + column - 1
    hint = "; did you mean ==?" if _ONE_EQUALS.search(found[3]) else ""
    return NotUnderstood(found[3] + hint, min(offset, len(text)))
