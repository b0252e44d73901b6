"""Shows the state of a queue: once by `jqd status`, continuously by `jqd top`."""

from contextlib import suppress
from typing import Any, NamedTuple

from rich.text import Text

from jqd.cli.common import Common, Flag
from jqd.cli.exits import Exit, Usage
from jqd.cli.history import TOP_LINES, lines_of
from jqd.cli.printing import print_note
from jqd.cli.render import COLOURS, console, show, table
from jqd.cli.show import STATES, type_table, watch_screen
from jqd.client import Client, JobInfo
from jqd.client.errors import Forbidden, Unavailable
from jqd.domain.dates import ago, lasting
from jqd.domain.error_summary import error_line
from jqd.domain.visible import CONTROLS

TOP_TYPES = 15  # jobtypes shown: those that wait longest
TOP_JOBS = 10  # running and failed jobs shown: with the types they fill a screen
STUCK_SHOWN_MAX = 10  # waiting jobtypes shown, so that a tenant with a thousand of them does not hide the rest
UNAUTHORIZED = 401  # the request had no valid token
PARTS = ("push", "run")
RATES = ("pushed", "started", "ended", "failed")


class Glance(NamedTuple):
    """What `jqd status` and `jqd top` read from the daemon: readiness, counters, jobtypes, number of workers,
    pauses."""

    ready: dict[str, Any]
    stats: dict[str, Any]
    types: list[dict[str, Any]]
    workers: int
    paused: list[dict[str, Any]]


def status(*, verbose: Flag = False, common: Common = Common()) -> int:
    """Show the state of the queue, beginning with what is wrong; ends with 1 if the daemon takes no jobs.

    Parameters
    ----------
    verbose
        Also show all counters of the daemon and its store; -o json always has them.
    """
    with common.client() as client:
        ready = client.ready()
        try:
            seen = _glance(client, ready) if common.output == "table" else None
            numbers = {**ready, **(seen.stats if seen else _stats(client))}
        except Forbidden as error:
            if error.status != UNAUTHORIZED or common.has_token:
                raise
            print_note("this is what a daemon says without a token; --token shows more")
            seen, numbers = None, ready
        if seen is not None:
            console().print(_summary(client.url, seen), end="")
        if seen is None or verbose:
            show(numbers, common.output)
    return Exit.DONE if ready["ready"] else Exit.FAILED


def top(*, common: Common = Common()) -> int:
    """Watch the queue on a terminal: its state, its jobtypes, what runs and what failed last. Ctrl-C ends it."""
    if common.output != "table" or not console().is_terminal:
        raise Usage("top draws on a terminal; for programs there is: jqd status -o json")
    with common.client() as client:
        return watch_screen(lambda: _top(client))


def _glance(client: Client, ready: dict[str, Any]) -> Glance:
    """Read the state of the queue from the daemon. While the store is away, jobtypes and pauses are empty."""
    types: list[dict[str, Any]] = []
    paused: list[dict[str, Any]] = []
    with suppress(Unavailable):
        types, paused = client.types(), client.paused_tenants()
    return Glance(ready, _stats(client), types, len(client.workers()), paused)


def _stats(client: Client) -> dict[str, Any]:
    """Return the counters of daemon and store. A token of one tenant gets the sums of its jobtypes instead."""
    try:
        return client.stats()
    except Forbidden:  # stats are about all tenants together
        try:
            types = client.types()
        except Unavailable as error:
            return {"store": None, "store_error": str(error)}
    counts: dict[str, Any] = {state: sum(row[state] for row in types) for state in (*STATES, "cancelled")}
    for what in RATES:
        counts[f"{what}_a_minute"] = sum(row["per_minute"][what] for row in types)
    return {"store": {"counts": counts, "dead": counts["failed"]}}


def _summary(url: str, seen: Glance) -> Text:
    lines: list[tuple[str, str]] = []
    for part, verb in zip(PARTS, ("takes jobs", "runs jobs"), strict=True):
        half = seen.ready.get(part) or {}
        good = half.get("ready", False)
        lines.append((f"{url} {verb}", "green") if good else (f"{url} {verb} NOT: {half.get('reason')}", "bold red"))
    store = seen.stats.get("store")
    if store is None:
        lines.append((f"store     {seen.stats.get('store_error', 'does not answer')}", "bold red"))
    else:
        lines += [(line, "") for line in _numbers(store)]
        if store["dead"]:
            lines.append((f"dead      {store['dead']}: `jqd errors` says why, and what to do", "yellow"))
    oldest = [row for row in seen.types if row.get("oldest_s") is not None]
    if oldest:
        worst = max(oldest, key=lambda row: row["oldest_s"])
        lines.append((f"oldest    {_named(worst)} waits for {lasting(worst['oldest_s'])}", ""))
    if cut := seen.stats.get("runner", {}).get("interrupted"):
        lines.append((f"cut off   {cut} times since its start a stop interrupted a job here: `jqd why ID`", "yellow"))
    lines.append((f"workers   {seen.workers}", "" if seen.workers else "yellow"))
    for one in seen.paused:
        whose = f"tenant {one['tenant']!r}" if one["tenant"] else "whatever has no tenant"
        by = f" by {one['by']}" if one.get("by") else ""
        lines.append((f"paused    {whose}{by} since {one['paused_at']}", "yellow"))
    stuck = sorted((row for row in oldest if row.get("note")), key=lambda row: -row["oldest_s"])
    lines += [(f"waits     {_named(row)} ({_ready(row)}): {row['note']}", "red") for row in stuck[:STUCK_SHOWN_MAX]]
    if (more := len(stuck) - STUCK_SHOWN_MAX) > 0:
        lines.append((f"waits     and {more} more, for a shorter time: `jqd types` shows them", "red"))
    lines += [(f"warning   {warning}", "yellow") for warning in seen.ready.get("warnings") or ()]
    text = Text()
    for line, style in lines:
        text.append(line.translate(CONTROLS), style=style)
        text.append("\n")
    return text


def _named(row: dict[str, Any]) -> str:
    """Return the name of a jobtype, with its tenant if it has one. A name that begins or ends with a blank is
    quoted."""
    name = row["name"] if row["name"].strip() == row["name"] else repr(row["name"])
    return f"{name} of tenant {row['tenant']}" if row.get("tenant") else str(name)


def _ready(row: dict[str, Any]) -> int:
    return int(row["waiting"]) + int(row.get("retrying") or 0)


def _numbers(store: dict[str, Any]) -> list[str]:
    counts = store["counts"]
    text = ", ".join(f"{counts[state]} {state}" for state in (*STATES, "cancelled") if state in counts)
    lines = [f"jobs      {text}"]
    rates = {what: counts.get(f"{what}_a_minute") for what in RATES}
    if any(rates.values()):
        text = ", ".join(f"{_rough(rate)} {what}" for what, rate in rates.items() if rate is not None)
        lines.append(f"rates     {text}, jobs a minute")
    return lines


def _rough(rate: float) -> str:
    """Format a rate with two significant digits; from ten on as a whole number."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _top(client: Client) -> Text:
    seen = _glance(client, client.ready())
    text = _summary(client.url, seen)
    with suppress(Unavailable):
        lines = lines_of(client.history(), TOP_LINES)
        text.append_text(Text.assemble(("\nLAST HOUR, a minute a bar\n", "bold"), lines))
    if seen.types:
        text.append("\n")
        rows = seen.types
        if len(rows) > TOP_TYPES:
            rows = sorted(rows, key=lambda row: -(row.get("oldest_s") or 0))[:TOP_TYPES]
        text.append_text(type_table(rows))
        if more := len(seen.types) - len(rows):
            text.append(f"and {more} more, whose jobs wait for a shorter time: `jqd types`\n")
    if seen.stats.get("store") is not None:
        for state in ("running", "failed"):
            if found := list(client.jobs(state=state, limit=TOP_JOBS)):
                text.append("\n")
                text.append_text(_some(state, found))
    return text


def _some(state: str, found: list[JobInfo]) -> Text:
    rows = [
        (
            info.job_id,
            info.name,
            ago(info.finished_at or info.started_at),
            info.attempts,
            info.worker,
            error_line(info.message or ""),
        )
        for info in found
    ]
    styles = dict.fromkeys(range(len(rows)), COLOURS[state])
    return table((state.upper(), "NAME", "", "ATTEMPTS", "WORKER", "MESSAGE"), rows, styles)
