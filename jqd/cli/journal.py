"""`jqd journal`: ls, cat, verify, repair, replay. Only `repair` changes the journal; the others may run beside the
daemon."""

import dataclasses
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import trio
from cyclopts import Parameter

from jqd.cli.common import ConfigFile, Flag, OutputFlag, StoreUrls
from jqd.cli.config import daemon_settings
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import counted, print_note
from jqd.cli.records import line, records
from jqd.cli.render import console, show, table
from jqd.cli.replay import Tally, count, patiently
from jqd.cli.replay import replay as replay_into
from jqd.cli.segments import Checked, bar, complain, living, row
from jqd.config import Config
from jqd.domain import log
from jqd.domain.clock import SystemClock
from jqd.domain.dates import instant_ms, ms_of
from jqd.domain.errors import JournalDamaged, StoreAway, StoreRefused
from jqd.domain.job import Job
from jqd.domain.record import Lane
from jqd.domain.units import has_unit, seconds
from jqd.journal import Files
from jqd.journal.frame import Frame
from jqd.journal.inspect import Kind, SegmentView, snapshot, walk
from jqd.journal.repair import repair as mend
from jqd.processes import journals
from jqd.store import (
    HIDDEN,
    MISPLACED,
    Store,
    StoreConfig,
    examine,
    open_embedded,
    open_store,
    socket_of,
)

LaneName = Literal["jobs", "outcomes", "cancels", "changes", "rules"]

