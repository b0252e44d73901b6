"""Expressions in CEL on a job: whether it is meant, what it costs, by which value it is told from others.

    job.name == "mail" && job.argument.customer == "acme"

A job has name, argument, priority, tags and tenant.

The library is Google's own runtime (docs/adr/0048): it says what is wrong with an expression and where, knows which
type comes of it, and gives up after some thousand steps. What takes long within one step is refused: most of it in
loops only, and of patterns (`matches`) those that are not written out, or have too many places.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jqd.words.meant import suggestion

FIELDS = ("name", "argument", "priority", "tags", "tenant")  # of a job, as an expression sees it
EXPRESSION_LENGTH_MAX = 1_000  # characters: what is longer nobody reads
PLACES_MAX = 100  # of all patterns of an expression, as `places_of` counts: some 60 ms of 16 KiB at worst
# What an expression does with an argument but for patterns, in their places: at worst as many ms were measured.
LISTS_PLACES, LOOP_PLACES = 40, 3  # map and filter make their list anew for each of 1,000 items: 20 ms; exists 0.3
LIST_CHARS, LOOP_CHARS, CHARS = 25, 40, 250  # and of what stands there one place for so many: 57, 17 and 2 ms if full
CLASS_PLACES = 20  # a class of Unicode has hundreds of ranges: all of a pattern that has one count so much
SHOWN_CHARS = 80  # of an expression, where it is told why it has no value
CLASS_CHARS = 10  # of a class that is written out count as a place: with 200 members it takes as long as one of Unicode
ARGUMENT_BYTES_MAX = 16_384  # of an argument that is looked into: to decode it and to go through it once takes some ms

_LISTS = re.compile(r"\.\s*(?:map|filter)\s*\(")
_LOOP = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(")
# A map without that key, and what is no map at all.
_MISSING = ("NOT_FOUND: Key not found", "INVALID_ARGUMENT: Applying SELECT to non-message type")
_NO_KEY = re.compile(r'NOT_FOUND: Key not found in map : "(\w+)"')
_LOOP_WORD = re.compile(r"\b(?:all|exists|exists_one|map|filter)\b")
# The budget counts the values gone through, and not what is done with each: to join a job's list in a loop over it, or
# to build a regular expression, takes seconds to minutes.
_SLOW = re.compile(r"\bmatches\b|\bjob\b(?!\s*\.\s*(?:name|priority|tenant)\b)")
_MATCHES = re.compile(r"\bmatches\b")
_WRITTEN = re.compile(r"""\(\s*([rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))\s*\)""")
_COUNTED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MEMBERS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_NAMED_CLASS = re.compile(r"\\[pP]")
_BEHIND_JOB = re.compile(  # which field of the job, where it is not within a text or a comment
    r"""[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|//[^\n]*|\.\s*\w+"""
    r"""|\bjob\s*(?:\.\s*(\w+)\b(?!\s*\()|\[\s*(?:"(\w+)"|'(\w+)')\s*\])|\w+""",
    re.DOTALL,
)
_PLACE = re.compile(r"<input>:(\d+):(\d+): (.*)")
# Only jobs of one name are meant: the others need no look. Where there is an "or" that is not sure.
_NAME = re.compile(r"""\s*job\.name\s*==\s*("[^"\\\n]*"|'[^'\\\n]*')\s*(?:&&|$)""")


