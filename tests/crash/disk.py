"""A small journal whose bytes are then changed, and what recovery and reader make of it."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from jqd.domain.record import Lane
from jqd.journal.frame import HEAD_BYTES
from jqd.journal.reader import Reader, Reservation
from jqd.journal.recover import recover
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, opened, push, segments

SEED = 20_260
Change = Callable[[bytearray], None]


@dataclass
class Built:
    """A journal that was written in one life."""

    contents: dict[Path, bytes]
    paths: list[Path]
    bodies: list[list[bytes]]
    """By segment."""
    ends: list[list[int]]
    """File offset behind each frame, by segment."""

    @property
    def all_bodies(self) -> list[bytes]:
        """In order."""
        return bodies_of(self.bodies)

    def changed(self, which: int, change: Change) -> MemoryFiles:
        """A disk on which `change` was done to one segment."""
        contents = dict(self.contents)
        content = bytearray(contents[self.paths[which]])
        change(content)
        contents[self.paths[which]] = bytes(content)
        return MemoryFiles.holding(contents)


def bodies_of(of_segments: list[list[bytes]]) -> list[bytes]:
    """All bodies of some segments, in order."""
    return [body for bodies in of_segments for body in bodies]


async def build(size: int, *, segment_bytes: int = 1 << 20) -> Built:
    """A journal with about `size` bytes of frames. Bodies are distinct; some contain frames of their own segment."""
    source = random.Random(SEED)
    files, bodies, ends = MemoryFiles(), list[list[bytes]](), list[list[int]]()
    async with opened(files, segment_bytes=segment_bytes) as journal:
        while journal.end < size:
            newest = files.contents[segments(files)[-1]]
            inside = newest[HEAD_BYTES:][-90:] if source.random() < 0.3 else b""
            # Some 80 frames whatever the size, so that a run takes about a millisecond in the long form too.
            body = source.randbytes(source.randint(4, max(60, size // 40))) + inside
            await push(journal, body)
            if len(segments(files)) > len(bodies):
                bodies.append([])
                ends.append([])
            bodies[-1].append(body)
            ends[-1].append(len(files.contents[segments(files)[-1]]))
    return Built(files.contents, segments(files), bodies, ends)


class ReadBack(NamedTuple):
    """What a start found."""

    bodies: list[bytes]
    damaged: list[str]
    end: int


def read_back(files: MemoryFiles) -> ReadBack:
    """Recover and read everything, without a daemon around it: some 100,000 times, so in this thread."""
    with quiet():
        found = recover(files, DIRECTORY)
        reader = Reader(files)
        token = Reservation(Lane.JOBS, 0, found.end, 1 << 30, 1 << 40)
        # Nothing is reserved where nothing is.
        bodies = [piece.body for piece in reader.read(token, found.segments)] if found.end else []
        reader.close()
    assert files.open_descriptors == 0
    return ReadBack(bodies, found.damaged + reader.damaged, found.end)


class quiet:
    """No log lines meanwhile: they would take most of the time."""

    def __enter__(self) -> None:
        self._before = structlog.get_config()["wrapper_class"]
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    def __exit__(self, *_: object) -> None:
        structlog.configure(wrapper_class=self._before)
