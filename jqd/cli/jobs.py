"""Commands about one job: push, get, why."""

import difflib
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from jqd.cli.argument import Pushed, arguments, push_file
from jqd.cli.argument import argument as read_argument
from jqd.cli.common import Common, Flag, Options, checked_id, duration
from jqd.cli.exits import Exit, Usage
from jqd.cli.flows import Links
from jqd.cli.printing import counted, print_line, print_note
from jqd.cli.render import Output, plain, show, show_as
from jqd.cli.rows import Table, rows
from jqd.client import Client, Conflict, JobInfo, NotFound, TimedOut
from jqd.client.job_info import job_map
from jqd.domain.errors import JqdError


def why(job_id: str, /, *, common: Common = Common()) -> int:
    """Say in one sentence why a job does not run: its date, a pause, no worker, jobs before it …, and until when.

    Parameters
    ----------
    job_id
        The job's id.
    """
    with common.client() as client:
        answer = client.why(job_id)
    show_as(f"{job_id}: {answer['text']}", answer, common.output)
    return Exit.DONE


WAIT_S = 3_600.0  # default of `push --within`
SILENT_S = 5.0  # after so long print what the job waits for, or the command would seem to hang


def push(
    name: str,
    argument: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *more: Annotated[str, Parameter(show=False)],
    lines: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    table: Table = Table(),
    given: Options = Options(),
    links: Links = Links(),
    run_at: str | None = None,
    in_: Annotated[str | None, Parameter(name=("--in", "--delay"), allow_leading_hyphen=True)] = None,
    id_: Annotated[str | None, Parameter(name="--id")] = None,
    replace: Annotated[bool | None, Parameter(negative="")] = None,
    callback: str | None = None,
    require_result: Flag = False,
    wait: Flag = False,
    result: Flag = False,
    within: str | None = None,
    common: Common = Common(),
) -> int:
    """Push one job, or one for each line of a file, or each row of a CSV file.

    Parameters
    ----------
    name
        The jobtype.
    argument
        JSON if it is valid JSON (12345 and true, too), else a string, as always with --text; - reads it from stdin,
        @FILE from a file (without the last newline).
    lines
        Push a job for each line of this file (- for stdin) that is not blank; the line is the job's argument.
    run_at
        Start the job not before this date: ISO 8601 with a zone, or Unix seconds.
    in_
        Wait this long before the job starts: 90, 30s, 5m, 2h, 1d.
    id_
        Your own id for the job.
    replace
        Replace a job with the same id.
    callback
        URL to which the outcome of the job is posted, as a signed web hook.
    require_result
        Keep the result, and fail the job if it is too large; without this option a too large result is dropped.
    wait
        Wait until the job has ended, print it, and end with 1 if it failed.
    result
        As --wait, but print only what the job returned: a text as it is, anything else as JSON.
    within
        How long --wait or --result waits: 90, 30s, 5m; default an hour. Then the command ends with 5; the job stays.
    """
    _expect_words([argument, *more], lines, id_, result)
    within_s = _within(within, waits=wait or result)
    _expect_table(table, argument, lines, id_, wait or result)
    options: dict[str, Any] = {
        **given.given(),
        **links.given(),
        "run_at": _run_at(run_at),
        "delay": None if in_ is None else duration(in_, "--in"),
        "job_id": id_,
        "replace": replace,
        "callback": callback,
    }
    if require_result:
        options["keep_result"] = "required"
    elif result or wait:
        options["keep_result"] = True
    options = {key: value for key, value in options.items() if value is not None}
    with common.client() as client:
        if table.csv is not None:
            pushed = push_file(client, name, table.csv, rows(table.csv, table), options, keep_ids=False)
            return _rows_pushed(client, name, pushed, table, common.output)
        if lines is not None:
            pushed = push_file(client, name, lines, arguments(lines, as_text=given.text), options)
            return _lines_pushed(client, name, pushed, within_s if wait else None, common.output)
        job_id = _push(client, name, read_argument(argument, as_text=given.text), options)
        with _known([job_id]):
            if wait or result:
                info = _waited(client, job_id, within_s)
                return _show_result(client, info, common.output) if result else _show_end(info, common.output)
            show_as(job_id, {"job_id": job_id}, common.output)
            return Exit.DONE


