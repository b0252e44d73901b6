"""Lines that a program gets and answers, by node-miniq's rules. Pure.

A job's line is its argument. The whole number that a line of the answer begins with is the job's status, and what
follows it the text. `J: type|payload`, or `#J: …` among comments, asks for a new job: the payload is the rest of the
line as it stands, as a text; what is no UTF-8, as bytes.
"""

import re
from typing import Any

from jqd.domain import json_ext

STATUS_MAX = 999  # what is above is no status of anybody's, and told as this
QUOTE_BYTES = 100  # of a line that cannot be read, when it is repeated in the job's message

# As parseInt reads it, which node-miniq asks: "200 ok", " 200", "+200"; not "ok 200", which would make a success of
# "failed at line 200". No number below zero counts.
_STATUS = re.compile(rb"\s*\+?0*([0-9]+)\s*")
# Of a line that need not begin with one: "500 why", and no "1 row changed" or "404.html written".
_CLEAR_STATUS = re.compile(rb"\s*([1-5][0-9][0-9])(?!\S)")
PREFIXES = (b"J: ", b"#J: ")


def line_of(argument: bytes) -> bytes:
    """Return the line of a job: a text of one line as it stands, anything else as JSON."""
    text = json_ext.json_of(argument)
    value = json_ext.decode(text) if text.startswith(b'"') else "\n"
    return (value.encode() if not {"\n", "\r"} & set(value) else text) + b"\n"


def status_of(line: bytes, *, clear: bool = False) -> tuple[int, str] | None:
    """Return the status that a line of an answer begins with, and its text. None: nobody knows whose the next are.
    `clear`: any other number is text."""
    if (number := (_CLEAR_STATUS if clear else _STATUS).match(line)) is None:
        return None
    return min(int(number[1][:4]), STATUS_MAX), line[number.end() :].decode("utf-8", "replace").strip()


def why_unread(line: bytes, who: str) -> str:
    """Return what is wrong with a line without a status. `who`: named as its writer."""
    return (
        f"INVALID_RESPONSE: {who} the line {line[:QUOTE_BYTES].decode('utf-8', 'replace')!r}, which begins with no "
        "status, so nobody knows whose the next lines are; let each line begin with a number, as '200 ok'"
    )


def is_job(line: bytes) -> bool:
    return line.startswith(PREFIXES)


def job_of(line: bytes) -> dict[str, Any]:
    """Return the job that such a line asks for, as `jobs` of an outcome has it; without a | it has no argument."""
    name, bar, payload = line.partition(b": ")[2].rstrip(b"\r\n").partition(b"|")
    return {"name": name.decode("utf-8", "replace").strip()} | ({"argument": _value(payload)} if bar else {})


def _value(payload: bytes) -> str | bytes:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload
