"""Commands that list jobs, errors, jobtypes, workers and daemons, once or continuously."""

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from cyclopts import Parameter
from rich.text import Text

from jqd.cli.common import Common, Flag, age
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import print_line, print_note
from jqd.cli.render import COLOURS, console, plain, show, table, tenants_of, whose
from jqd.client import Client, JobInfo, Unreachable
from jqd.client.send import AGAIN
from jqd.domain.dates import ago, lasting
from jqd.domain.error_summary import error_line
from jqd.domain.job_spec import KEPT
from jqd.domain.visible import CONTROLS, operand, quoted

IN_PARTS = "there are so many jobtypes that one part of them comes after the other: newer jobs may come later"
LIST_JOBS = 50  # shown when no number is given: a screen or two
NAMES_SHOWN = 4  # jobtypes shown of one worker: a line
LIST_REASONS = 20  # reasons shown to people: each has five to eight lines
TEXTS = 3  # example texts shown of each reason
LIVING = {True: "yes", False: "no", None: "not known"}  # of a daemon; the last while the store is away
CLEAR = "\x1b[2K"  # the present line of a terminal
WATCH_S = 2.0  # between redraws: nobody could read faster
# What a list of jobs leaves out: shown as null it would be a lie.
LEFT_OUT = {*KEPT, "argument", "argument_bytes", "expires_at", "progress", "error", "result", "history", "log"}
LEFT_OUT -= {"priority", "max_retry"}


@Parameter(name="*")
@dataclass(frozen=True)
class Matching:
    """Options that select jobs."""

    name: str | None = None
    """Only jobs of this type."""
    tag: str | None = None
    """Only jobs with this tag."""
    code: Literal["retry", "ok", "failed", "error"] | None = None
    """Only jobs whose last attempt ended with this word."""
    exitcode: int | None = None
    """Only jobs whose last attempt ended with this number: 200, 404, 503."""
    error: str | None = None
    """Only jobs with this text in the message of the last attempt, in upper or lower case."""
    error_is: str | None = None
    """Only jobs with exactly this error: a line of `jqd errors`, copied whole."""
    error_like: str | None = None
    """Only jobs with this error, apart from numbers, ids and quoted values: a line of `jqd errors`, copied whole."""
    search: str | None = None
    """Only jobs with this text in jobtype, id, tags, argument or error, in any case; or with this whole number."""
    newer: str | None = None
    """Only jobs whose last attempt ended at most so long ago: 30s, 5m, 2h or 7d. Without an attempt the push counts."""
    older: str | None = None
    """Only jobs whose last attempt ended longer ago than this. Without an attempt the push counts."""

    def asked(self) -> dict[str, Any]:
        """Return the filter as keyword arguments of the client. Raises Usage."""
        fields = dict(vars(self))
        for flag, bound in (("newer", "since"), ("older", "before")):
            text = fields.pop(flag)
            fields[bound] = None if text is None else timedelta(seconds=age(text, f"--{flag}"))
        return fields

    def given(self) -> list[tuple[str, str]]:
        """Return (flag, value) for each filter that was given."""
        return [(f"--{name.replace('_', '-')}", str(value)) for name, value in vars(self).items() if value is not None]


def jobs(
    *,
    state: str | None = None,
    which: Matching = Matching(),
    limit: int = LIST_JOBS,
    watch: Flag = False,
    common: Common = Common(),
) -> int:
    """List jobs, newest first.

    Parameters
    ----------
    state
        Only jobs in this state: waiting, scheduled, blocked, running, retrying, succeeded, failed or cancelled.
    limit
        Most jobs to list.
    watch
        List again every two seconds; with -o jsonl print a line for each job that is new or has changed its state.
    """
    if limit < 1:
        raise Usage(f"--limit {limit}: list one job or more")
    if watch and common.output == "json":
        raise Usage("--watch has no end, and JSON has: take -o jsonl")
    asked = which.asked()
    with common.client() as client:
        if watch:
            return _watch_jobs(client, lambda: list(client.jobs(state=state, **asked, limit=limit)), common)
        if common.output == "jsonl":  # each as it comes: an error on a later page takes no line back
            for info in client.jobs(state=state, **asked, limit=limit):
                show(_brief(info), common.output)
            return Exit.DONE
        parts = list[bool]()
        text = client.jobs(state=state, **asked, limit=limit, looked=_note_examined, parted=lambda: parts.append(True))
        found = list(text)
    _over_line("")
    if parts and common.output == "table":
        print_note(IN_PARTS)
    note_if_none(found, "no job is of that kind, or the store does not know it yet", common)
    if common.output != "table":
        show([_brief(info) for info in found], common.output)
    elif found:
        console().print(_jobs(found), end="")
    return Exit.DONE


