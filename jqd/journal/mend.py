"""What recovery and repair both do to files: keep bytes aside, and seal what is no frame."""

from pathlib import Path

from jqd.journal.files import Files, closing, read_whole, write_whole
from jqd.journal.frame import FRAME_HEADER_BYTES, HEAD_BYTES, TORN_KIND, SegmentHeader, pack_frame_header
from jqd.journal.segment import Gap

COPY_BYTES = 1 << 20
SEAL_BYTES_MAX = 1 << 20  # of one seal: a reader takes a frame's body whole


def keep_aside(files: Files, source: Path, target: Path, offset: int, size: int) -> None:
    """Copy bytes of `source` durably to `target`. Raises OSError, also when `source` ends before them."""
    with closing(files, files.open(source)) as fd, closing(files, files.create(target)) as out:
        end = offset + size
        while offset < end:
            part = read_whole(files, fd, min(end - offset, COPY_BYTES), offset)
            if not part:
                raise OSError(f"a file ended at byte {offset} while it was read")
            write_whole(files, out, part)
            offset += len(part)
        files.sync(out)
    files.sync_directory()


def seal(files: Files, fd: int, header: SegmentHeader, gap: Gap) -> None:
    """Make frames that nobody reads of bytes that are no frame: only what becomes a header is written over.

    `gap` is larger than a header. Nothing is synced.
    """
    start = gap.start
    while start < gap.end:
        rest = gap.end - start
        size = SEAL_BYTES_MAX if rest > SEAL_BYTES_MAX + FRAME_HEADER_BYTES else rest
        offset = HEAD_BYTES + start - header.first
        body = read_whole(files, fd, size - FRAME_HEADER_BYTES, offset + FRAME_HEADER_BYTES)
        frame = pack_frame_header(
            header.segment_id, start, kind=TORN_KIND, records=1, back=0, seq=0, at_ms=0, body=body
        )
        files.overwrite(fd, frame, offset)
        start += size
