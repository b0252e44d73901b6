"""Turns submitted forms into API requests, and the API's errors into messages at the field and character.

Text that should be a number and is none is sent as typed: the API checks it, and says what is wrong.
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
    """Error message for one field of a form."""

    text: str
    line: str = ""
    """The line of the field's text that is wrong; empty: unknown."""
    caret: str = ""
    """Spaces and a `^`, shown below that line at the wrong character."""


TAKEN = Fault("there is one of this name: open it in the list, to change it")


def name_fault(what: str, name: str) -> Fault | None:
    """Check the name of a new schedule or constraint (`what`) without asking the API. Return what is wrong, or None."""
    if not name:
        return Fault(f"a {what} needs a name")
    return Fault(f"a name {why}") if (why := why_no_place(name)) else None


def number_of(text: str) -> Any:
    """Return the number that a text spells; other text unchanged."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def seconds_of(text: str) -> Any:
    """Return the seconds that `90`, `5m` or `1d` means; other text unchanged."""
    try:
        return number_of(text) if _NUMBER.fullmatch(text) else duration_s(text)
    except ValueError:
        return text


def typed(form: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the stripped text of the named fields. CR LF, which browsers send, becomes LF."""
    return {name: form.get(name, "").replace("\r\n", "\n").strip() for name in names}


UNREAD = "unread"
"""Name of a field that no setting has. It makes the API refuse a body, and report what else is wrong with it."""


class Wrong(NamedTuple):
    """A refused form: what is wrong with each field, and the HTTP status of the answer."""

    faults: dict[str, Fault]
    status: int


async def row_of(visit: Visit, what: str, name: str) -> dict[str, Any] | None:
    """Return the schedule or constraint (`what`) with this name; None: there is none."""
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
    """Create or change a schedule or constraint (`what`); with `is_trial` change nothing, and ask what the change would
    do. Returns the API's answer; `Wrong` if there is a fault in the form.

    `typed`: field of the form → its text. `body`: the request's body. `faults`: those found before the call. `fields`:
    JSON pointer in the body → field of the form."""
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
    """Return the body. If faults of the form are known already, add UNREAD to it: then the API refuses the body, makes
    no change, and reports further faults, which are shown together with the known ones."""
    return {**body, UNREAD: [*faults]} if faults else body


def faults_of(error: Invalid, fields: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, Fault]:
    """Return field of the form → fault, for the errors that the API reports. The key "" has errors that belong to no
    field.

    `fields`: JSON pointer in the API's body → field of the form. `typed`: field → its text.
    """
    found: dict[str, Fault] = {}
    for each in error.errors:
        if each.pointer == f"/{UNREAD}":
            continue
        # The pointer's parent: one of several values in a field.
        name = fields.get(each.pointer) or fields.get(each.pointer.rpartition("/")[0], "")
        before = f"{found[name].text}; " if name in found else ""
        line, caret = _marked(each.detail, typed.get(name, "")) if name else ("", "")
        found[name] = Fault(before + each.detail, line, caret)
    return found if error.errors else {"": Fault(str(error))}


def _marked(detail: str, text: str) -> tuple[str, str]:
    """Return the line of `text` that has the wrong character, and a line with a caret to show below it. Both are empty
    if the API's message `detail` names no character."""
    where = _WHERE.search(detail)
    if where is None or not text:
        return "", ""
    offset = min(max(0, int(where[1]) - 1), len(text))
    begin = text.rfind("\n", 0, offset) + 1
    line = text[begin:].partition("\n")[0].replace("\t", " ")
    column = offset - begin
    before = visible(line[max(0, column - BEFORE) : column])  # as the page shows it, for the caret's column
    return before + line[column : column + BEHIND], " " * len(before) + "^"
