"""Prints the segments of a journal, and the damaged places in them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from jqd.cli.exits import Exit
from jqd.cli.printing import counted, print_note
from jqd.cli.render import Output, show
from jqd.domain.dates import iso
from jqd.journal import Files
from jqd.journal.frame import Frame
from jqd.journal.inspect import Kind, Place, SegmentView, frames_of, walk
from jqd.journal.segment import DAMAGED

LOCKS = Path("/proc/locks")  # which process holds which lock (Linux)
STATES = {Kind.KEPT: "kept", Kind.VERSION: "unknown version", Kind.FOREIGN: "foreign"}


def living(directory: Path) -> int | None:
    """Return the pid of the process that holds the lock of a journal; None: no process does, or it is unknown. Does not
    take the lock."""
    path = directory / "lock"
    try:
        state, held_by, locks = path.stat(), path.read_text().strip(), LOCKS.read_text()
    except (OSError, UnicodeDecodeError):
        return None  # no lock file, or no /proc/locks
    device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
    for entry in locks.splitlines():
        # 1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF
        match entry.split():
            case [_, "FLOCK", _, "WRITE", pid, place, *_]:
                where, _, inode = place.rpartition(":")
                # Some file systems show another device there; then the lock file must name the process.
                if inode == str(state.st_ino) and (where == device or pid == held_by):
                    return int(pid)
    return None


def row(files: Files, seen: SegmentView, holder: int | None) -> dict[str, Any]:
    header = seen.header
    return {
        "name": seen.name,
        "first": seen.first,
        "end": seen.end,
        "bytes": seen.size,
        "frames": frames_of(files, seen),
        "created": iso(header.created_at_ms) if header is not None else None,
        "journal": header.journal_id.hex() if header is not None else None,
        "state": _state(files, seen, holder),
    }


def _state(files: Files, seen: SegmentView, holder: int | None) -> str:
    kinds = {place.kind for place in seen.places}
    for kind, state in STATES.items():
        if kind in kinds:
            return state
    if any(kind.is_damage for kind in kinds) or seen.path.with_suffix(DAMAGED).exists():
        return "damaged"
    if seen.following is not None:
        return "closed"
    kinds = {piece.kind for piece in walk(files, seen, kinds=()) if isinstance(piece, Place)}
    if any(kind.is_damage for kind in kinds):
        return "damaged"
    return "torn" if kinds and holder is None else "open"


def complain(place: Place) -> bool:
    """Print a place in a journal on stderr if it is damaged. Returns whether it is."""
    if place.kind.is_damage:
        print_note(str(place))
    return place.kind.is_damage


class Checked:
    """Counts and prints what `jqd journal verify` finds."""

    def __init__(self, output: Output) -> None:
        self.holder: int | None = None
        """Pid of the daemon that uses the directory that is being checked; None: none does."""
        self._output = output
        self._places: list[dict[str, Any]] = []  # kept only for JSON, which is printed as one value
        self._counts = {"segments": 0, "bytes": 0, "frames": 0, "records": 0, "damaged": 0}

    def segment(self, seen: SegmentView) -> None:
        self._counts["segments"] += 1
        self._counts["bytes"] += seen.size
        for place in seen.places:
            self.place(place)

    def frame(self, frame: Frame) -> None:
        self._counts["frames"] += 1
        self._counts["records"] += frame.records

    def place(self, place: Place) -> None:
        """Print a part of a segment that is no good frame, and count it if it is damage; for `-o json`, keep it and
        print it at the end."""
        self._counts["damaged"] += place.kind.is_damage
        if place.kind in (Kind.TORN, Kind.TORN_INSIDE) and self.holder is not None:
            place = place._replace(note=f"being written by process {self.holder}")
        if self._output == "table":
            show(f"{'damage' if place.kind.is_damage else 'note'}: {place}", "table")
            return
        fields = {"file": place.file, "offset": place.offset, "bytes": place.size, "kind": place.kind.value}
        fields |= {"damage": place.kind.is_damage, "note": place.note}
        if self._output == "jsonl":
            show(fields, "jsonl")
        else:
            self._places.append(fields)

    def end(self) -> int:
        damaged = self._counts["damaged"]
        if self._output == "json":
            show({"whole": not damaged, **self._counts, "places": self._places}, "json")
        elif self._output == "table":
            whats = ("segment", "byte", "frame", "record")
            summary = ", ".join(counted(self._counts[f"{what}s"], what) for what in whats)
            places = f"{counted(damaged, 'damaged place')}; mend it with: jqd journal repair"
            show(f"{summary}: {places if damaged else 'whole'}", "table")
        return Exit.FAILED if damaged else Exit.DONE


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, if that is a terminal. Yields a function that advances it by a number of bytes."""
    console = Console(stderr=True)
    with Progress(
        console=console,
        disable=not console.is_terminal,
        transient=True,
        redirect_stdout=False,  # stdout is for data
        redirect_stderr=False,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.advance(task, size)
