"""Reads the arguments of jobs from the command line, stdin or a file: text that is valid JSON as JSON, other text as a
string.

Text that begins like JSON but is not valid is probably a mistake, and is refused. With `--lines` each line of a file is
the argument of a job, and one request pushes up to a thousand jobs. If the daemon goes away in the middle, the ids of
the jobs pushed so far are printed, and a message says up to which line all jobs were pushed.
"""

import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import msgspec

from jqd.cli.exits import Exit, Usage, exit_of
from jqd.cli.printing import counted, print_note
from jqd.cli.render import Output, show
from jqd.client import Client, ItemError, PartlyPushed
from jqd.client.errors import ContentError
from jqd.domain import json_ext
from jqd.domain.errors import JqdError

LINES_PER_PUSH = 1_000  # jobs in one request: enough to make the sync's cost negligible
REFUSALS_SHOWN = 20  # refused lines shown, so that the first error does not scroll away


class Line(NamedTuple):
    """A job read from a line of a file."""

    number: int
    argument: Any
    read_bytes: int
    """Size in bytes of the file up to the end of this line."""
    named: Mapping[str, Any] = {}
    """Options for this job alone: `job_id`, if the file names it."""


@dataclass
class Pushed:
    """The result of pushing a file."""

    job_ids: list[str] = field(default_factory=list)
    """Ids of the pushed jobs; empty if `push_file` got `keep_ids=False`."""
    jobs: int = 0
    known: int = 0
    """Number of jobs that an earlier push had pushed already."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Number of a refused line, with a reason; only the first of a request. With `keep_ids=False` only the first of
    all."""
    refusals: int = 0
    stopped: JqdError | None = None
    """Error that ended the push before the end of the file; None: there was none."""

    @property
    def exit(self) -> Exit:
        if self.stopped is not None:
            return exit_of(self.stopped)
        return Exit.FAILED if self.refusals else Exit.DONE

    def show(self, output: Output) -> None:
        if output == "json":
            show({"job_ids": self.job_ids}, output)
        elif output == "jsonl":
            show([{"job_id": job_id} for job_id in self.job_ids], output)
        else:
            show(self.job_ids, output)


def push_file(
    client: Client, name: str, path: Path, lines: Iterable[Line], options: Mapping[str, Any], *, keep_ids: bool = True
) -> Pushed:
    """Push the jobs in `lines`, up to a thousand with each request, and return the result. Prints refused lines and
    errors on stderr. A JqdError ends the push; it is not raised, but returned in `Pushed.stopped`.

    `path`: the file, for messages. `options`: those of every job. `keep_ids`: False for files of any size: then the
    result has no ids, and only the first refused lines.
    """
    from rich.console import Console  # imported here, as most pushes are of one job and should start quickly
    from rich.progress import Progress

    pushed = Pushed()
    console = Console(stderr=True)
    size = path.stat().st_size if str(path) != STDIN and path.is_file() else None
    left, last = iter(lines), 0
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(f"pushing {name}", total=size)
        try:
            while chunk := list(islice(left, LINES_PER_PUSH)):
                _push(client, name, chunk, options, pushed)
                last = chunk[-1].number
                if not keep_ids:
                    pushed.job_ids.clear()
                    del pushed.refused[REFUSALS_SHOWN:]
                bar.update(task, completed=chunk[-1].read_bytes)
        except JqdError as error:
            pushed.stopped = error
    _print_refused(path, pushed, last)
    return pushed


def _push(client: Client, name: str, chunk: list[Line], options: Mapping[str, Any], pushed: Pushed) -> None:
    """Push the jobs of some lines, and add their ids and the refused lines to `pushed`. Raises only errors that concern
    the request as a whole; a refused line raises none."""
    taken: list[str] = []
    refused: list[tuple[int, str]] = []
    refusals = 0
    try:
        jobs = [{"name": name, "argument": line.argument, **options, **line.named} for line in chunk]
        answer = client.push_all(jobs)
        taken = [one.job_id for one in answer]
        pushed.known += sum(one.duplicate for one in answer)
    except PartlyPushed as error:
        taken = [job_id for job_id in error.job_ids if job_id is not None]
        refused = _refused(chunk, error.errors)
        refusals = len(refused) if error.__cause__ is not None else len(chunk) - len(taken)  # `errors` has the first
        if error.__cause__ is not None or not error.errors:
            raise
    except ContentError as error:
        if not error.errors or any(item.index is None for item in error.errors):
            raise  # the error is about the request, not about lines
        refused, refusals = _refused(chunk, error.errors), len(chunk)
    finally:
        pushed.job_ids += taken
        pushed.refused += refused
        pushed.jobs += len(taken)
        pushed.refusals += refusals


