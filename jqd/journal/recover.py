"""Start-up: find the segments, believe only what checksums prove, cut the torn tail, name the damage.

    look    every head; every frame of the newest segment       changes nothing: a refused directory stays untouched
    mend    quarantine damage, cut or seal torn bytes,          is not necessary: if the disk fails here, the daemon
            delete empty segments                               starts all the same

Older segments are not read: each was synced before the next was begun, and the next head says where it ends. Readers
verify every frame again anyway and report damage. In memory: one window of a file and one body.

The file `retired` has the position from which jobs are read: those before it ended, or were copied behind it. Their
segments may stay longer, for outcomes and cancels of other daemons' jobs (docs/adr/0001).

    retired    jqd-retired 1 <position> <end> <CRC-32 of the bytes before it>

`end` is where the journal ended when the file was written: the copies lie before it. If the directory ends earlier, it
is older than the file; then the file is ignored and deleted, and all jobs are read.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jqd.domain.errors import JournalDamaged
from jqd.domain.log import get_logger
from jqd.journal.files import Files, closing, read_whole, write_whole
from jqd.journal.frame import FRAME_HEADER_BYTES, HEAD_BYTES, NO_JOURNAL, TORN_KIND, SegmentHeader, unpack_head
from jqd.journal.segment import (
    DAMAGED,
    NEW,
    SUFFIX,
    TORN,
    Gap,
    Segment,
    Walker,
    copy_damaged,
    first_of,
    name_of,
    quarantine,
    seal,
)

RETIRED = "retired"

_LINE = re.compile(rb"(jqd-retired 1 (\d{1,20}) (\d{1,20}) )([0-9a-f]{8})\n")
_BYTES_MAX = 128


class Retired(NamedTuple):
    position: int = 0
    end: int = 0


@dataclass
class Recovered:
    """What recovery found in the journal's directory."""

    segments: list[Segment] = field(default_factory=list)
    journal_id: bytes | None = None
    """The newest id of the journal: a copied directory continues under a new id. None: there was no segment."""
    is_new: bool = False
    """Whether the journal is created now, so that no store can hold any of its records."""
    before: bytes = NO_JOURNAL
    """The journal's id before `journal_id`; zeros: it had none."""
    end: int = 0
    """Where the next segment begins: behind all positions that may have been given out."""
    accepted_end: int = 0
    """Where the accepted frames end; the next segment's head repeats it."""
    next_seq: int = 1
    last_at_ms: int = 0
    damaged: list[str] = field(default_factory=list)
    """One sentence for each damaged place."""
    retired: Retired = field(default_factory=Retired)


def recover(files: Files, directory: Path) -> Recovered:
    """Read the journal's directory and mend it.

    Raises JournalVersion for a segment of another format, JournalDamaged for files of two journals, OSError when the
    directory cannot be read. In each of these cases the directory is unchanged."""
    names = sorted(files.names(directory))
    found = Recovered()
    headless = _read_headers(files, directory, names, found)
    lost_end = found.end
    _bound_by_next(found)
    scan = _scan_newest(files, found)
    if RETIRED in names:
        found.retired, doubt = read_retired(files, directory, found.end)
        if doubt is not None:
            found.damaged.append(doubt)

    if RETIRED in names and not found.retired.end:
        _try(files.unlink, directory / RETIRED)  # else it would be believed once the journal has grown past it
        _try(files.sync_directory)
    for path in headless:
        _try(files.rename, path, path.with_suffix(DAMAGED))
        _try(files.sync_directory)
        found.damaged.append(f"{path.name}: both copies of its head are damaged; kept as {path.stem}{DAMAGED}")
    for name in names:
        if name.endswith(DAMAGED):
            found.damaged.append(f"{name}: kept since damage was found; look at it, then move it away")
        elif name.endswith(NEW):
            _try(files.unlink, directory / name)  # a segment that was being made: no frame was accepted in it
    if found.segments:
        _mend_newest(files, found, scan)
    for segment in [segment for segment in found.segments if not segment.size]:
        found.segments.remove(segment)
        if segment.first != found.end:  # else the next segment takes its place
            _try(files.unlink, segment.path)
    found.accepted_end = max(lost_end, found.segments[-1].end) if found.segments else found.end
    for sentence in found.damaged:
        get_logger("journal").error("journal.damaged", place=sentence)
    return found


# ---------------------------------------------------------------- look


def _read_headers(files: Files, directory: Path, names: list[str], found: Recovered) -> list[Path]:
    """Add the segments to `found`, each with the greatest end that its file allows; return the files whose head is
    lost."""
    headless = []
    for name in names:
        first = first_of(name)
        if first is None or (name.endswith(DAMAGED) and name_of(first) in names):
            continue  # none of ours, or the second name of one that is
        path = directory / name
        frames_bytes = max(0, files.size(path) - HEAD_BYTES)
        header = None if name.endswith(DAMAGED) else _read_head(files, path)
        if header is None:
            # The store may know positions in this file: they are never given out again.
            found.end = max(found.end, first + frames_bytes)
            if name.endswith(SUFFIX):
                headless.append(path)
            continue
        # A segment with a new journal id belongs here only if its head names the id before.
        if header.first != first or found.journal_id not in (None, header.journal_id, header.before):
            raise JournalDamaged(
                f"{path} does not belong where it lies: it was renamed, or comes from another journal. "
                "Nothing was changed; move it out of the directory and start again"
            )
        found.journal_id, found.before = header.journal_id, header.before
        found.segments.append(Segment(path, header, first + frames_bytes))
    return headless


def _read_head(files: Files, path: Path) -> SegmentHeader | None:
    with closing(files, files.open(path)) as fd:
        return unpack_head(read_whole(files, fd, HEAD_BYTES, 0), path.name)


def _bound_by_next(found: Recovered) -> None:
    """Lower each segment's end to its accepted end, which the next segment's head names. Report missing bytes in
    `found.damaged`."""
    for segment, following in zip(found.segments, found.segments[1:], strict=False):
        accepted = max(segment.first, following.header.previous_end)
        if segment.end < accepted:
            found.damaged.append(
                f"{segment.path.name}: {accepted - segment.end} bytes before position {accepted} are missing"
            )
        segment.end = min(segment.end, accepted)


class Scan(NamedTuple):
    """The gaps of the newest segment."""

    damage: list[Gap]
    """Gaps that were on disk once, as a later frame shows."""
    torn: list[Gap]
    """Gaps in a commit that never ended, so that nothing of it was acknowledged."""
    whole: list[Gap]
    """Frames behind the last good one that have their full length and a bad body. A crash seldom leaves that: they may
    have been acknowledged, and damaged since."""


def _scan_newest(files: Files, found: Recovered) -> Scan:
    """Walk the newest segment to find its gaps, and set its end to the end of its last good frame."""
    scan = Scan([], [], [])
    if not found.segments:
        return scan
    segment = found.segments[-1]
    found.next_seq = segment.header.first_seq
    found.last_at_ms = segment.header.created_at_ms
    doubtful, synced, good_end = list[Gap](), segment.first, segment.first
    with closing(files, files.open(segment.path)) as fd:
        for piece in Walker(files, fd, segment.header).frames(segment.first, segment.end):
            if isinstance(piece, Gap):
                doubtful.append(piece)
                continue
            good_end = piece.end
            if piece.kind != TORN_KIND:
                synced = max(synced, piece.start - piece.back)
                found.next_seq = piece.seq + 1
                found.last_at_ms = max(found.last_at_ms, piece.at_ms)
    for gap in doubtful:
        if gap.start < synced:
            scan.damage.append(gap)
        elif gap.end < good_end:
            scan.torn.append(gap)
        elif gap.has_header:
            scan.whole.append(gap)
    segment.end = good_end
    found.end = max(found.end, good_end)
    return scan


# ---------------------------------------------------------------- mend


