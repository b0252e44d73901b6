"""Commands that ask a daemon: push, get, cancel, status."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from jqd.cli.exits import Exit
from jqd.cli.render import Output, show
from jqd.client import URL_DEFAULT, Cancel, Client, JobInfo, TimedOut
from jqd.config import DURATION_S, environment
from jqd.errors import ConfigError

LINES_PER_PUSH = 1_000  # jobs in one array: large enough that the sync no longer shows
WAIT_S = 3_600.0  # `--wait` without a number


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that talks to a daemon."""

    output: Annotated[Output, Parameter(alias="-o")] = "table"
    """table, json or jsonl."""
    url: str | None = None
    """URL of the daemon; else JQD_URL, else http://127.0.0.1:7420."""
    token: str | None = None
    """Bearer token; else JQD_TOKEN."""

    def client(self) -> Client:
        """A client for that daemon."""
        return Client(self.url or environment("JQD_URL") or URL_DEFAULT, token=self.token or environment("JQD_TOKEN"))


def push(
    name: str,
    argument: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    lines: Path | None = None,
    priority: int | None = None,
    run_at: str | None = None,
    in_: Annotated[str | None, Parameter(name="--in")] = None,
    id_: Annotated[str | None, Parameter(name="--id")] = None,
    replace: Annotated[bool | None, Parameter(negative="")] = None,
    max_retry: int | None = None,
    timeout: float | None = None,
    keep_result: Annotated[bool | None, Parameter(negative="")] = None,
    wait: Annotated[bool, Parameter(negative="")] = False,
    common: Common | None = None,
) -> int:
    """Push one job, or one for each line of a file.

    Parameters
    ----------
    name
        The jobtype.
    argument
        JSON if it reads as JSON, else a string; - reads it from stdin, @FILE from a file.
    lines
        Push a job for every non-empty line of this file (- for stdin); each line is an argument.
    priority
        Smaller runs first.
    run_at
        Not before this date: ISO 8601 with a zone, or Unix seconds.
    in_
        Not before so much time has passed: 90, 30s, 5m, 2h, 1d.
    id_
        Your own id for the job.
    replace
        Replace a job with the same id.
    max_retry
        Attempts after the first.
    timeout
        Seconds one attempt may take.
    keep_result
        Keep what the worker returns.
    wait
        Wait until the job has ended, print it, and end with 1 if it failed.
    """
    common = common or Common()
    options: dict[str, Any] = {
        "priority": priority,
        "run_at": run_at,
        "delay": _delay(in_),
        "job_id": id_,
        "replace": replace,
        "max_retry": max_retry,
        "timeout": timeout,
        "keep_result": keep_result if keep_result is not None else (True if wait else None),
    }
    if lines is not None:
        if argument is not None:
            raise ConfigError("give either an argument or --lines, not both")
        return _push_lines(common, name, lines, options, wait=wait)
    with common.client() as client:
        job_id = client.push(name, _argument(argument), **options)
        if not wait:
            show(job_id if common.output == "table" else {"job_id": job_id}, common.output)
            return Exit.DONE
        info = client.get(job_id, wait=WAIT_S)
        show(info, common.output)
        return _end(info)


def get(job_id: str, /, *, wait: float = 0.0, common: Common | None = None) -> int:
    """Show a job.

    Parameters
    ----------
    job_id
        The job's id.
    wait
        Seconds to wait for its end; ends with 5 when it has not ended by then.
    """
    common = common or Common()
    with common.client() as client:
        info = client.get(job_id, wait=wait or None)
    show(info, common.output)
    return Exit.TIMED_OUT if wait and not info.ended else Exit.DONE


def cancel(job_id: str, /, *, common: Common | None = None) -> int:
    """Cancel a job that has not ended.

    Parameters
    ----------
    job_id
        The job's id.
    """
    common = common or Common()
    with common.client() as client:
        done = client.cancel(job_id)
    show({"job_id": job_id, "cancel": done.value}, common.output)
    return Exit.FAILED if done is Cancel.TOO_LATE else Exit.DONE


def status(*, common: Common | None = None) -> int:
    """Show what a daemon says of itself and its store; ends with 1 when it takes no jobs."""
    common = common or Common()
    with common.client() as client:
        ready, stats = client.ready(), client.stats()
    show({**ready, **stats}, common.output)
    return Exit.DONE if ready["ready"] else Exit.FAILED


def _push_lines(common: Common, name: str, path: Path, options: dict[str, Any], *, wait: bool) -> int:
    given = {key: value for key, value in options.items() if value is not None}
    if "job_id" in given:
        raise ConfigError("--id names one job; it cannot be given with --lines")
    arguments = [_argument_text(line) for line in _read(path).splitlines() if line.strip()]
    job_ids: list[str] = []
    console = Console(stderr=True)
    with common.client() as client, Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(f"pushing {name}", total=len(arguments))
        for chunk in _chunks(arguments):
            job_ids += client.push_many([{"name": name, "argument": argument, **given} for argument in chunk])
            bar.advance(task, len(chunk))
        if not wait:
            _show_ids(job_ids, common.output)
            return Exit.DONE
        infos = client.wait(job_ids, timeout=WAIT_S)
    show(infos, common.output)
    return max((_end(info) for info in infos), default=Exit.DONE)


def _show_ids(job_ids: list[str], output: Output) -> None:
    if output == "json":
        show({"job_ids": job_ids}, output)
    elif output == "jsonl":
        show([{"job_id": job_id} for job_id in job_ids], output)
    else:
        show(job_ids, output)


def _chunks(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), LINES_PER_PUSH):
        yield items[start : start + LINES_PER_PUSH]


def _end(info: JobInfo) -> Exit:
    if not info.ended:
        raise TimedOut(f"job {info.job_id} has not ended yet", pending=[info.job_id])
    return Exit.DONE if info.succeeded else Exit.FAILED


def _argument(given: str | None) -> Any:
    if given is None:
        return None
    if given == "-" or given.startswith("@"):
        return _argument_text(_read(Path(given.removeprefix("@"))))
    return _argument_text(given)


def _argument_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # not JSON: then it means itself


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _delay(text: str | None) -> float | None:
    if text is None:
        return None
    number = text.rstrip("smhd")
    unit = text[len(number) :] or "s"
    try:
        return float(number) * DURATION_S[unit]
    except (ValueError, KeyError):
        raise ConfigError(f"--in {text} is no duration; write 90, 30s, 5m, 2h or 1d") from None
