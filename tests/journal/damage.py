"""Damages journals at random and repairs them: the long form of `test_after_any_damage_what_was_good_is_read`.

python -m tests.journal.damage --seeds 3000        # some 5 s for 1,000 on an ordinary machine
python -m tests.journal.damage --from 1697 --seeds 1
"""

import argparse
import os
import random
import sys
from pathlib import Path

import trio

from jqd.domain import log
from jqd.domain.record import Lane
from jqd.journal.frame import HEAD_BYTES, Frame
from jqd.journal.inspect import Kind, Place, snapshot, walk
from jqd.journal.repair import repair
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, opened, push, read_lane, segments


def said(files: MemoryFiles) -> tuple[list[Place], list[bytes]]:
    """What is wrong with the journal, and the bodies of its frames of lane jobs."""
    places, bodies = list[Place](), list[bytes]()
    for seen in snapshot(files, DIRECTORY):
        places += seen.places
        for piece in walk(files, seen):
            if isinstance(piece, Frame):
                bodies += [piece.body] if piece.kind == Lane.JOBS else []
            else:
                places.append(piece)
    return places, bodies


async def starts_with(files: MemoryFiles, bodies: list[bytes]) -> None:
    """A daemon starts, complains of nothing, reads all of it and goes on."""
    async with opened(files, ManualClock(wall_ms=1_900_000_000_000)) as journal:
        assert journal.stats().damaged == []
        assert await read_lane(journal) == bodies
        await push(journal, b"new")
        assert await read_lane(journal) == [b"new"]
        assert journal.stats().damaged == []


async def random_journal(source: random.Random) -> MemoryFiles:
    files = MemoryFiles()
    for _ in range(source.randint(1, 5)):
        async with opened(files, segment_bytes=source.choice([300, 3_000])) as journal:
            for _ in range(source.randint(0, 6)):
                for _ in range(source.randint(1, 3)):
                    journal.write(Lane.JOBS, 1, source.randbytes(source.choice([1, 7, 600, 5_000])))
                await journal.wsync()
    return MemoryFiles.holding(files.contents)


def hurt(files: MemoryFiles, source: random.Random) -> None:
    """Something that happens to files on a disk."""
    path = source.choice(segments(files))
    content = files.files[path].content
    at = source.randrange(len(content)) if content else 0
    match source.randrange(8):
        case 0:
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        case 1:
            content[:HEAD_BYTES] = source.randbytes(len(content[:HEAD_BYTES]))
        case 2:
            del content[at:]
        case 3:
            content += source.randbytes(source.randint(1, 2_000))
        case 4 if len(segments(files)) > 2:  # the first and the last may be missed by nobody
            del files.files[source.choice(segments(files)[1:-1])]
        case 5:
            content[at : at + 300] = content[:300][: len(content[at : at + 300])]
        case _ if content:
            content[at] ^= 1 << source.randrange(8)


async def damage_and_repair(seed: int) -> None:
    """One walk: whatever happens to a journal, what was good stays good, and what is lost is said."""
    source = random.Random(seed)
    files = await random_journal(source)
    whole = said(files)[1]
    for _ in range(source.randint(1, 6)):
        hurt(files, source)
    files = MemoryFiles.holding(files.contents)
    places, good = said(files)
    assert set(good) <= set(whole), "something was read that was never written"
    if set(good) != set(whole):
        assert places, "something is lost, and nobody says so"
    repair(files, DIRECTORY)
    assert [place for place in said(files)[0] if place.kind is not Kind.VOID] == []
    after = said(files)[1]
    assert set(good) <= set(after) <= set(whole)
    assert repair(files, DIRECTORY) == []
    await starts_with(files, after)


def main() -> int:
    """Walk through many seeds; name the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many walks")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    with Path(os.devnull).open("w") as nowhere:
        log.configure(level="error", stream=nowhere)  # damage is what this is about
        for seed in range(options.first, options.first + options.seeds):
            try:
                trio.run(damage_and_repair, seed)
            except BaseException as error:
                error.add_note(f"seed {seed}; again with: python -m tests.journal.damage --from {seed} --seeds 1")
                raise
    sys.stdout.write(f"{options.seeds} walks from seed {options.first} on: nothing good was lost\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