def _refused(chunk: list[Line], errors: list[ItemError]) -> list[tuple[int, str]]:
    return [
        (chunk[item.index].number, f"{item.pointer} {item.detail}".strip()) for item in errors if item.index is not None
    ]


def _print_refused(path: Path, pushed: Pushed, last: int) -> None:
    shown = pushed.refused[:REFUSALS_SHOWN]
    for number, why in shown:
        print_note(f"{path} line {number} was refused: {why}")
    if more := pushed.refusals - len({number for number, _ in shown}):
        print_note(f"… and {counted(more, 'more line')}")
    if not last and not pushed.refused and pushed.stopped is None:
        print_note(f"no line of {path} is a job; nothing was pushed")
    if pushed.stopped is not None:
        nothing = "; nothing was pushed" if isinstance(pushed.stopped, Usage) else ""  # else it is not known
        after = f"; {counted(pushed.jobs, 'job')} pushed, all lines up to {last}" if last else nothing
        print_note(f"{pushed.stopped}{after}")


STDIN = "-"
LINE_CHARACTERS_MAX = 64 << 20  # a longer line is a mistake: a daemon takes jobs of a megabyte
JSON_BEGINS = ("{", "[", '"')


def argument(given: str | None, *, as_text: bool = False) -> Any:
    """Return the argument of a job, decoded from `given`: JSON or text, `-` to read stdin, or `@FILE` to read a file.
    None stays None. `as_text`: do not decode JSON. Raises Usage if no job can have this argument."""
    if given is None:
        return None
    if given == STDIN or given.startswith("@"):
        path = Path(given.removeprefix("@"))
        with reading(path) as file:
            return value(file.read().removesuffix("\n").removesuffix("\r"), str(path), as_text=as_text)
    return value(given, "the argument", as_text=as_text)


def value(text: str, where: str, *, as_text: bool = False) -> Any:
    """Decode text as JSON (unless `as_text`); return text that is not JSON unchanged. `where`: names the text in
    errors.

    Raises Usage for text that begins like JSON but is not valid, and for values that MessagePack cannot hold.
    """
    try:
        value: Any = text if as_text else json_ext.read(text.encode())
    except json_ext.FormError as error:
        pointer, why = json_ext.fault_of(text.encode())
        raise Usage(f"{where}{pointer and f' at {pointer}'}: {why}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        if text.lstrip().startswith(JSON_BEGINS):
            raise Usage(
                f"{where} begins like JSON but is not JSON ({error}); with --text it is taken as text"
            ) from error
        value = text
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise Usage(f"{where} cannot be sent as MessagePack: {error}") from error
    return value


def arguments(path: Path, *, as_text: bool = False) -> Iterator[Line]:
    """Yield a job for each line of a file that is not blank. A line ends with LF or CR LF. `as_text`: do not decode
    lines as JSON. Raises Usage for a line that is too long or no JSON, and a file that cannot be read."""
    with reading(path) as file:
        read_bytes = 0
        for number, line in enumerate(iter(lambda: file.readline(LINE_CHARACTERS_MAX), ""), 1):
            read_bytes += len(line.encode(errors="replace"))
            if len(line) >= LINE_CHARACTERS_MAX:
                raise Usage(
                    f"{path} line {number} is longer than {LINE_CHARACTERS_MAX} characters; is it a job a line?"
                )
            text = line.removesuffix("\n").removesuffix("\r")
            if text.strip():
                yield Line(number, value(text, f"{path} line {number}", as_text=as_text), read_bytes)


@contextmanager
def reading(path: Path) -> Iterator[TextIO]:
    """Open a file, or stdin for `-`, as UTF-8 text. Raises Usage, also from within the block, if it cannot be read or
    is not UTF-8."""
    try:
        if str(path) != STDIN:
            with path.open(encoding="utf-8", newline="\n") as file:
                yield file
        elif isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="strict", newline="\n")
            yield sys.stdin
        else:
            yield sys.stdin
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Usage(f"{path} is no UTF-8 text ({error}); other bytes are sent with jqd.client") from error