def errors(
    *, state: Literal["failed", "retrying"] = "failed", which: Matching = Matching(), common: Common = Common()
) -> int:
    """List why jobs failed: for each reason the jobtype, error, number of jobs, an example, and commands for its jobs.

    Parameters
    ----------
    state
        failed, or retrying: jobs that will be tried again.
    """
    with common.client() as client:
        rows, others = client.errors(state=state, **which.asked())
    note_if_none(rows, f"no job is {state}", common)
    if common.output != "table":
        show(rows, common.output)
        return Exit.DONE
    several = any(tenants_of(rows))
    for row in rows[:LIST_REASONS]:
        _reason(row, state, which, several=several)
    if more := others + sum(row["count"] for row in rows[LIST_REASONS:]):
        print_note(f"{more} more jobs, with rarer errors; --name, --error and --newer look closer")
    return Exit.DONE


def types(*, common: Common = Common()) -> int:
    """List the jobtypes that have jobs, with their jobs by state; ends with 0 even if some wait without a worker."""
    return rows_of(common, lambda client: client.types(), type_table, "there are no jobs")


def workers(*, common: Common = Common()) -> int:
    """List the registered workers and the jobtypes they run; then those that died or left within the last day."""
    none = "no worker is registered at this daemon; start one with `jqd worker`"
    return _and_gone(common, rows_of(common, lambda client: client.workers(), _workers, none), Client.gone_workers)


def daemons(*, common: Common = Common()) -> int:
    """List the daemons that share one store; then those that died or left within the last day."""
    done = rows_of(common, lambda client: client.daemons(), _daemons, "no daemon is known yet")
    return _and_gone(common, done, Client.gone_daemons)


def _and_gone(common: Common, done: int, ask: Callable[[Client], list[dict[str, Any]]]) -> int:
    """For people, also print the workers or daemons that died or left within the last day, which `ask` returns;
    programs request them separately. Returns `done`, the exit code of the list before."""
    if common.output == "table":
        with common.client() as client:
            rows = ask(client)
        if rows:
            console().print(Text("\nGone within the last day"))
            console().print(_gone(rows), end="")
    return done


def rows_of(
    common: Common, ask: Callable[[Client], list[dict[str, Any]]], draw: Callable[[Any], Text], none: str
) -> int:
    """Print the rows that `ask` returns: for people as a table made by `draw`, for programs as they are. `none`: note
    for an empty list. Returns the exit code."""
    with common.client() as client:
        rows = ask(client)
    note_if_none(rows, none, common)
    if common.output != "table":
        show(rows, common.output)
    elif rows:
        console().print(draw(rows), end="")
    return Exit.DONE


def deleted(common: Common, delete: Callable[[Client], None], **which: str) -> int:
    """Call `delete`, print what was deleted (`which`: field → name), and return the exit code."""
    with common.client() as client:
        delete(client)
    show({**which, "rm": "deleted"}, common.output)
    return Exit.DONE


def note_if_none(rows: Sequence[Any], none: str, common: Common) -> None:
    """Print the note `none` on stderr if a list for people has no rows: no output at all would look like a failed
    command."""
    if not rows and common.output == "table":
        print_note(none)


def _note_examined(far: int, of: int | None) -> None:
    _over_line(f"jqd: looked at {far} of {of or 'all'} jobs")


def _over_line(text: str) -> None:
    """Replace the current line on stderr, if that is a terminal; otherwise print nothing."""
    if sys.stderr.isatty():
        print(f"{CLEAR}{text}", end="\r", file=sys.stderr, flush=True)


def watch_screen(draw: Callable[[], Text]) -> int:
    """Show on the terminal what `draw` returns, again every WATCH_S, until Ctrl-C; then return the exit code DONE. A
    temporary error of `draw` is shown above its last result. But Unreachable at the first call is raised, as the URL
    may be wrong."""
    from rich.live import Live  # here: other commands need not wait for it

    screen, seen = console(), None

    def see() -> Text:
        nonlocal seen
        try:
            seen = draw()
        except AGAIN as error:
            if seen is None and isinstance(error, Unreachable):
                raise
            seen = seen or Text()
            text = f"NOT NOW: {error}; it is asked every {WATCH_S:g} s. Below is what was seen last.\n\n"
            return Text.assemble((text.translate(CONTROLS), "bold red"), seen)
        return seen

    try:
        with Live(see(), console=screen, auto_refresh=False, vertical_overflow="crop", screen=True) as live:
            while True:
                threading.Event().wait(WATCH_S)
                live.update(see(), refresh=True)
    except KeyboardInterrupt:
        return Exit.DONE


def _watch_jobs(client: Client, ask: Callable[[], list[JobInfo]], common: Common) -> int:
    if common.output == "table" and console().is_terminal:
        return watch_screen(lambda: _jobs(ask()))
    states: dict[str, str] = {}
    try:
        while True:
            found = ask()
            for info in reversed(found):
                if states.get(info.job_id) != info.state:
                    text = _jobs([info]).split("\n")[1].plain if common.output == "table" else _brief(info)
                    show(text, common.output)
            states = {info.job_id: info.state for info in found}
            sys.stdout.flush()
            threading.Event().wait(WATCH_S)
    except KeyboardInterrupt:
        return Exit.DONE


def _brief(info: JobInfo) -> dict[str, Any]:
    return {name: value for name, value in plain(info).items() if name not in LEFT_OUT}


def _jobs(found: Sequence[JobInfo]) -> Text:
    rows = []
    for info in found:
        when = info.finished_at or info.started_at or info.eligible_at or info.created_at
        at = when.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") if when else ""
        rows.append((info.job_id, info.state, at, ago(when), info.attempts, info.name, error_line(info.message or "")))
    styles = {n: COLOURS[info.state] for n, info in enumerate(found) if info.state in COLOURS}
    headings = ("ID", "STATE", "AT (UTC)", "", "ATTEMPTS", "NAME", "MESSAGE")
    return table(*whose(headings, rows, [info.tenant for info in found], 5), styles)


def _reason(row: dict[str, Any], state: str, which: Matching, *, several: bool) -> None:
    """Print one reason why jobs failed: an example, and commands to be copied, which change exactly the jobs with this
    reason. `row`: the reason, from the API. `which`: the filter of the list, which these commands repeat.

    `several`: whether jobs of several tenants are listed, so that each command has to name a tenant.
    """
    out, tenant = console(), row.get("tenant") or ""
    whose = {"--tenant": tenant} if several else {}
    asked = {**whose, **dict(which.given()), "--name": row["name"], **_such(row)}
    # With an equals sign, for a text may begin with a hyphen.
    words, by_id = (" ".join(f"{flag}={quoted(text)}" for flag, text in some.items()) for some in (asked, whose))
    of = f" of tenant {tenant}" if tenant else ""
    since, latest = (str(row[name] or "")[:19].replace("T", " ") for name in ("since", "latest"))
    out.print(table((f"{row['count']} × {row['name']}{of}: {row.get('pattern', row['error'])}",), [], None), end="")
    texts = [each["error"] for each in row.get("texts") or ()]
    shown = [f"text     {text.translate(CONTROLS)}" for text in texts[:TEXTS] if text != row.get("pattern")]
    of_late = f", {row['last_hour']} in the last hour" if "last_hour" in row else ""
    lines = [
        f"{since} to {latest} UTC{of_late}",
        *shown,
        " ".join(filter(None, ("example  jqd get", by_id, operand(row["job_id"])))),
    ]
    if state == "failed":
        lines += [f"retry    jqd retry --all {words}", f"delete   jqd delete --all {words} --dry-run"]
    else:
        lines += [f"cancel   jqd cancel --all --state retrying {words}"]
    for line in lines:
        print_line(f"  {line}")


def _such(row: dict[str, Any]) -> dict[str, str]:
    """Return flag → value by which a command selects exactly the jobs with the error in `row`."""
    is_exact = len(row.get("texts") or ()) <= 1 and "\0" not in row["error"]  # no argument of a command holds a NUL
    return {"--error-is": row["error"]} if is_exact else {"--error-like": row["pattern"]}


# Columns of tables; only -o json has cancelled jobs.
STATES = ("waiting", "scheduled", "blocked", "running", "retrying", "succeeded", "failed")


def type_table(rows: Sequence[dict[str, Any]]) -> Text:
    """Format a table of jobtypes. Those whose jobs wait without a worker are highlighted."""
    cells = [
        (
            row["name"],
            *(row.get(state) for state in STATES),
            "" if row.get("oldest_s") is None else lasting(row["oldest_s"]),
            f"{row.get('rate') or 0:.6g}",
            row.get("workers"),
            row.get("handler"),
            row.get("note") or ("paused" if row.get("paused_at") else None),
        )
        for row in rows
    ]
    styles = {n: "red" for n, row in enumerate(rows) if row.get("oldest_s") is not None and row.get("workers") == 0}
    headings = ("NAME", *(state.upper() for state in STATES), "OLDEST", "PER S", "WORKERS", "HANDLER", "NOTE")
    return table(*whose(headings, cells, tenants_of(rows), 1), styles)


def _workers(rows: Sequence[dict[str, Any]]) -> Text:
    cells = [
        (
            row["worker_id"],
            row["name"],
            row.get("state"),
            _names(row["jobs"]),
            f"up to {row['max_jobs']}" if row.get("in_flight") is None else f"{row['in_flight']}/{row['max_jobs']}",
            ago(row.get("last_seen_at")),
            row.get("url") or "pulls",
            row.get("why"),
        )
        for row in rows
    ]
    styles = {n: "red" for n, row in enumerate(rows) if row.get("state") not in (None, "ok")}
    headings = ("ID", "NAME", "STATE", "TAKES", "RUNNING", "LAST SEEN", "URL", "WHY")
    return table(*whose(headings, cells, tenants_of(rows), 1), styles)


def _gone(rows: Sequence[dict[str, Any]]) -> Text:
    cells = [
        (
            row.get("daemon") or row["worker_id"],
            row.get("name"),
            row["how"],
            ago(row["at"]),
            ago(row.get("last_seen_at")),
            row["jobs"],
            ",".join(row["by"]),
            row["times"],
        )
        for row in rows
    ]
    styles = {n: "red" for n, row in enumerate(rows) if row["how"] == "died"}
    return table(("ID", "NAME", "HOW", "NOTICED", "LAST SEEN", "JOBS BACK", "BY", "TIMES"), cells, styles)


def _names(jobs: str | Sequence[str]) -> str:
    """Return the jobtypes of a worker as text. Only the first are named, as there may be a thousand."""
    if isinstance(jobs, str):
        return jobs
    return ",".join(jobs[:NAMES_SHOWN]) + (f" and {len(jobs) - NAMES_SHOWN} more" if len(jobs) > NAMES_SHOWN else "")


def _daemons(rows: Sequence[dict[str, Any]]) -> Text:
    cells = [
        (
            row["daemon"],
            "this one" if row.get("this") else "",
            LIVING[row.get("living")],
            "yes" if row.get("through") else "no",
            f"{row.get('last_seen_s') or 0:.1f} s",
            row.get("in_flight"),
            f"drained since {row['drained_at']}" if row.get("drained_at") else "",
        )
        for row in rows
    ]
    styles = {n: "red" for n, row in enumerate(rows) if row.get("living") is False}
    return table(("DAEMON", "", "LIVING", "RECOVERED", "LAST SEEN", "IN FLIGHT", "NOTE"), cells, styles)
