"""Renders a notice as subject and text of a mail, and as body of the web hook. The same notice gives the same bytes.

Text from workers is reduced to one printable line, so that it cannot end a header or forge a line. Arguments of jobs
are never included. A plain notice (`Notice.is_plain`) has no text from workers or pushers.
"""

import shlex
from collections.abc import Iterator
from urllib.parse import urlencode

import msgspec

from jqd.domain.dates import iso
from jqd.domain.error_pattern import FOLDED
from jqd.domain.tenant import annotate
from jqd.notify.board import OTHERS, Notice, Row, name_of

SHOWN_MAX = 50  # groups shown of one notice: a screen or two; others are counted
SUBJECT_LENGTH_MAX = 120  # characters about the failure: mail programs show fewer
TROUBLE_LENGTH_MAX = 300  # characters of a server's answer

# Subject and text of the mail of `jqd mail test`.
TEST = ("[jqd] This is a test", "jqd can send mail to you: it will tell of jobs that fail for good.\n")


def one_line(text: str, most: int) -> str:
    """Return text as one line of at most `most` characters, without control characters and marks that reverse text
    direction."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def subject(notice: Notice) -> str:
    """Return the subject of a mail: the most important group, and how many others there are."""
    if notice.is_plain:
        return f"[jqd] New failures: {sum(row.new for row in notice.rows)}"
    first, others = notice.rows[0], len(notice.rows) - 1
    more = f" and {others} more" if others else ""
    if first.is_over and first.is_known:
        return f"[jqd] Over: {one_line(_what(first), SUBJECT_LENGTH_MAX)}{more}"
    count = first.new if first.is_known else first.count
    return f"[jqd] Failed: {count} × {one_line(_what(first), SUBJECT_LENGTH_MAX)}{more}"


def text(notice: Notice, link: str) -> str:
    """Return the plain text of the mail for a notice. `link`: URL of a page about failures; empty: none."""
    return "\n".join(_lines(notice, link)) + "\n"


def body(notice: Notice, link: str) -> bytes:
    """Return the JSON body for the web hook. `link`: URL of a page about failures; empty: none."""
    rows = _rows(notice)
    fields = {
        "type": "jobs.failed",
        "timestamp": iso(notice.at_ms),
        "data": {
            "summary": subject(notice),
            "groups": [_group(row, link) for row in rows[:SHOWN_MAX]],
            "more_groups": len(rows[SHOWN_MAX:]),
            "more_failures": sum(row.new for row in rows[SHOWN_MAX:]),
            "held_back_since": iso(notice.held_since_ms) if notice.held_since_ms else None,
            "last_until": iso(notice.is_last_until_ms) if notice.is_last_until_ms else None,
        },
    }
    return msgspec.json.encode(fields)


def _lines(notice: Notice, link: str) -> Iterator[str]:
    if notice.held_since_ms:
        new = sum(row.new for row in notice.rows)
        yield f"Held back since {iso(notice.held_since_ms)}: {len(notice.rows)} groups with {new} new failures, for"
        yield "as many notices had been sent within an hour as may be (notify.hourly_max).\n"
    if notice.is_plain:
        yield "The notice before was refused, perhaps for what it quoted, so this one quotes nothing.\n"
    rows, lines_of = _rows(notice), _plain_lines_of if notice.is_plain else _lines_of
    for row in rows[:SHOWN_MAX]:
        yield from lines_of(row, link)
    if rest := rows[SHOWN_MAX:]:
        new = sum(row.new for row in rest)
        yield f"And {len(rest)} more groups, with {new} new failures: `jqd errors` shows all.\n"
    if notice.is_last_until_ms:
        yield f"This is the last notice that may be sent before {iso(notice.is_last_until_ms)}: what fails until then"
        yield "is held back and told together (notify.hourly_max)."


def _lines_of(row: Row, link: str) -> Iterator[str]:
    yield one_line(_what(row), 500)
    if row.example:
        yield f"  as:     {one_line(row.example, 500)}"
    new = f", {row.new} of them since the last notice" if row.is_known else ""
    yield f"  {row.count} failed{new}: the first {iso(row.since_ms)}, the last {iso(row.latest_ms)}"
    if row.is_over:
        yield "  It is over: nothing failed so since then."
    if row.line != OTHERS:
        yield f"  look:   {shlex.join([*_jqd(row), 'get', row.job_id])}"
    if command := _retry(row):
        yield f"  retry:  {command}"
    if url := _link(row, link):
        yield f"  {url}"
    yield ""


def _rows(notice: Notice) -> list[Row]:
    """Return the rows of a notice: one for each group of failures. For a plain notice, return one row for each tenant,
    with the sums of its groups."""
    if not notice.is_plain:
        return notice.rows
    each: dict[str, list[Row]] = {}
    for row in notice.rows:
        each.setdefault(name_of(row)[0], []).append(row)
    return [
        Row(
            annotate(tenant, OTHERS),
            OTHERS,
            min(row.since_ms for row in own),
            max(row.latest_ms for row in own),
            sum(row.count for row in own),
            sum(row.new for row in own),
            "",
            is_over=all(row.is_over for row in own),
        )
        for tenant, own in each.items()
    ]


def _plain_lines_of(row: Row, link: str) -> Iterator[str]:
    tenant, _ = name_of(row)
    yield f"Tenant {tenant}" if tenant else "Jobs of no tenant"
    yield f"  {row.count} failed, {row.new} of them since the last notice; the last {iso(row.latest_ms)}"
    yield f"  look:   {shlex.join([*_jqd(row), 'errors'])}"
    if url := _link(row, link):
        yield f"  {url}"
    yield ""


def _what(row: Row) -> str:
    tenant, name = name_of(row)
    of = f" of tenant {tenant}" if tenant else ""
    if row.line:
        return f"{name or 'unknown jobtype'}{of}: {row.line}"
    return f"{name}{of}: with other errors" if name else f"other jobtypes{of or ' of all tenants'}"


def _jqd(row: Row) -> list[str]:
    tenant, _ = name_of(row)
    return ["jqd", *(["--tenant", tenant] if tenant else [])]


def _retry(row: Row) -> str:
    """Return the shell command that retries exactly the jobs in one row (group of failures) of a notice. Empty: the row
    collects several error lines or jobtypes, or has a name that cannot be typed."""
    _, name = name_of(row)
    if not name or row.line == OTHERS or not (name + row.line).isprintable():
        return ""
    return shlex.join([*_jqd(row), "retry", "--all", f"--name={name}", f"--{_like(row).replace('_', '-')}={row.line}"])


def _like(row: Row) -> str:
    """Return the field of the jobs filter that finds the jobs in one row (group of failures): `error_is` compares the
    whole error line, `error_like` its pattern."""
    return "error_like" if FOLDED in row.line else "error_is"


def _link(row: Row, link: str) -> str:
    tenant, name = name_of(row)
    asked = {"tenant": tenant, "name": name, _like(row): row.line}
    query = urlencode({key: value for key, value in asked.items() if value or key == "tenant"}, errors="replace")
    return f"{link}{'&' if '?' in link else '?'}{query}" if link and query else link


def _group(row: Row, link: str) -> dict[str, object]:
    tenant, name = name_of(row)
    return {
        "tenant": tenant,
        "name": one_line(name, 200),
        "error": one_line(row.line, 500),
        "example": one_line(row.example, 500),
        "state": "over" if row.is_over else "failing",
        "failures": row.count,
        "new_failures": row.new,
        "first": iso(row.since_ms),
        "last": iso(row.latest_ms),
        "job_id": row.job_id,
        "retry": _retry(row),
        "link": _link(row, link),
    }
