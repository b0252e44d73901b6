"""Reads a journal directory without changing it, also while a daemon uses it: the base of `jqd journal`.

It takes no lock, so a daemon may write, rotate and delete meanwhile. It first takes a snapshot of names, heads and
sizes. A segment deleted later was applied long ago and is left out; frames written later are not read. Memory: a few
hundred bytes for each segment, one window and one body.

Damage is distinguished from a torn tail (what a crash left of a write) as in recovery (`recover.py`): a later frame, or
the head of the next segment, says up to where everything was on disk once.
"""

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jqd.domain.errors import JournalRefused, JournalVersion
from jqd.journal.files import Files, closing, read_whole
from jqd.journal.frame import (
    HEAD_BYTES,
    HEADER_COPY_BYTES,
    KINDS,
    TORN_KIND,
    Frame,
    SegmentHeader,
    pack_head,
    unpack_head,
)
from jqd.journal.recover import read_retired
from jqd.journal.segment import DAMAGED, Gap, Walker, first_of, name_of

UNACKNOWLEDGED = "as a rule not acknowledged"


class Kind(enum.StrEnum):
    """What is wrong at a place in a segment file, or why there is no frame."""

    BAD_HEAD = "bad head"
    """One copy of a segment's head is bad; or both are, so that its frames cannot be checked."""
    BAD_HEADER = "bad header"
    """No good frame header where a frame should begin."""
    BAD_BODY = "bad body"
    """The body of a frame is bad, and its header good."""
    MISSING = "missing bytes"
    """The file ends before its accepted end, which the next segment's head names."""
    UNREADABLE = "unreadable"
    """The disk gave an error when this was read."""
    FOREIGN = "foreign segment"
    """The segment was renamed, or belongs to another journal."""
    VERSION = "unknown version"
    """The segment's format is unknown, so damage cannot be detected."""
    TORN = "torn tail"
    """Bytes that a crash left behind the last good frame, or that are being written now. Not acknowledged, unless
    the last frame was damaged since, which looks the same."""
    TORN_INSIDE = "torn inside"
    """Bad bytes between good frames of the last commit; not acknowledged either."""
    VOID = "void"
    """Bytes behind the accepted end of a closed segment: they were refused, and are never read."""
    KEPT = "kept"
    """The second name of a damaged segment; the segment itself was deleted since."""

    @property
    def is_damage(self) -> bool:
        """Whether acknowledged records may be lost at such a place."""
        return self not in (Kind.TORN, Kind.TORN_INSIDE, Kind.VOID, Kind.KEPT)


class Place(NamedTuple):
    """A bad place in a segment file."""

    file: str
    offset: int
    """Offset in the file, in bytes."""
    size: int
    kind: Kind
    note: str = ""

    def __str__(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"{self.file}: byte {self.offset}: {self.kind}, {self.size} bytes{note}"


@dataclass(slots=True)
class SegmentView:
    """One segment file in the snapshot."""

    path: Path
    name: str
    """The file name for a `Place`; with its directory if there are several."""
    first: int
    size: int
    """Size of the file in bytes."""
    head: bytes
    """The first HEAD_BYTES of the file, perhaps damaged."""
    header: SegmentHeader | None
    """None: frames cannot be checked, for the reason in `places`."""
    end: int = 0
    """Position up to which frames may lie."""
    following: SegmentHeader | None = None
    """The head of the next segment. None for the newest segment, and if that head is lost: the accepted end is unknown
    then."""
    places: list[Place] = field(default_factory=list)
    """What is wrong with the segment's head and its size."""

    @property
    def file_end(self) -> int:
        """Return the position at which the file ends."""
        return self.first + max(0, self.size - HEAD_BYTES)

    def offset(self, position: int) -> int:
        """Return the offset in the file that belongs to a position."""
        return HEAD_BYTES + position - self.first

    def place(self, kind: Kind, start: int, end: int, note: str = "") -> Place:
        """Return a `Place` for the bytes between two positions."""
        return Place(self.name, self.offset(start), end - start, kind, note)


# ---------------------------------------------------------------- the snapshot


def snapshot(files: Files, directory: Path, under: str = "") -> list[SegmentView]:
    """Return all segments, oldest first. Raises JournalRefused when the directory or a file in it cannot be read.

    `under`: a text put before the names of the segments, if there are several directories."""
    try:
        missed = ""
        while isinstance(listed := _listed(files, directory, missed, under), str):
            missed = listed
    except OSError as error:
        raise _unreadable(directory, error) from error
    _judge_headers(files, listed)
    return listed


def _listed(files: Files, directory: Path, missed: str, under: str) -> list[SegmentView] | str:
    """Return the segments. If one was deleted meanwhile, return its name, so that the caller lists them again.

    `missed`: the name that the call before returned. Raises OSError if that file is missing again: its name stays in
    the directory, but it cannot be opened."""
    names = sorted(files.names(directory))
    listed: list[SegmentView] = []
    for name in names:
        first = first_of(name)
        if first is None or (name.endswith(DAMAGED) and name_of(first) in names):
            continue  # none of ours, or the second name of one that is
        try:
            listed.append(_see(files, directory / name, under + name, first))
        except FileNotFoundError:
            if name == missed:
                raise
            return name
    return listed


def retired_in(files: Files, segments: Sequence[SegmentView]) -> int:
    """Return the position from which a daemon reads jobs of this directory; 0: all jobs. Raises JournalRefused."""
    if not segments:
        return 0
    directory = segments[0].path.parent
    try:
        found, _ = read_retired(files, directory, segments[-1].end)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _unreadable(directory, error) from error
    return found.position


def _unreadable(directory: Path, error: OSError) -> JournalRefused:
    return JournalRefused(
        f"the journal in {directory} cannot be read: {error}. Nothing was changed; look at the disk", full=False
    )


def _see(files: Files, path: Path, name: str, first: int) -> SegmentView:
    with closing(files, files.open(path)) as fd:
        head = read_whole(files, fd, HEAD_BYTES, 0)
    seen = SegmentView(path, name, first, files.size(path), head, None)
    seen.end = seen.file_end
    try:
        header = unpack_head(head, name)
    except JournalVersion as error:
        seen.places.append(Place(name, 0, seen.size, Kind.VERSION, str(error)))
        return seen
    if header is None:
        note = "both copies are bad, so its frames cannot be checked"
        seen.places.append(Place(name, 0, HEAD_BYTES, Kind.BAD_HEAD, note))
    elif name.endswith(DAMAGED):
        seen.places.append(Place(name, 0, seen.size, Kind.KEPT, "look at it, then move it away"))
    elif header.first != first:
        note = f"its head says that it begins at position {header.first}"
        seen.places.append(Place(name, 0, seen.size, Kind.FOREIGN, note))
    else:
        seen.header = header
        seen.places += _bad_copies(name, head, header)
    return seen


def _bad_copies(name: str, head: bytes, header: SegmentHeader) -> Iterator[Place]:
    """Yield the copies of a head that differ in any byte from `header`."""
    good = pack_head(header)
    for at in range(0, HEAD_BYTES, HEADER_COPY_BYTES):
        stop = at + HEADER_COPY_BYTES
        if head[at:stop] != good[at:stop]:
            yield Place(name, at, HEADER_COPY_BYTES, Kind.BAD_HEAD, "the other copy is good")


def _judge_headers(files: Files, listed: list[SegmentView]) -> None:
    """Compare heads and sizes to find foreign segments and missing bytes, and set each segment's end."""
    before: SegmentView | None = None
    journal_id: bytes | None = None
    for seen in listed:
        # A copied directory goes on under a new id, and its heads name the id before.
        if seen.header is not None and journal_id not in (None, seen.header.journal_id, seen.header.before):
            note = f"it is of journal {seen.header.journal_id.hex()}, not of {(journal_id or b'').hex()}"
            seen.places.append(Place(seen.name, 0, seen.size, Kind.FOREIGN, note))
            seen.header = None
        if before is not None and seen.header is None and _reaches(files, before, seen.first):
            note = f"it has no head, and good frames of {before.name} lie where by its name it would begin"
            seen.places.append(Place(seen.name, 0, seen.size, Kind.FOREIGN, note))
        if any(place.kind in (Kind.FOREIGN, Kind.KEPT) for place in seen.places):
            continue
        if before is not None:
            _bound(before, seen)
        if seen.header is not None:
            journal_id = seen.header.journal_id
        before = seen


def _reaches(files: Files, seen: SegmentView, position: int) -> bool:
    """Whether a segment has a good frame that ends behind a position."""
    if seen.header is None or seen.file_end <= position:
        return False
    reaches = False
    with closing(files, files.open(seen.path)) as fd:
        pieces = Walker(files, fd, seen.header).frames(seen.first, seen.file_end)
        reaches = any(isinstance(piece, Frame) and piece.end > position for piece in pieces)
    return reaches


def _bound(seen: SegmentView, following: SegmentView) -> None:
    """Lower a segment's end to its accepted end, which the head of the next segment (`following`) names. Add missing
    bytes and refused bytes to the segment's `places`."""
    if following.header is None:
        seen.end = min(seen.end, following.first)  # an upper bound: the accepted end is unknown
        return
    seen.following = following.header
    accepted = max(seen.first, following.header.previous_end)
    if seen.end < accepted:
        note = f"{following.name} says that frames went on to position {accepted}"
        seen.places.append(seen.place(Kind.MISSING, seen.end, accepted, note))
    elif seen.header is not None and seen.end > accepted:
        seen.places.append(seen.place(Kind.VOID, accepted, seen.end, "refused once, and read by nobody"))
    seen.end = min(seen.end, accepted)


# ---------------------------------------------------------------- the frames


def walk(files: Files, seen: SegmentView, *, kinds: Collection[int] = KINDS) -> Iterator[Frame | Place]:
    """Yield the good frames of a segment, oldest first, and the bad places between them.

    `kinds`: yield only frames of these kinds; other bodies are not verified. A disk error is a bad place, too. Of a
    segment that was deleted meanwhile nothing is yielded."""
    if seen.header is None:
        return
    judge = _Judge(seen)
    try:
        with closing(files, files.open(seen.path)) as fd:
            yield from _walk(Walker(files, fd, seen.header), judge, kinds)
    except FileNotFoundError:
        return
    except OSError as error:
        yield from judge.rest()
        yield seen.place(Kind.UNREADABLE, judge.position, seen.end, str(error))


def _walk(walker: Walker, judge: "_Judge", kinds: Collection[int]) -> Iterator[Frame | Place]:
    for piece in walker.frames(judge.seen.first, judge.seen.end, kinds):
        if isinstance(piece, Gap):
            yield from judge.gap(piece)
            continue
        yield from judge.good(piece)
        if piece.kind in kinds:
            yield piece
    yield from judge.rest()


class _Judge:
    """Distinguishes damage from a torn tail, as soon as the frames read so far decide it."""

    def __init__(self, seen: SegmentView) -> None:
        self.seen = seen
        self.position = seen.first
        """Position up to which the segment was read."""
        self._good_end = seen.first
        self._doubtful: list[Gap] = []  # gaps that no later frame has proved to be damage

    def gap(self, gap: Gap) -> Iterator[Place]:
        """Note a gap; yield it if it is certainly damage."""
        self.position = gap.end
        if self.seen.following is None:
            self._doubtful.append(gap)
        else:
            yield self._damage(gap)

    def good(self, frame: Frame) -> Iterator[Place]:
        """Note a good frame; yield the gaps before its commit: they were on disk once, so they are damage."""
        self.position = self._good_end = frame.end
        if frame.kind != TORN_KIND and self._doubtful:
            synced = frame.start - frame.back
            yield from (self._damage(gap) for gap in self._doubtful if gap.start < synced)
            self._doubtful = [gap for gap in self._doubtful if gap.start >= synced]

    def _damage(self, gap: Gap) -> Place:
        return self.seen.place(Kind.BAD_BODY if gap.has_header else Kind.BAD_HEADER, gap.start, gap.end)

    def rest(self) -> Iterator[Place]:
        """Yield, as torn, the gaps that are not known to be damage. They lie within the segment's last commit, or
        behind its last good frame."""
        doubtful, self._doubtful = self._doubtful, []
        tail = [gap.start for gap in doubtful if gap.end > self._good_end]
        for gap in doubtful:
            if gap.end <= self._good_end:
                yield self.seen.place(Kind.TORN_INSIDE, gap.start, gap.end, UNACKNOWLEDGED)
        if tail:
            yield self.seen.place(Kind.TORN, tail[0], self.seen.end, UNACKNOWLEDGED)


def frames_of(files: Files, seen: SegmentView) -> int | None:
    """Return how many frames a segment holds, from the numbers in the heads or by counting; None: unknown."""
    if seen.header is None or any(place.kind is Kind.MISSING for place in seen.places):
        return None
    if seen.following is not None:
        return seen.following.first_seq - seen.header.first_seq
    try:
        with closing(files, files.open(seen.path)) as fd:
            pieces = Walker(files, fd, seen.header).frames(seen.first, seen.end, ())
            return sum(isinstance(piece, Frame) for piece in pieces)
    except OSError:
        return None  # `verify` says why