class NotUnderstood(ValueError):
    """What is wrong with an expression, and where: characters from its beginning."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.offset = offset


class Failed(Exception):
    """An expression has no value for this job, or one of another type than it is to have."""


class Missing(Failed):
    """It asks for a field that this job does not have."""


class Expression:
    """One that was understood."""

    def __init__(self, text: str, types: tuple[str, ...], *, bounded: bool = True) -> None:
        """`types`: what may come of it, as CEL names them. `bounded`: refuse large patterns, and what no job has.

        Raises NotUnderstood.
        """
        if len(text) > EXPRESSION_LENGTH_MAX:
            raise NotUnderstood(f"an expression may have {EXPRESSION_LENGTH_MAX} characters", EXPRESSION_LENGTH_MAX)
        if "//" in text and _LOOP_WORD.search(text):
            raise NotUnderstood("where it goes through a list it has no //, which may hide how often", text.index("//"))
        loops = list(_LOOP.finditer(text))
        if len(loops) > 1:
            raise NotUnderstood("it may go through one list: two of them take long", loops[1].start())
        if loops and (slow := _SLOW.search(text, loops[0].end())):
            why = f"behind the beginning of a loop {slow[0]!r} may not stand: for each value it takes long"
            raise NotUnderstood(why, slow.start())
        self.text = text
        self._types = types
        if bounded:
            _refuse_large_patterns(text)
            _refuse_unknown_fields(text)
        try:
            self._compiled = _environment().compile(text)
        except RuntimeError as error:
            raise _not_understood(text, str(error)) from error
        type_ = self._compiled.return_type().name()
        if type_ not in (*types, "DYN"):
            raise NotUnderstood(f"this is a value of the type {type_}; it must be {' or '.join(types)}", 0)
        self.reads_argument = "argument" in text or "[" in text
        """Whether its value may be another one for each job. `job["arg" + "ument"]` reads it, too."""

    def value(self, view: Any) -> Any:
        """What comes of it for a job (`view_of`). Raises Failed."""
        try:
            found = self._compiled.eval(view)
        except (RuntimeError, ValueError, TypeError) as error:
            raise Failed(str(error)[:200]) from error
        type_ = found.type().name()
        if type_ not in self._types:
            what = (
                f"{found.value()}" if type_ == "ERROR" else f"{self.shown} is {type_}, not {' or '.join(self._types)}"
            )
            raise (Missing if what.startswith(_MISSING) else Failed)(what[:200])
        return found.value()

    def explained(self, error: Failed) -> str:
        """Why it has no value, in words: which field of what there is not, where that is plain to see."""
        if not isinstance(error, Missing):
            return str(error)
        if (missing := _NO_KEY.match(str(error))) is None:
            return f"{self.shown} asks for what there is not: {error}"[:200]
        key = missing[1]
        whose = re.findall(rf"\b(job(?:\.\w+)*)\.{key}\b", self.text)
        only = len(re.findall(rf"\b{key}\b", self.text)) == 1  # else it may be another one that was asked for
        return f"{whose[0] if whose and only else f'what {self.shown} looks into'} has no field {key}"

    @property
    def shown(self) -> str:
        """Its text, or how it begins."""
        return self.text if len(self.text) <= SHOWN_CHARS else f"{self.text[: SHOWN_CHARS - 1]}…"


def _refuse_large_patterns(text: str) -> None:
    """Raises NotUnderstood. A pattern is looked for at each character of an argument, in each of its places."""
    places = 0
    for offset, its in _patterns(text):
        places += its
        if places > PLACES_MAX:
            why = (
                f"its patterns have {places} places, at most {PLACES_MAX} are taken, and [a-z]{{50}} has 50 of them;"
                " write * or + instead of large numbers, or say less"
            )
            raise NotUnderstood(why, offset)


def _refuse_unknown_fields(text: str) -> None:
    """Raises NotUnderstood: what asks for a field that no job has would be said, and never mean any."""
    for found in _BEHIND_JOB.finditer(text):
        name = found[1] or found[2] or found[3]
        if name and name not in FIELDS:
            why = f"a job has no field {name!r} here{suggestion(name, FIELDS).rstrip('?')}"
            raise NotUnderstood(why, found.start(found.lastindex or 0))


def places_in(text: str) -> int:
    """How many places the patterns of an expression have together; of one that is not taken any more as many as may.

    And what else it does with an argument of as many as take as long: each some 0.6 ms of 16 KiB.
    """
    try:
        places = sum(places for _, places in _patterns(text))
    except NotUnderstood:
        return PLACES_MAX
    if "argument" not in text and "[" not in text:
        return places
    if _LISTS.search(text):
        return places + LISTS_PLACES + len(text) // LIST_CHARS
    if _LOOP.search(text):
        return places + LOOP_PLACES + len(text) // LOOP_CHARS
    return places + len(text) // CHARS


def _patterns(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins, and its places. Raises NotUnderstood."""
    for word in _MATCHES.finditer(text):
        before, after = text[: word.start()][-1:], text[word.end() :]
        if before in ("'", '"') and after.startswith(before):
            continue  # somebody is called so
        written = _WRITTEN.match(after)
        if before != "." or written is None:
            why = "matches is written as .matches('...'), with the pattern itself: one that a job has may take long"
            raise NotUnderstood(why, word.start())
        yield word.start(), places_of(_text_of(written[1], word.end() + written.start(1)))


def _text_of(literal: str, offset: int) -> str:
    """What it says: braces may be hidden in escapes."""
    try:
        return str(_environment().compile(literal).eval(view_of({})).value())
    except RuntimeError as error:
        raise NotUnderstood(f"this is no text: {error}"[:200], offset) from error


def places_of(pattern: str) -> int:
    """About how many places a pattern has, with what is repeated so often as it says; rather more than fewer."""
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


def only_name(text: str) -> str | None:
    """The one jobtype that an expression can be true of, where that is plain to see."""
    found = _NAME.match(text)
    return found[1][1:-1] if found and "||" not in text and "?" not in text else None


def view_of(job: Mapping[str, Any]) -> Any:
    """A job as expressions see it. Raises Failed."""
    try:
        return _environment().Activation({"job": job})
    except (RuntimeError, ValueError, TypeError) as error:
        raise Failed(str(error)[:200]) from error


@cache
def _environment() -> Any:
    from cel_expr_python import cel  # some 10 ms and 14 MB, for who has constraints

    return cel.NewEnv(variables={"job": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})


def _not_understood(text: str, said: str) -> NotUnderstood:
    found = _PLACE.search(said)
    if found is None:
        return NotUnderstood(said.split("\n")[0][:200], 0)
    line, column = int(found[1]), int(found[2])
    offset = sum(len(row) + 1 for row in text.split("\n")[: line - 1]) + column - 1
    return NotUnderstood(found[3], min(offset, len(text)))