def get(
    job_id: str,
    /,
    *,
    wait: str = "0",
    whole: Flag = False,
    result: Flag = False,
    common: Common = Common(),
) -> int:
    """Show a job: its argument, its state, and how each attempt ended.

    Parameters
    ----------
    job_id
        The job's id.
    wait
        Wait up to this time for its end: 90, 30s, 5m; end with 5 if it has not ended by then.
    whole
        Show its argument even if it is larger than 64 KiB.
    result
        Print only what the job returned, for scripts; ends with 1 if it failed, or its result was not kept.
    """
    wait_s = duration(wait, "--wait")
    with common.client() as client:
        info = client.get(checked_id(job_id), wait=wait_s or None, whole=whole)
        if result:
            return _show_result(client, info, common.output)
    if common.output == "table" and info.argument is None and (info.argument_bytes or 0) > 1:
        print_note(f"its argument has {info.argument_bytes} bytes and is not shown; --whole does")
    show(_without_repeats(info) if common.output == "table" else info, common.output)
    return Exit.TIMED_OUT if wait_s and not info.ended else Exit.DONE


def _push(client: Client, name: str, argument: Any, options: dict[str, Any]) -> str:
    try:
        pushed = client.push_one(job_map(name, argument, **options))
    except Conflict as error:
        raise Conflict(f"{error}: --replace does that", status=error.status) from error
    if pushed.duplicate:
        print_note("this job was pushed before; that push counts, and this one changed nothing")
    _warn_if_unserved(client, name)
    return pushed.job_id


def _warn_if_unserved(client: Client, name: str) -> None:
    """Print a warning if no worker runs this jobtype: its name may be mistyped, or its handler is code, which needs
    `jqd worker --code`. Prints nothing if the daemon answers with an error."""
    with suppress(JqdError):
        taken = [row["jobs"] for row in client.workers()]
        names = sorted({one for jobs in taken if jobs != "*" for one in jobs})
        if "*" not in taken and name not in names:
            with suppress(NotFound):
                lang = client.handler(name)["lang"]
                print_note(f"its handler is {lang} code; the job waits for `jqd worker --code`")
                return
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            print_note(f"no worker or handler of {name!r} is known{hint} The job waits for one")


def _without_repeats(info: JobInfo) -> dict[str, Any]:
    """Return a job's fields for people, with each text only once: without an `error` that is part of the `message`, and
    with the last attempt's message either in the job or in its history."""
    fields = {**msgspec.structs.asdict(info), "history": [_brief(dict(one)) for one in info.history]}
    last = fields["history"][-1] if fields["history"] else {}
    if last.get("message") == fields["message"]:
        # Of a job that runs again the history keeps the message, unless it has several lines, which only the job shows.
        is_attempts = info.state == "running" and "\n" not in (info.message or "").strip()
        for name in ("message", "error"):
            (fields if is_attempts else last).pop(name, None)
    return _brief(fields)


def _brief(answer: dict[str, Any]) -> dict[str, Any]:
    error, message = answer.get("error"), answer.get("message") or ""
    return {**answer, "error": None} if isinstance(error, str) and error.strip() in message else answer


def _lines_pushed(client: Client, name: str, pushed: Pushed, within_s: float | None, output: Output) -> int:
    """Print the jobs pushed from a file; return the exit code. `within_s`: wait up to so many seconds until they have
    ended, and print each with its result; None: print only their ids. Raises TimedOut."""
    if pushed.jobs:
        _warn_if_unserved(client, name)
    with _known(pushed.job_ids):
        if within_s is None or pushed.stopped is not None:
            pushed.show(output)
            return pushed.exit
        try:
            infos = client.wait(pushed.job_ids, timeout=within_s)
        except TimedOut as error:
            raise TimedOut(f"{error}. {_still_wanted(error.pending[0])}", pending=error.pending) from error
        show(infos, output)
        return max([pushed.exit, *map(_ended, infos)])


def _rows_pushed(client: Client, name: str, pushed: Pushed, table: Table, output: Output) -> int:
    if pushed.jobs:
        _warn_if_unserved(client, name)
    if pushed.stopped is not None and pushed.jobs and (table.batch_key or table.id_column):
        print_note("the same command again goes on: what was pushed counts once")
    before = f", {pushed.known} of them before" if pushed.known else ""
    refused = f"; {counted(pushed.refusals, 'line')} refused" if pushed.refusals else ""
    counts = {"jobs": pushed.jobs, "known": pushed.known, "refused": pushed.refusals}
    show_as(f"{counted(pushed.jobs, 'job')} pushed{before}{refused}", counts, output)
    return pushed.exit


@contextmanager
def _known(job_ids: list[str]) -> Iterator[None]:
    """Print the ids of the pushed jobs on stderr if the block fails, also if it cannot write to stdout."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader wants no more output
    except (JqdError, KeyboardInterrupt, OSError):
        print_note(f"pushed: {' '.join(job_ids)}")
        raise


def _ended(info: JobInfo) -> Exit:
    if not info.ended:
        message = f"job {info.job_id} has not ended, it is {info.state}. {_still_wanted(info.job_id)}"
        raise TimedOut(message, pending=[info.job_id])
    return Exit.DONE if info.succeeded else Exit.FAILED


def _still_wanted(job_id: str) -> str:
    look = f"`jqd get {shlex.quote(job_id)} --wait 5m` waits on"
    return f"It is still wanted: {look}, `jqd why {shlex.quote(job_id)}` says what keeps it"


def _show_end(info: JobInfo, output: Output) -> Exit:
    show(_without_repeats(info) if output == "table" else info, output)
    return _ended(info)


def _show_result(client: Client, info: JobInfo, output: Output) -> Exit:
    code = _ended(info)
    if code is not Exit.DONE:
        why = info.message or info.error or "no reason was given"
        print_note(f"job {info.job_id} ({info.name}) has no result, it is {info.state}: {plain(why)}")
    elif info.result is None and info.message:  # a success has a message only if its result was dropped
        print_note(f"job {info.job_id} ({info.name}) has succeeded; {info.message}")
        return Exit.FAILED
    else:
        result = client.result(info.job_id) if info.result_bytes else info.result
        if isinstance(result, str) and output == "table":
            # A file or another program gets the text unchanged.
            print_line(result) if sys.stdout.isatty() else print(result)
        else:
            show(result, "jsonl" if output == "table" else output)
    return code


def _waited(client: Client, job_id: str, within_s: float) -> JobInfo:
    """Wait until a job has ended, but at most `within_s` seconds; return its state then. After SILENT_S prints what the
    job waits for."""
    info = client.get(job_id, wait=min(SILENT_S, within_s))
    if info.ended or within_s <= SILENT_S:
        return info
    print_note(f"job {job_id} is {_stands(info)}. Ctrl-C ends the wait; the job stays")
    return client.get(job_id, wait=within_s - SILENT_S)


def _within(given: str | None, *, waits: bool) -> float:
    """Return how many seconds to wait: the value of --within, or WAIT_S. Raises Usage if --within is given, but neither
    --wait nor --result is (`waits`)."""
    if given is not None and not waits:
        raise Usage("--within is how long --wait or --result waits: give one of them")
    return WAIT_S if given is None else duration(given, "--within")


def _stands(info: JobInfo) -> str:
    match info.state:
        case "waiting":
            return f"waiting, not begun by any worker; `jqd why {shlex.quote(info.job_id)}` says what keeps it"
        case "scheduled" | "retrying" if info.eligible_at is not None:
            return f"{info.state}, and comes at {plain(info.eligible_at)}"
    return str(info.state)


def _expect_words(words: list[str | None], lines: Path | None, id_: str | None, result: bool) -> None:
    if option := next((word for word in words if word and word.startswith("--")), None):
        raise Usage(f"there is no option {option}; an argument that begins so is read from a file (@FILE) or stdin (-)")
    if len(words) > 1:
        raise Usage("a job has one argument; several values are a list in JSON: '[1, \"two\"]'")
    if lines is not None and words[0] is not None:
        raise Usage("give either an argument or --lines, not both")
    if lines is not None and id_ is not None:
        raise Usage("--id names one job; it cannot be given with --lines")
    if lines is not None and result:
        raise Usage("--result prints what one job returned; --wait prints all jobs of --lines with their results")


def _expect_table(table: Table, argument: str | None, lines: Path | None, id_: str | None, waits: bool) -> None:
    table.check()
    if table.csv is None:
        return
    if argument is not None or lines is not None:
        raise Usage("--csv brings the arguments: give none, and no --lines")
    if id_ is not None:
        raise Usage("--id names one job; with --csv there are --id-column and --batch-key")
    if waits:
        raise Usage("--csv waits for no job; `jqd jobs --tag TAG` finds those that were pushed with --tag")


def _run_at(text: str | None) -> str | float | None:
    """Return the value of --run-at for the client: Unix seconds as a number, any other date as text. A number of 8
    digits is an ISO 8601 date: 20300131."""
    return float(text) if text is not None and re.fullmatch(r"\d{9,12}(\.\d+)?", text) else text
