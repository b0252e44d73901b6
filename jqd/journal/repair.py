"""Mends a journal directory that no daemon uses: afterwards it is whole, and every good frame is still read.

    found                             done
    one bad copy of a head            written anew from the other
    both copies bad                   a head that makes the frames good again; if a start has passed over the segment,
                                      only `jqd journal replay` applies it
    bad bytes before good frames      sealed: made frames of a kind that nobody reads
    frames that are missing           the next head no longer says that there were any
    a torn tail                       cut, as the next start would
    *.jqd.new, *.damaged              removed, renamed *.kept

Bytes that are overwritten or cut are first copied durably to another file. The repair plans before it changes anything,
so a directory that it refuses stays as it was. After an interruption it can be run again; a second run changes nothing.

A lost head is recovered from the frames behind it. Both checksums of a frame start from the CRC-32 of the segment's id,
so without the id no frame can be checked. But a CRC can be run backwards: from the checksum of a frame header, over its
bytes and its position, to the CRC that it started from. Any id with that CRC makes all frames of the segment good
again, and no others. Every frame of the segment leads to the same CRC; frames of another segment inside a payload lead
to another one, which makes fewer frames good.
"""

import os
import shlex
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from jqd.domain.errors import JournalDamaged, JournalRefused, JournalVersion
from jqd.journal.files import Files, closing, holding
from jqd.journal.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEAD_BYTES,
    HEADER_COPY_BYTES,
    TORN_KIND,
    Frame,
    SegmentHeader,
    pack_head,
)
from jqd.journal.inspect import Kind, Place, SegmentView, snapshot, walk
from jqd.journal.segment import DAMAGED, NEW, SUFFIX, TORN, WINDOW_BYTES, Gap, Walker, copy_damaged, seal

VOTES_MAX = 1_000  # places that look like a frame; those of one segment agree, so a few would do
CANDIDATES_MAX = 3  # each is tried on the whole segment
_SUM_AT, _SUMMED_FROM = 4, 8  # of a frame header, as frame.py draws it
_MASK = 0xFFFF_FFFF
KEPT = ".kept"
PLACES_MAX = 16  # with more of them a segment is kept whole, not piece by piece


