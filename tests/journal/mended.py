"""A journal of several lives, damaged, and mended."""

from jqd.journal.inspect import Kind
from jqd.journal.repair import repair
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, opened, push, segments
from tests.journal.damage import said, starts_with

BODIES = [b"body %d " % number + b"x" * 40 for number in range(12)]
FRAME = 44 + len(BODIES[0])


async def filled(*lives: int, files: MemoryFiles | None = None) -> MemoryFiles:
    """A disk on which each life wrote so many of BODIES, one commit each."""
    files = files or MemoryFiles()
    bodies = iter(BODIES)
    for number in lives:
        async with opened(files) as journal:
            await push(journal, *[next(bodies) for _ in range(number)])
    return files


def kept(files: MemoryFiles) -> bytes:
    """What lies beside, all together."""
    return b"".join(content for path, content in sorted(files.contents.items()) if path.suffix in (".torn", ".kept"))


async def mended(files: MemoryFiles, bodies: list[bytes]) -> list[str]:
    """Repair it; holds it to every promise. Returns what it said."""
    for file in files.files.values():
        file.sync()  # however a test made its damage, it is on the disk
    before = files.contents
    planned = repair(files, DIRECTORY, dry_run=True)
    assert {path: content for path, content in files.contents.items() if path.name != "lock"} == {
        path: content for path, content in before.items() if path.name != "lock"
    }
    done = repair(files, DIRECTORY)
    assert [line.partition(":")[0] for line in planned] == [line.partition(":")[0] for line in done]
    assert files.open_descriptors == 0
    assert [place for place in said(files)[0] if place.kind is not Kind.VOID] == []
    assert said(files)[1] == bodies
    after = files.contents
    assert repair(files, DIRECTORY) == []
    assert files.contents == after
    assert {path: file.synced for path, file in files.files.items() if path.name != "lock"} == {
        path: content for path, content in after.items() if path.name != "lock"
    }
    await starts_with(files, bodies)
    return done


def flip(files: MemoryFiles, segment: int, *offsets: int) -> None:
    content = files.files[segments(files)[segment]].content
    for offset in offsets:
        content[offset] ^= 0x10


async def read_end(files: MemoryFiles) -> bytes:
    return said(files)[1][-2]  # the last but what `starts_with` pushed
