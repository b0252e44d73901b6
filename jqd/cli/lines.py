"""`jqd push --lines`: a job for every line of a file, pushed by the thousand.

Every id is printed: if a daemon goes away in the middle, the ids that it gave are printed all the same, and the message
says up to which line all were pushed.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from jqd.cli.argument import STDIN, arguments
from jqd.cli.exits import Exit, exit_of
from jqd.cli.render import Output, show
from jqd.client import Client, Invalid, ItemError, PartlyPushed
from jqd.domain.errors import JqdError

LINES_PER_PUSH = 1_000  # jobs in one array: large enough that the sync no longer shows
REFUSALS_SHOWN = 20  # lines; a file that is all wrong should not scroll its first error away

Line = tuple[int, Any, int]  # number, argument, bytes read so far


@dataclass
class Pushed:
    job_ids: list[str] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Line number and why."""
    stopped: JqdError | None = None
    """Why pushing ended before the file did."""

    @property
    def exit(self) -> Exit:
        if self.stopped is not None:
            return exit_of(self.stopped)
        return Exit.FAILED if self.refused else Exit.DONE

    def show(self, output: Output) -> None:
        if output == "json":
            show({"job_ids": self.job_ids}, output)
        elif output == "jsonl":
            show([{"job_id": job_id} for job_id in self.job_ids], output)
        else:
            show(self.job_ids, output)


def push_lines(client: Client, name: str, path: Path, options: Mapping[str, Any], *, as_text: bool = False) -> Pushed:
    """Push every line that is not blank. Talks on stderr; never raises JqdError: `stopped` says it."""
    pushed = Pushed()
    console = Console(stderr=True)
    size = path.stat().st_size if str(path) != STDIN and path.is_file() else None
    lines = arguments(path, as_text=as_text)
    last = 0
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(f"pushing {name}", total=size)
        try:
            for chunk in _chunks(lines):
                _push(client, name, chunk, options, pushed)
                last = chunk[-1][0]
                bar.update(task, completed=chunk[-1][2])
        except JqdError as error:
            pushed.stopped = error
    _tell(path, pushed, last)
    return pushed


def _chunks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while chunk := list(islice(lines, LINES_PER_PUSH)):
        yield chunk


def _push(client: Client, name: str, chunk: list[Line], options: Mapping[str, Any], pushed: Pushed) -> None:
    """Push one array. Lines that the daemon refuses are noted; any other error is raised after the ids were noted."""
    try:
        pushed.job_ids += client.push_many(
            [{"name": name, "argument": argument, **options} for _, argument, _ in chunk]
        )
    except PartlyPushed as error:
        pushed.job_ids += [job_id for job_id in error.job_ids if job_id is not None]
        pushed.refused += _refused(chunk, error.errors)
        if error.__cause__ is not None or not error.errors:
            raise
    except Invalid as error:
        if not error.errors or any(item.index is None for item in error.errors):
            raise  # the error is not about single lines
        pushed.refused += _refused(chunk, error.errors)


def _refused(chunk: list[Line], errors: list[ItemError]) -> list[tuple[int, str]]:
    return [
        (chunk[item.index][0], f"{item.pointer} {item.detail}".strip()) for item in errors if item.index is not None
    ]


def _tell(path: Path, pushed: Pushed, last: int) -> None:
    for number, why in pushed.refused[:REFUSALS_SHOWN]:
        print(f"jqd: {path} line {number} was refused: {why}", file=sys.stderr)
    if len(pushed.refused) > REFUSALS_SHOWN:
        print(f"jqd: … and {len(pushed.refused) - REFUSALS_SHOWN} lines more", file=sys.stderr)
    if not last and not pushed.refused and pushed.stopped is None:
        print(f"jqd: no line of {path} is a job; nothing was pushed", file=sys.stderr)
    if pushed.stopped is not None:
        after = f"; {len(pushed.job_ids)} jobs were pushed, all lines up to {last}" if last else ""
        print(f"jqd: {pushed.stopped}{after}", file=sys.stderr)