FAR_MS = 1 << 62
NUMBERS = ("first", "end", "bytes", "frames")  # columns that are aligned to the right
DATA_DIR = ".jqd"  # where a daemon keeps its data by default
JOBS = frozenset({Lane.JOBS, Lane.CHANGES})


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Options that say where a journal is."""

    data_dir: Path | None = None
    """Data directory of a daemon, or a copy of its journal. Default ./.jqd, or what the configuration says."""
    config: ConfigFile = None

    def settings(self, stores: list[str] | None = None) -> Config:
        """Load the daemon's configuration, and log only warnings and errors (only errors if the configuration says so).
        `stores`: URLs of servers to use instead of the configured store. Raises Usage."""
        settings = daemon_settings(self.config, stores, self.data_dir)
        log.configure(level=settings.log.level if settings.log.level == "error" else "warning")
        return settings

    def directories(self) -> dict[str, Path]:
        """Return the journal directory of each process. The key is a prefix for file names in messages: empty for the
        first process. Raises Usage if there is no journal."""
        first = self._directory()
        others = [*journals(first).values()]
        if first.name == "journal":  # in a backup they lie beside it
            others += [path for path in journals(first.parent).values() if _has_segments(path)]
        return {"": first, **{f"{path.name}/": path for path in others}}

    def _directory(self) -> Path:
        places = [self.settings().journal.directory]
        if self.data_dir is not None:
            # The option wins over a configuration file. It may name a bare copy of a journal directory.
            places = [self.data_dir / "journal", *places]
            if _has_segments(self.data_dir):
                places = [self.data_dir, *places]
        for place in places:
            if os.path.isdir(place):  # unlike Path.is_dir, false without permission
                return place.absolute()
        inside = self.data_dir / DATA_DIR if self.data_dir is not None else None
        if inside is not None and os.path.isdir(inside / "journal"):
            raise Usage(f"there is no journal in {places[0]}; did you mean --data-dir {inside}?")
        raise Usage(f"there is no journal in {places[0]}; name the daemon's data directory with --data-dir")


def _has_segments(directory: Path) -> bool:
    return any(directory.glob("[0-9]*.jqd"))  # *.jqd would match the default directory .jqd, too


def _snapshots(files: Files, where: Where) -> list[tuple[int | None, list[SegmentView]]]:
    """Return the journal of each process: the pid of the daemon that uses it (None: none does, or it is unknown), and
    its segments."""
    places = where.directories().items()
    return [(living(directory), snapshot(files, directory, under)) for under, directory in places]


def ls(*, where: Where = Where(), output: OutputFlag = "table") -> int:
    """List the segments (files) of a journal. Only their headers are read: `verify` checks every byte."""
    files = Files()
    found = _snapshots(files, where)
    rows = [row(files, seen, holder) for holder, segments in found for seen in segments]
    holders = [holder for holder, _ in found if holder is not None]
    size, frames = sum(each["bytes"] for each in rows), sum(each["frames"] or 0 for each in rows)
    if output == "table":
        cells = [["-" if cell is None else cell for cell in each.values()] for each in rows]
        console().print(table([*rows[0]], cells, right=NUMBERS) if rows else "", end="")
        many = f"processes {', '.join(map(str, holders))} live here" if len(holders) > 1 else "nobody lives here"
        lives = f"process {holders[0]} lives here" if len(holders) == 1 else many
        show(f"{counted(len(rows), 'segment')}, {counted(size, 'byte')}, {counted(frames, 'frame')}; {lives}", output)
    elif output == "json":
        total = {"segments": len(rows), "bytes": size, "frames": frames, "process": next(iter(holders), None)}
        show({"segments": rows, "total": total}, output)
    else:
        show(rows, output)
    return Exit.DONE


def cat(
    *,
    lines: Flag = False,
    lane: Annotated[list[LaneName] | None, Parameter(negative="")] = None,
    type_: Annotated[list[str] | None, Parameter(name="--type", negative="")] = None,
    since: str | None = None,
    until: str | None = None,
    where: Where = Where(),
) -> int:
    """Print what a journal holds, a line of JSON for each record, in order of position; ends with 1 if it is damaged.

    Parameters
    ----------
    lines
        Print jobs and changes only, as id|jobtype|payload.
    lane
        Print only records of this kind: jobs, outcomes, cancels, changes or rules; may be given several times.
    type_
        Print only jobs of this type and their outcomes; may be given several times.
    since
        Print only records from this date on: ISO 8601 (UTC without a zone), Unix seconds, or so long ago: 90s, 5m, 3d.
    until
        Print only records from before this date.
    """
    kinds = {Lane[name.upper()] for name in lane} if lane else JOBS if lines else frozenset(Lane)
    if lines and not kinds <= JOBS:
        raise Usage("--lines prints jobs and changes; the other lanes have no such form")
    begin_ms, end_ms = _moment(since, "--since") or 0, _moment(until, "--until") or FAR_MS
    files, damaged, printed = Files(), 0, 0
    for seen in (seen for _, segments in _snapshots(files, where) for seen in segments):
        damaged += sum(map(complain, seen.places))
        if seen.following is not None and seen.following.created_at_ms < begin_ms:
            continue  # all records of this segment are older
        for piece in walk(files, seen, kinds=kinds):
            if not isinstance(piece, Frame):
                damaged += complain(piece)
                continue
            try:
                found = list(records(piece))
            except JournalDamaged as error:
                damaged += complain(seen.place(Kind.BAD_BODY, piece.start, piece.end, str(error)))
                continue
            for record in found:
                if begin_ms <= record.at_ms < end_ms and (not type_ or record.jobtype in type_):
                    text = line(record.what) if lines and isinstance(record.what, Job) else record.as_json()
                    sys.stdout.write(f"{text}\n")
                    printed += 1
    if not printed and not damaged:
        print_note("the journal holds no record of that kind")
    return Exit.FAILED if damaged else Exit.DONE


def verify(*, where: Where = Where(), output: OutputFlag = "table") -> int:
    """Check every byte of a journal; name each damage by file, offset and kind, and end with 1 if there is any.

    An incomplete frame at the end, left by a crash or being written right now, was as a rule not acknowledged: it is
    reported, but is no damage.
    """
    files, checked = Files(), Checked(output)
    found = [(holder, seen) for holder, segments in _snapshots(files, where) for seen in segments]
    with bar("verifying", sum(seen.size for _, seen in found)) as advance:
        for checked.holder, seen in found:
            checked.segment(seen)
            for piece in walk(files, seen):
                if isinstance(piece, Frame):
                    checked.frame(piece)
                    advance(piece.end - piece.start)
                else:
                    checked.place(piece)
    return checked.end()


def repair(*, dry_run: Flag = False, where: Where = Where(), output: OutputFlag = "table") -> int:
    """Repair a journal that no daemon uses: every good frame is kept, and bytes that are cut go into files beside it.

    Parameters
    ----------
    dry_run
        Say what would be done, and change nothing.
    """
    places, files = where.directories(), Files()
    for directory in places.values():  # nothing is changed where one of them cannot be mended
        mend(files, directory, dry_run=True)
    done = [one for under, directory in places.items() for one in mend(files, directory, under, dry_run=dry_run)]
    show({"done": done, "dry_run": dry_run} if output == "json" else done, output)
    if not done:
        print_note(f"{places['']} needs no repair")
    return Exit.DONE


async def replay(
    *,
    store: StoreUrls = None,
    since: str | None = None,
    segment: str | None = None,
    dry_run: Flag = False,
    where: Where = Where(),
    output: OutputFlag = "table",
) -> int:
    """Apply a journal to a store: after the store was lost, or a machine was lost and only its disk is left.

    What the store has of that journal already is left out, so a second replay does no harm. Ends with 1 if part of the
    journal could not be read.

    Parameters
    ----------
    since
        Only jobs pushed since: ISO 8601 (UTC without a zone), Unix seconds, or so long ago: 90s, 5m, 2h, 3d.
    segment
        Only this segment, by its name, and all of it: after a repair that says so. Its jobs run again if they ended so
        long ago that the store has forgotten them.
    dry_run
        Count the records, and the jobs that the store does not know; change nothing.
    """
    settings, since_ms, files = where.settings(store), _moment(since, "--since") or 0, Files()
    found = await trio.to_thread.run_sync(_snapshots, files, where)
    # a job of one journal may have ended in another
    segments = [seen for _, its in found for seen in its if segment in (None, seen.name)]
    if segment is not None and not segments:
        raise Usage(f"there is no segment {segment}; `jqd journal ls` lists them")
    whole = segment is not None
    size = sum(seen.end - seen.first for seen in segments)
    with bar("replaying", len(Lane) * size) as advance:
        if dry_run:
            tally = await _counted(
                settings, partial(count, files, segments, whole=whole, since_ms=since_ms, progressed=advance)
            )
        else:
            async with _stores(settings, start=True) as stores:
                tally = await replay_into(files, segments, stores, whole=whole, since_ms=since_ms, progressed=advance)
    for place in tally.damaged:
        complain(place)
    counts = {lane.name.lower(): tally.counts[lane] for lane in Lane}
    show(counts | ({"unknown_jobs": tally.unknown} if dry_run else {}), output)
    return Exit.FAILED if tally.damaged else Exit.DONE


async def _counted(settings: Config, count_with: Callable[[Sequence[Store]], Awaitable[Tally]]) -> Tally:
    try:
        async with _stores(settings, start=False) as stores:
            if stores:
                return await count_with(stores)
            why = f"none is named, and none runs in {settings.data_dir} {HIDDEN}"
    except (StoreAway, StoreRefused) as error:
        why = str(error)
    print_note(f"the store was not asked which jobs it knows: {why}")
    return await count_with([])


@asynccontextmanager
async def _stores(settings: Config, *, start: bool) -> AsyncIterator[list[Store]]:
    """Yield the open partitions of the store that the settings name, or of the daemon's own store. If the own store
    does not run: with `start` it runs during the block; without `start` the list is empty. Raises StoreRefused if a
    partition is not on the server that the configuration names."""
    async with AsyncExitStack() as stack:
        config, own = settings.store, settings.data_dir / "store"
        if config.is_own:
            url = _running(socket_of(own))
            if url is None and start:
                url = await stack.enter_async_context(open_embedded(own))
            config = dataclasses.replace(config, url=url or "")
        stores: list[Store] = []
        for part in () if config.is_own else config.parts():
            if start:
                await patiently(partial(_expect_in_place, part, begin=part.count > 1))
            else:
                await _expect_in_place(part, begin=False)
            stores.append(await stack.enter_async_context(open_store(part)))
        yield stores


async def _expect_in_place(part: StoreConfig, *, begin: bool) -> None:
    """Check that a partition is on the server that the configuration names: a job applied to a wrong partition would
    run twice. Raises StoreRefused, StoreAway.

    `begin`: if the partition is still unused, record its number there.
    """
    for finding in await examine(part):
        if finding.code in MISPLACED:
            raise StoreRefused(str(finding))
    if begin:
        async with open_store(part) as store:
            await store.look(fresh=False)


def _running(path: Path | None) -> str | None:
    if path is None:
        return None
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return None
    return f"unix://{path}"


def _moment(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{9,12}(\.\d+)?", text, re.ASCII):  # 20300131 is a date
            return instant_ms(float(text))
        if has_unit(text) and not text.endswith("Z"):
            return SystemClock().wall_ms() - round(seconds(text) * 1000)
        return ms_of(datetime.fromisoformat(text))
    except ValueError:
        raise Usage(f"{flag} {text} is no date; write 2030-01-31T12:00:00Z, Unix seconds, or so long ago: 2h") from None
