"""What people type into forms, as the API takes it; and what it says against it, at the field and at the character.

What is no number is sent as it was typed: the API knows best what it wants, and says so.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jqd.client import Conflict, Invalid, NotFound, TooLarge
from jqd.client.path import path_of
from jqd.domain.job import why_no_place
from jqd.domain.units import duration_s
from jqd.webui.values import visible
from jqd.webui.visit import Visit

BEFORE, BEHIND = 60, 30  # characters of a line that are shown around a fault: a phone has room for some
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?")
_WHERE = re.compile(r"\bcharacter ([0-9]{1,6})\b")


class Fault(NamedTuple):
    """What is wrong with a field."""

    text: str
    line: str = ""
    """The line in which it is wrong, where that is known."""
    caret: str = ""
    """A mark to stand below that line."""


TAKEN = Fault("there is one of this name: open it in the list, to change it")


def name_fault(what: str, name: str) -> Fault | None:
    """Return what is wrong with the name of a new schedule or constraint before the API is asked."""
    if not name:
        return Fault(f"a {what} needs a name")
    return Fault(f"a name {why}") if (why := why_no_place(name)) else None


def number_of(text: str) -> Any:
    """Return a number; other text as it is."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def seconds_of(text: str) -> Any:
    """Return seconds of `90`, `5m` or `1d`; other text as it is."""
    try:
        return number_of(text) if _NUMBER.fullmatch(text) else duration_s(text)
    except ValueError:
        return text


def typed(form: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return what was typed into these fields, with the newlines of programs."""
    return {name: form.get(name, "").replace("\r\n", "\n").strip() for name in names}


UNREAD = "unread"
"""No setting has such a field. The API sets none that has it, and says what else is wrong with it."""


class Wrong(NamedTuple):
    """What is wrong with a form as a whole."""

    faults: dict[str, Fault]
    status: int


async def row_of(visit: Visit, what: str, name: str) -> dict[str, Any] | None:
    """Return a schedule or constraint by its name; None: there is none."""
    try:
        return None if name_fault(what, name) else await visit.api.get(path_of(f"{what}s", name))
    except NotFound:
        return None


async def set_named(
    visit: Visit,
    what: str,
    typed: dict[str, str],
    body: dict[str, Any],
    faults: dict[str, Fault],
    fields: Mapping[str, str],
    *,
    is_trial: bool = False,
) -> dict[str, Any] | Wrong:
    """Set the schedule or constraint that was typed, or try what it would do. Returns what the API answers; or what is
    wrong, at its field: nothing typed is lost. `faults`, `fields`: as of `with_unread` and `faults_of`."""
    name = typed["name"]
    if wrong := name_fault(what, name):
        faults["name"] = wrong
    elif not is_trial and not visit.form.get("known") and await row_of(visit, what, name) is not None:
        faults["name"] = TAKEN
    trial = {"dry_run": True} if is_trial else {"revision": typed["revision"] or None}
    try:
        return await visit.api.put(path_of(f"{what}s", "…" if wrong else name), with_unread(body, faults), **trial)
    except Invalid as error:
        faults = faults_of(error, fields, typed) | faults
        return Wrong(faults, 409 if faults.get("name") is TAKEN else error.status)
    except (Conflict, TooLarge) as error:
        return Wrong({"": Fault(str(error))}, error.status)


def with_unread(body: dict[str, Any], faults: Mapping[str, Fault]) -> dict[str, Any]:
    """Return the body so that the API refuses it where the form has faults already: with those of the API, so that all
    are shown at once."""
    return {**body, UNREAD: [*faults]} if faults else body


def faults_of(error: Invalid, fields: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, Fault]:
    """Return the faults by field of the form; "": those of no field.

    `fields`: a JSON pointer of the API → the name of the form's field. `typed`: what was typed.
    """
    found: dict[str, Fault] = {}
    for each in error.errors:
        if each.pointer == f"/{UNREAD}":
            continue
        name = fields.get(each.pointer) or fields.get(each.pointer.rpartition("/")[0], "")  # one of several in a field
        before = f"{found[name].text}; " if name in found else ""
        line, caret = _marked(each.detail, typed.get(name, "")) if name else ("", "")
        found[name] = Fault(before + each.detail, line, caret)
    return found if error.errors else {"": Fault(str(error))}


def _marked(detail: str, text: str) -> tuple[str, str]:
    """Return the line that a fault is in, and a caret for below it; nothing where it names no character."""
    where = _WHERE.search(detail)
    if where is None or not text:
        return "", ""
    offset = min(max(0, int(where[1]) - 1), len(text))
    begin = text.rfind("\n", 0, offset) + 1
    line = text[begin:].partition("\n")[0].replace("\t", " ")
    column = offset - begin
    before = visible(line[max(0, column - BEFORE) : column])  # as wide as the page shows it
    return before + line[column : column + BEHIND], " " * len(before) + "^"