def _mend_newest(files: Files, found: Recovered, scan: Scan) -> None:
    segment = found.segments[-1]
    for gap in scan.damage:
        sentence = quarantine(files, segment, gap)
        assert sentence is not None, "a fresh segment knows no damage"
        found.damaged.append(sentence)
    for gap in scan.whole:
        found.damaged.append(
            f"{segment.path.name}: the last frame, at position {gap.start}, has its full length and bad bytes. A crash "
            f"seldom leaves that: if it was acknowledged, what is in it is lost; it is kept as {TORN}"
        )
    try:
        if files.size(segment.path) > HEAD_BYTES + segment.size:
            _cut_tail(files, segment)
        if segment.size:
            with closing(files, files.open(segment.path, write=True)) as fd:
                for gap in scan.torn:
                    _seal(files, fd, segment, gap)
                _sync(files, fd, segment, found)
    except OSError as error:
        # The next segment's head says where this one ends, so a tail that stays does no harm.
        get_logger("journal").error("journal.mend_failed", segment=segment.path.name, error=str(error))


def _sync(files: Files, fd: int, segment: Segment, found: Recovered) -> None:
    """Sync good frames that a killed daemon may have left unsynced. If this fails, `found.damaged` says so; the frames
    count as durable all the same, because the last commit may have been acknowledged."""
    try:
        files.sync(fd)
    except OSError as error:
        found.damaged.append(
            f"{segment.path.name}: its sync failed at the start ({error}): its last frames may be on no disk"
        )


def _seal(files: Files, fd: int, segment: Segment, gap: Gap) -> None:
    """Turn torn bytes between good frames into a frame; else readers would take them for damage."""
    if gap.end - gap.start <= FRAME_HEADER_BYTES:
        return  # no frame is so short: readers will report damage
    seal(files, fd, segment.header, gap)
    get_logger("journal").warning("journal.torn_inside", segment=segment.path.name, start=gap.start, end=gap.end)


def _cut_tail(files: Files, segment: Segment) -> None:
    """Cut the torn tail, and keep a copy for people. As a rule its sync never returned, so it was not acknowledged."""
    size = HEAD_BYTES + segment.size
    kept = segment.path.with_name(f"{segment.path.stem}-{segment.end}{TORN}")
    if not segment.size:
        files.rename(segment.path, kept)  # renaming needs no space, and the next segment needs the name
        files.sync_directory()
    else:
        copy_damaged(files, segment.path, kept, size, files.size(segment.path) - size)
        with closing(files, files.open(segment.path, write=True)) as fd:
            files.truncate(fd, size)
    get_logger("journal").warning("journal.torn_tail", segment=segment.path.name, position=segment.end, kept=kept.name)


def _try(call: Callable[..., None], *arguments: Path) -> None:
    """Make a call, and only log its failure: the files that it leaves are harmless."""
    try:
        call(*arguments)
    except OSError as error:
        get_logger("journal").error("journal.mend_failed", error=str(error))


def write_retired(files: Files, directory: Path, retired: Retired) -> None:
    """Replace the file `retired` durably. Raises OSError. Blocks: call it in a thread."""
    line = f"jqd-retired 1 {retired.position} {retired.end} ".encode()
    path = directory / RETIRED
    new = path.with_name(RETIRED + NEW)
    with closing(files, files.create(new)) as fd:
        write_whole(files, fd, line + b"%08x\n" % zlib.crc32(line))
        files.sync(fd)
    files.rename(new, path)
    files.sync_directory()


def read_retired(files: Files, directory: Path, end: int) -> tuple[Retired, str | None]:
    """Return the content of the file `retired`; or (0, 0) and a sentence why the file is ignored. Raises OSError.

    `end`: where the journal ends now."""
    path = directory / RETIRED
    with closing(files, files.open(path)) as fd:
        data = files.read(fd, _BYTES_MAX, 0)
    match = _LINE.fullmatch(data)
    if match is None or int(match[4], 16) != zlib.crc32(match[1]):
        return (
            Retired(),
            f"{RETIRED}: it cannot be read, so jobs that ended long ago are applied again when a store was emptied",
        )
    found = Retired(int(match[2]), int(match[3]))
    if found.end > end:
        return Retired(), f"{RETIRED}: it is newer than the segments beside it, so all jobs in them are read"
    return found, None