def repair(
    files: Files,
    directory: Path,
    under: str = "",
    *,
    dry_run: bool = False,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> list[str]:
    """Mend the directory; return a sentence for each change. `under`: a text put before names, as in `snapshot`.
    `dry_run`: change nothing, return what would be done.

    Raises JournalLocked while a daemon uses it; JournalVersion for another format, JournalDamaged for segments of
    another journal, JournalRefused for a disk that fails. Nothing was changed then, unless the disk failed midway."""
    try:
        files.names(directory)  # raises if there is none, for the next line would make it
        with holding(files, directory):
            planned = _Mender(files, directory, under, random_bytes, dry_run=True).run()
            if dry_run or not planned:
                return planned
            return _Mender(files, directory, under, random_bytes, dry_run=False).run()
    except OSError as error:
        raise JournalRefused(
            f"the journal in {directory} cannot be repaired: {error}. What it held is kept; mend the disk, or copy the "
            "directory to another one, and run this again",
            full=False,
        ) from error


class _Mender:
    """Mends, or plans to mend, the segments of a directory, oldest first."""

    def __init__(
        self, files: Files, directory: Path, under: str, random_bytes: Callable[[int], bytes], *, dry_run: bool
    ) -> None:
        self._files, self._directory, self._under, self._random_bytes = files, directory, under, random_bytes
        self._dry = dry_run
        self._done: list[str] = []
        self._end: int | None = None  # where the last mended segment ends
        self._names = set(files.names(directory))
        self._renamed = set[str]()  # *.damaged files that get their first name back

    def run(self) -> list[str]:
        segments = snapshot(self._files, self._directory)
        for seen in segments:
            for place in seen.places:
                _refuse(place)
        mended = [seen for seen in segments if not any(place.kind is Kind.KEPT for place in seen.places)]
        like: SegmentHeader | None = next((seen.header for seen in mended if seen.header is not None), None)
        for seen in mended:
            like = self._segment(seen, like, last=seen is mended[-1])
        self._tidy()
        return self._done

    def _segment(self, seen: SegmentView, like: SegmentHeader | None, *, last: bool) -> SegmentHeader:
        """Mend one segment; return its head. `like`: the head of another segment, which has the journal's id; None: no
        head is good. `last`: whether this is the newest segment, whose torn tail is cut."""
        lost = seen.header is None
        header = self._head(seen, like)
        seen.header = header
        places, anything_good = list[Place](), False
        for piece in walk(self._files, seen):
            if isinstance(piece, Frame):
                anything_good = True
            else:
                _refuse(piece)
                places.append(piece)
        self._end = seen.end
        whole = self._keep(seen.path, 0, seen.size, "whole") if len(places) > PLACES_MAX else None
        for place in places:
            start = place.offset - HEAD_BYTES + seen.first
            short = place.size <= FRAME_HEADER_BYTES  # part of a frame at the end of the file: no seal fits
            if place.kind is Kind.TORN and (anything_good or short or not lost):
                self._end = start  # as a rule not acknowledged; unless `last`, the next head leaves it out
                if last:
                    self._cut(seen, place, start)
            elif short:
                self._end = start
            else:
                self._seal(seen, header, place, start, whole)
        return header

    # ------------------------------------------------------------ heads

    def _head(self, seen: SegmentView, like: SegmentHeader | None) -> SegmentHeader:
        """Return the head that the segment should have; write it if the file has another one. `like`: see
        `_segment`."""
        header, why = seen.header, "one copy of its head was bad: written anew from the other"
        if header is None:
            header, why = self._found(seen, like)
        if self._end is not None and header.previous_end > self._end:
            why = f"frames before it are lost, so its head says now that they end at position {self._end}"
            header = header._replace(previous_end=self._end)
        pages = pack_head(header)
        if pages == seen.head:
            return header
        kept = self._keep(seen.path, 0, min(HEAD_BYTES, seen.size), "head")
        self._note_done(seen.path, f"{why}; what stood there is kept as {kept}")
        if not self._dry:
            with self._writing(seen.path) as fd:
                for at in range(0, HEAD_BYTES, HEADER_COPY_BYTES):
                    self._files.overwrite(fd, pages[at : at + HEADER_COPY_BYTES], at)
                    self._files.sync(fd)  # so at any time one copy is good
        if seen.path.suffix == DAMAGED:
            self._renamed.add(seen.path.name)
            if not self._dry:
                self._files.rename(seen.path, seen.path.with_suffix(SUFFIX))
                self._files.sync_directory()
                seen.path = seen.path.with_suffix(SUFFIX)
        return header

    def _found(self, seen: SegmentView, like: SegmentHeader | None) -> tuple[SegmentHeader, str]:
        """Return a head for a segment that lost both copies, and a sentence that explains it. `like`: see
        `_segment`."""
        end = seen.first if self._end is None else self._end
        blank = SegmentHeader(self._random_bytes(16), b"", seen.first, end, 1, 0)
        header = found_head(self._files, seen, like or blank, self._random_bytes)
        why = "its head was lost, and made anew from its frames"
        if header is not None and seen.path.suffix == DAMAGED:
            name = f"{self._under}{seen.path.with_suffix(SUFFIX).name}"
            why += f". Starts have passed over it, so apply it now: jqd journal replay --segment {shlex.quote(name)}"
        elif header is None:
            header = (like or blank)._replace(segment_id=self._random_bytes(16), first=seen.first)
            why = "its head was lost, and no frame in it is good"
        if like is None:
            why += ". The journal's id is lost too: a store takes it for a new journal, and knows its jobs by their ids"
        return header._replace(previous_end=end), why

    # ------------------------------------------------------------ frames

    def _seal(self, seen: SegmentView, header: SegmentHeader, place: Place, start: int, kept: str | None) -> None:
        kept = kept or self._keep(seen.path, place.offset, place.size, str(start))
        self._note_done(seen.path, f"byte {place.offset}: {place.kind}, {place.size} bytes: kept as {kept}, sealed")
        if self._dry:
            return
        with self._writing(seen.path) as fd:
            seal(self._files, fd, header, Gap(start, start + place.size))
            self._files.sync(fd)

    def _cut(self, seen: SegmentView, place: Place, start: int) -> None:
        kept = self._keep(seen.path, place.offset, place.size, str(start))
        self._note_done(seen.path, f"byte {place.offset}: {place.kind}, {place.size} bytes: kept as {kept}, cut")
        if not self._dry:
            with self._writing(seen.path) as fd:
                self._files.truncate(fd, place.offset)
                self._files.sync(fd)

    # ------------------------------------------------------------ files

    def _tidy(self) -> None:
        for name in sorted(self._files.names(self._directory)):
            path = self._directory / name
            if name.endswith(NEW):
                self._note_done(path, "a segment that was never begun: removed")
                if not self._dry:
                    self._files.unlink(path)
            elif name.endswith(DAMAGED) and name not in self._renamed:
                self._put_away(path)
        if not self._dry:
            self._files.sync_directory()

    def _put_away(self, path: Path) -> None:
        """Remove a *.damaged file if it is a second name of a segment, else rename it: later starts ignore it."""
        segment = path.with_suffix(SUFFIX)
        with closing(self._files, self._files.open(path)) as fd:
            is_segment = self._files.in_place(fd, segment)
        kept = self._free(path.stem, KEPT)
        if is_segment:
            self._note_done(path, "a second name of a segment: removed")
        else:
            self._note_done(path, f"kept as {kept}: look at it, then delete it")
        if not self._dry:
            if is_segment:
                self._files.unlink(path)
            else:
                self._files.rename(path, self._directory / kept)

    def _keep(self, path: Path, offset: int, size: int, label: str) -> str:
        """Copy bytes of a file durably to a new file beside it; return the name of that copy."""
        name = self._free(f"{path.stem}-{label}", TORN)
        if not self._dry:
            copy_damaged(self._files, path, self._directory / name, offset, size)
        return name

    def _free(self, stem: str, suffix: str) -> str:
        """Return a file name that is not taken, so that earlier copies stay."""
        name, number = f"{stem}{suffix}", 1
        while name in self._names:
            number += 1
            name = f"{stem}-{number}{suffix}"
        return name

    def _writing(self, path: Path) -> AbstractContextManager[int]:
        return closing(self._files, self._files.open(path, write=True))

    def _note_done(self, path: Path, done: str) -> None:
        self._done.append(f"{self._under}{path.name}: {done}")


def _refuse(place: Place) -> None:
    """Raise JournalVersion, JournalDamaged or JournalRefused if no repair may touch this place."""
    if place.kind is Kind.VERSION:
        raise JournalVersion(place.note)
    if place.kind is Kind.FOREIGN:
        raise JournalDamaged(
            f"{place.file} does not belong where it lies: {place.note}. Nothing was changed; move it out of the "
            "directory and run this again"
        )
    if place.kind is Kind.UNREADABLE:
        raise JournalRefused(
            f"{place.file} cannot be read from byte {place.offset} on: {place.note}. Nothing was changed; copy what "
            "can be read of the directory to a good disk, and repair that",
            full=False,
        )


def found_head(
    files: Files, seen: SegmentView, like: SegmentHeader, random_bytes: Callable[[int], bytes]
) -> SegmentHeader | None:
    """Return a head for a segment that lost its own, under which most of its frames are good; None if no frame is good.

    The journal's id, which frames do not hold, is taken from `like`."""
    best, most = None, 0
    with closing(files, files.open(seen.path)) as fd:
        for crc in _candidates(files, fd, seen):
            header = like._replace(segment_id=id_with(crc, random_bytes), first=seen.first)
            good, is_first_known = 0, False
            for frame in Walker(files, fd, header).frames(seen.first, seen.end):
                if isinstance(frame, Gap):
                    continue
                good += frame.end - frame.start
                if not is_first_known and frame.kind != TORN_KIND:
                    header = header._replace(first_seq=frame.seq, created_at_ms=frame.at_ms)
                    is_first_known = True
            if good > most:
                best, most = header, good
            if 2 * most > seen.end - seen.first:
                break  # no other candidate can have more
    return best


def id_with(crc: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a segment id whose CRC-32 is `crc`: all but four of its bytes are random."""
    most = random_bytes(12)
    patch = _rolled_back(crc, bytes(4)) ^ zlib.crc32(most)
    return most + patch.to_bytes(4, "little")


def _candidates(files: Files, fd: int, seen: SegmentView) -> list[int]:
    """Return the CRCs from which the checksums of likely frames may have started: the most frequent first."""
    votes: Counter[int] = Counter()
    position = seen.first
    while position < seen.end and votes.total() < VOTES_MAX:
        data = files.read(fd, WINDOW_BYTES, seen.offset(position))
        at = data.find(FRAME_MAGIC)
        while 0 <= at <= len(data) - FRAME_HEADER_BYTES and votes.total() < VOTES_MAX:
            votes[_began_with(data[at : at + FRAME_HEADER_BYTES], position + at)] += 1
            at = data.find(FRAME_MAGIC, at + 1)
        if len(data) < FRAME_HEADER_BYTES:
            break
        position += len(data) - FRAME_HEADER_BYTES + 1  # the next window begins where this one may cut a header
    return [crc for crc, _ in votes.most_common(CANDIDATES_MAX)]


def _began_with(header: bytes, position: int) -> int:
    """Return the CRC-32 of the segment id under which `header` is good at `position`."""
    total = int.from_bytes(header[_SUM_AT:_SUMMED_FROM], "little")
    return _rolled_back(_rolled_back(total, header[_SUMMED_FROM:]), position.to_bytes(8, "little"))


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB8_8320 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
_BY_TOP = {value >> 24: index for index, value in enumerate(_TABLE)}  # the highest bytes are all different


def _rolled_back(crc: int, data: bytes) -> int:
    """Return the value that `zlib.crc32(data, value)` turns into `crc`."""
    register = crc ^ _MASK
    for byte in reversed(data):
        index = _BY_TOP[register >> 24]
        register = (register ^ _TABLE[index]) << 8 & _MASK | index ^ byte
    return register ^ _MASK
