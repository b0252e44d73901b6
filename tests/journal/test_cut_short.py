"""A repair that is cut short, at any call and by a power cut: it can be run again, and lost nothing."""

import errno
import random
from contextlib import suppress

import pytest

from jqd.domain.errors import JournalRefused
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES
from jqd.journal.inspect import Kind
from jqd.journal.repair import repair
from tests.harness.files import MemoryFile, MemoryFiles
from tests.journal.conftest import DIRECTORY, no_failure, segments
from tests.journal.damage import said
from tests.journal.mended import BODIES, FRAME, filled, flip


async def damaged_everywhere() -> tuple[MemoryFiles, list[bytes]]:
    """A journal with one of each, and what of it is good."""
    files = await filled(3, 3, 2, 2)
    flip(files, 0, 5, HEAD_BYTES + FRAME + 3)  # a copy of a head, a frame's header
    flip(files, 1, HEAD_BYTES + 2 * FRAME + 50)  # a body, the last one
    flip(files, 2, 5, HEADER_COPY_BYTES + 5)  # both copies of a head
    content = files.files[segments(files)[3]].content
    flip(files, 3, HEAD_BYTES + 50)
    content += b"torn"
    files.files[segments(files)[0].with_suffix(".damaged")] = files.files[segments(files)[0]]
    files = MemoryFiles.holding(files.contents)
    return files, [BODIES[number] for number in (0, 2, 3, 4, 6, 7, 9)]


async def test_interrupted_at_any_call_it_can_be_run_again() -> None:
    whole, bodies = await damaged_everywhere()
    trial = MemoryFiles.holding(whole.contents)
    assert len(repair(trial, DIRECTORY)) == 6
    calls = len(trial.calls)
    assert calls > 100
    for number in range(1, calls + 1):
        files = MemoryFiles.holding(whole.contents)
        files.fail = lambda _, at, number=number: errno.EIO if at == number else None  # type: ignore[misc]
        with suppress(JournalRefused):  # or it went on: some closings do not matter
            repair(files, DIRECTORY)
        files.fail = no_failure
        repair(files, DIRECTORY)
        assert not any(place.kind is not Kind.VOID for place in said(files)[0])
        assert said(files)[1] == bodies


@pytest.mark.parametrize("seed", range(10))
async def test_a_power_cut_in_the_midst_loses_no_good_frame(seed: int) -> None:
    source = random.Random(seed)
    files, bodies = await damaged_everywhere()
    trial = MemoryFiles.holding(files.contents)
    repair(trial, DIRECTORY)
    last = source.randint(1, len(trial.calls))
    files.fail = lambda _, at: errno.EIO if at >= last else None
    with pytest.raises(JournalRefused):
        repair(files, DIRECTORY)
    after = files.crash(source)
    repair(after, DIRECTORY)
    assert not any(place.kind is not Kind.VOID for place in said(after)[0])
    assert said(after)[1] == bodies


class Unlucky(random.Random):
    """Of all that a power cut may leave, the least."""

    def randint(self, a: int, b: int) -> int:
        return a


async def test_nothing_is_overwritten_before_its_copy_is_on_the_disk() -> None:
    files, bodies = await damaged_everywhere()
    looks = 0

    def look(call: str, _: int) -> None:
        nonlocal looks
        if call in ("overwrite", "truncate"):
            looks += 1
            durable = files.crash(Unlucky()).contents
            for path, content in files.contents.items():
                if path.suffix == ".torn":
                    assert durable.get(path) == content

    files.fail = look
    repair(files, DIRECTORY)
    files.fail = no_failure
    assert looks > 5
    durable = files.crash(Unlucky())
    assert {path: content for path, content in durable.contents.items() if path.name != "lock"} == {
        path: content for path, content in files.contents.items() if path.name != "lock"
    }
    assert said(durable)[1] == bodies


async def test_names_made_and_removed_are_on_the_disk_too() -> None:
    files = await filled(2, 2, 2)
    first, lost, last = segments(files)
    files.files[lost].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    files.files[lost.with_suffix(".damaged")] = files.files.pop(lost)
    files.files[last.with_suffix(".damaged")] = MemoryFile(b"a copy")
    files = MemoryFiles.holding(files.contents)
    repair(files, DIRECTORY)
    names = {path.name for path in files.crash(Unlucky()).files}
    assert names >= {first.name, lost.name, last.name, last.with_suffix(".kept").name}
    assert not any(name.endswith(".damaged") for name in names)


class Grudging(MemoryFiles):
    """A disk that gives a part of what it is asked for, as a signal or a network file system may."""

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return super().read(fd, min(size, 1_000), offset)


async def test_short_reads_change_nothing() -> None:
    whole, bodies = await damaged_everywhere()
    files = Grudging.holding(whole.contents)
    assert isinstance(files, Grudging)
    repair(files, DIRECTORY)
    repair(whole, DIRECTORY)
    assert said(files)[1] == bodies
    pieces = {path: content for path, content in whole.contents.items() if path.suffix == ".torn"}
    assert pieces == {path: content for path, content in files.contents.items() if path.suffix == ".torn"}
