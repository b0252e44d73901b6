"""Lines of text by which a program reads jobs and answers them, by node-miniq's rules.

Each job is one line with its argument. A line of the answer begins with the job's status, a whole number; a text may
follow. A line `J: type|payload`, or `#J: …` within comments, asks for a new job with the payload as its argument: a
text, or bytes if it is no UTF-8.
"""

import re
from typing import Any

import msgspec

from jqd.domain import json_ext
from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX

STATUS_MAX = 999  # a larger status counts as this one
QUOTE_BYTES = 100  # of an unreadable line, shown in the job's message

# A status as node-miniq's parseInt reads it: "200 ok", " 200", "+200". Not "ok 200", as then "failed at line 200" would
# be a success; and nothing below zero.
_STATUS = re.compile(rb"\s*\+?0*([0-9]+)\s*")
# A status of a line that need not begin with one: "500 why", but not "1 row changed" or "404.html written".
_CLEAR_STATUS = re.compile(rb"\s*([1-5][0-9][0-9])(?!\S)")
PREFIXES = (b"J: ", b"#J: ")

_encoder = msgspec.msgpack.Encoder()


def line_of(argument: bytes) -> bytes:
    """Return a job's argument as one line: a text without line breaks as it is, any other value as JSON."""
    text = json_ext.json_of(argument)
    value = json_ext.decode(text) if text.startswith(b'"') else "\n"
    return (value.encode() if not {"\n", "\r"} & set(value) else text) + b"\n"


def status_of(line: bytes, *, clear: bool = False) -> tuple[int, str] | None:
    """Return the status with which a line of an answer begins, and the text after it; None if there is no status.

    `clear`: accept only three digits from 100 to 599, with a blank or nothing behind them, for programs whose lines
    need not begin with a status.
    """
    if (number := (_CLEAR_STATUS if clear else _STATUS).match(line)) is None:
        return None
    return min(int(number[1][:4]), STATUS_MAX), line[number.end() :].decode("utf-8", "replace").strip()


def why_unread(line: bytes, who: str) -> str:
    """Return the error message about a line without a status. `who`: the beginning of the message, which says who wrote
    the line."""
    return (
        f"INVALID_RESPONSE: {who} the line {line[:QUOTE_BYTES].decode('utf-8', 'replace')!r}, which begins with no "
        "status, so nobody knows whose the next lines are; let each line begin with a number, as '200 ok'"
    )


def is_job(line: bytes) -> bool:
    return line.startswith(PREFIXES)


class Followers:
    """Collects the new jobs that lines ask for. It stops shortly above the number of followers that one job may have; a
    success with more than that number is refused later."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        """The jobs, in the form of `jobs` of an outcome."""
        self._bytes = 0

    def add(self, line: bytes) -> None:
        if len(self.jobs) <= FOLLOWERS_MAX and self._bytes <= FOLLOWERS_BYTES_MAX:
            self.jobs.append(job_of(line))
            self._bytes += len(_encoder.encode(self.jobs[-1]))  # as the success is measured: names lose blanks


def job_of(line: bytes) -> dict[str, Any]:
    """Return the job that a line asks for, in the form of `jobs` of an outcome. A line without a `|` gives no
    argument."""
    name, bar, payload = line.partition(b": ")[2].rstrip(b"\r\n").partition(b"|")
    return {"name": name.decode("utf-8", "replace").strip()} | ({"argument": _value(payload)} if bar else {})


def _value(payload: bytes) -> str | bytes:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload
