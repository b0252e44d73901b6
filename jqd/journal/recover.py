"""Start-up: find the segments, look at their headers, cut the torn tail, name the damage. Never guesses.

every segment but the newest   its header only: what it holds was synced before the next was begun; readers
                               check each frame's sum and report damage where they meet it
the newest                     every frame: a bad one with no good one after it is a torn tail, which is
                               copied aside (.torn) and cut; any other is damage, which stays where it is
"""

from dataclasses import dataclass, field
from pathlib import Path

from jqd.journal.files import Files
from jqd.journal.frame import SEGMENT_HEADER_BYTES, SegmentHeader, unpack_segment_header
from jqd.journal.segment import SUFFIX, Frame, Gap, Segment, Walker
from jqd.log import get_logger

COPY_BYTES = 1 << 20


@dataclass
class Recovered:
    """What an earlier life left."""

    segments: list[Segment] = field(default_factory=list)
    journal_id: bytes | None = None
    end: int = 0
    next_seq: int = 1
    last_at_ms: int = 0
    damaged: list[str] = field(default_factory=list)
    """One sentence for each place that holds neither good frames nor a torn tail."""


def recover(files: Files, directory: Path) -> Recovered:
    """Read the directory. Raises JournalVersion for a segment of a newer format, and OSError."""
    log = get_logger("journal")
    result = Recovered()
    names = sorted(name for name in files.names(directory) if name.endswith(SUFFIX))
    for name in names:
        path = directory / name
        header = _read_header(files, path)
        if header is None:
            _set_aside(files, path, newest=name == names[-1], result=result)
            continue
        size = files.size(path)
        result.segments.append(Segment(path, header, header.first + size - SEGMENT_HEADER_BYTES))
    _close_gaps(result)
    if result.segments:
        last = result.segments[-1]
        result.journal_id = last.header.journal_id
        result.next_seq = last.header.first_seq
        result.last_at_ms = last.header.created_at_ms
        _scan_newest(files, last, result)
        result.end = last.end
    for sentence in result.damaged:
        log.error("journal.damaged", place=sentence)
    return result


def _read_header(files: Files, path: Path) -> SegmentHeader | None:
    fd = files.open(path)
    try:
        return unpack_segment_header(files.read(fd, SEGMENT_HEADER_BYTES, 0), path.name)
    finally:
        files.close(fd)


def _set_aside(files: Files, path: Path, *, newest: bool, result: Recovered) -> None:
    """A file without a good header. The newest may be a creation that was cut short: it can hold no accepted frame."""
    if newest and files.size(path) <= SEGMENT_HEADER_BYTES:
        files.rename(path, path.with_suffix(".torn"))
    else:
        files.rename(path, path.with_suffix(".damaged"))
        result.damaged.append(f"{path.name}: its header is damaged; the file was kept as {path.stem}.damaged")
    files.sync_directory(path.parent)


def _close_gaps(result: Recovered) -> None:
    """A segment is valid up to where the next one says that the accepted part ends."""
    for segment, following in zip(result.segments, result.segments[1:], strict=False):
        accepted = following.header.previous_end
        if segment.end < accepted:
            result.damaged.append(
                f"{segment.path.name}: {accepted - segment.end} bytes before position {accepted} are missing"
            )
        segment.end = min(segment.end, accepted)


def _scan_newest(files: Files, segment: Segment, result: Recovered) -> None:
    fd = files.open(segment.path)
    good_end, gaps = segment.first, list[Gap]()
    try:
        for piece in Walker(files, fd, segment.header).frames(segment.first, segment.end, check=True):
            match piece:
                case Frame(_, end, header):
                    for gap in gaps:  # something good follows: this is no torn tail
                        segment.damaged.append((gap.start, gap.end))
                        sentence = f"{segment.path.name}: no good frame from position {gap.start} to {gap.end}"
                        result.damaged.append(sentence)
                    gaps.clear()
                    good_end = end
                    result.next_seq = header.seq + 1
                    result.last_at_ms = max(result.last_at_ms, header.at_ms)
                case Gap():
                    gaps.append(piece)
        if good_end < segment.end:
            _cut_tail(files, fd, segment, good_end)
    finally:
        files.close(fd)


def _cut_tail(files: Files, fd: int, segment: Segment, good_end: int) -> None:
    """Nothing in it was acknowledged: its sync never came back. Kept aside all the same, for whoever wants to look."""
    offset = SEGMENT_HEADER_BYTES + good_end - segment.first
    aside = segment.path.with_name(f"{segment.path.stem}-{good_end}.torn")
    if aside.name in files.names(segment.path.parent):
        files.unlink(aside)
    out = files.create(aside)
    try:
        while part := files.read(fd, COPY_BYTES, offset):
            offset += len(part)
            while part:
                part = part[files.write(out, [part]) :]
        files.sync(out)
    finally:
        files.close(out)
    files.sync_directory(segment.path.parent)
    files.truncate(segment.path, SEGMENT_HEADER_BYTES + good_end - segment.first)
    get_logger("journal").warning("journal.torn_tail", segment=segment.path.name, position=good_end, kept=aside.name)
    segment.end = good_end
