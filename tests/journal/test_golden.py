"""A journal of format version 1, byte for byte: what jqd 0.1 writes.

`golden/1` has every kind of frame, a place that a power cut tore inside a commit and recovery sealed, a change of the
journal's id, and a torn tail. Until 0.1 is released a change of the format writes it anew
(`python -m tests.journal.test_golden`); after that it needs a new version and a directory of its own.
"""

import hashlib
from pathlib import Path

import msgspec
import trio
from msgspec import Raw

from jqd.domain.job import Change, ChangeKind, Fate, Job, Outcome
from jqd.domain.record import (
    Head,
    Lane,
    decode_cancels,
    decode_jobs,
    decode_outcomes,
    decode_rules,
    encode_cancels,
    encode_jobs,
    encode_outcomes,
    encode_rules,
)
from jqd.domain.settings import Setting
from jqd.journal import JournalConfig, open_journal
from jqd.journal.frame import HEAD_BYTES, TORN_KIND, Frame
from jqd.journal.recover import recover
from jqd.journal.segment import Walker, first_of
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, read_lane, segments

GOLDEN = Path(__file__).parent / "golden" / "1"
AT_MS = 1_800_000_000_000
FIRST = "01MCZ9KC00" + "0" * 16
SECOND = "01MCZ9KC00" + "0001" + "0" * 12
PUSHED = b"\x92\x82\xa4name\xa1a\xa8argument\x01\x82\xa4name\xa1b\xa8priority\xff"  # two jobs, as a pusher wrote them
JOBS = encode_jobs(Head(FIRST, AT_MS, {1: AT_MS + 5}), PUSHED)
ENDED = Outcome(FIRST, 7, Fate.SUCCEEDED, "a", 0, 1, message="done", result=b"\x02", keep_result=True, generation=5)
ENDED = msgspec.structs.replace(ENDED, snoozes=2, interruptions=3, log="said", follows=b"\xa0\x91\x81\xa4name\xa1c")
OUTCOMES = encode_outcomes([ENDED])
CANCELS = encode_cancels([SECOND])
SAID = Setting("worker", "w", 1_800_000_000_000 << 10, AT_MS, Raw(b"\x05"))
RULES = encode_rules([SAID])
CHANGES = encode_jobs(Head(FIRST, AT_MS, {}, {0: (SECOND, 9, 0, ChangeKind.EDIT)}), b"\x91\x81\xa4name\xa1b")


async def build() -> dict[Path, bytes]:
    """The directory as this code writes it, with given ids and dates."""
    files, clock, drawn = MemoryFiles(), ManualClock(wall_ms=AT_MS), 0

    def random_bytes(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.sha256(b"%d" % drawn).digest()[:size]

    for journal_id, last in ((b"first journal id", b"torn sector"), (b"second id of it.", b"torn tail")):
        async with open_journal(
            JournalConfig(directory=DIRECTORY),
            clock=clock,
            files=files,
            journal_id=journal_id,
            random_bytes=random_bytes,
        ) as journal:
            await journal.wsync(journal.write(Lane.JOBS, 2, JOBS))
            clock.advance(1)
            journal.write(Lane.OUTCOMES, 1, OUTCOMES)
            journal.write(Lane.CHANGES, 1, CHANGES)
            journal.write(Lane.RULES, 1, RULES)
            journal.write(Lane.JOBS, 1, last)
            await journal.wsync(journal.write(Lane.CANCELS, 1, CANCELS))
        content = files.files[segments(files)[-1]].content
        if last == b"torn sector":
            content[content.index(last)] ^= 0xFF
        else:
            content[content.index(last) :] = last[:4]
    return files.contents


def golden() -> dict[Path, bytes]:
    """What lies in the repository."""
    return {DIRECTORY / path.name: path.read_bytes() for path in sorted(GOLDEN.iterdir())}


def of_segments(contents: dict[Path, bytes]) -> dict[str, bytes]:
    """The segments by name: the lock holds a process id."""
    return {path.name: content for path, content in contents.items() if first_of(path.name) is not None}


async def test_the_writer_still_makes_these_very_bytes() -> None:
    assert of_segments(await build()) == of_segments(golden())


async def test_what_was_written_once_is_read_back_exactly() -> None:
    files = MemoryFiles.holding(golden())
    async with open_journal(JournalConfig(directory=DIRECTORY), clock=ManualClock(), files=files) as journal:
        jobs, outcomes, cancels, changes, settings = [await read_lane(journal, lane) for lane in Lane]
        assert journal.stats().damaged == []
        assert journal.journal_id == b"second id of it.".hex()
    assert (jobs, cancels) == ([JOBS] * 2, [CANCELS])
    assert [decode_rules(body) for body in settings] == [[SAID]] * 2
    assert changes == [CHANGES] * 2
    changed = Job(SECOND, "b", created_at_ms=AT_MS, change=Change(9, 0, ChangeKind.EDIT))
    assert [decode_jobs(body) for body in changes] == [[changed]] * len(changes)
    one, two = decode_jobs(jobs[0])
    assert one == Job(FIRST, "a", b"\x01", created_at_ms=AT_MS)
    assert two == Job(SECOND, "b", priority=-1, created_at_ms=AT_MS, eligible_at_ms=AT_MS + 5)
    assert [decode_outcomes(body) for body in outcomes] == [[ENDED]] * 2
    assert decode_cancels(cancels[0]) == [SECOND]
    (torn,) = [content for path, content in files.contents.items() if path.suffix == ".torn"]
    assert torn.endswith(b"torn")


def test_it_has_every_kind_a_change_of_id_and_a_torn_tail() -> None:
    files = MemoryFiles.holding(golden())
    kinds, ids, sizes = [], [], []
    for segment in recover(files, DIRECTORY).segments:
        fd = files.open(segment.path)
        pieces = list(Walker(files, fd, segment.header).frames(segment.first, segment.end))
        kinds += [piece.kind for piece in pieces if isinstance(piece, Frame)]
        assert all(isinstance(piece, Frame) for piece in pieces)
        ids.append((segment.header.before, segment.header.journal_id))
        sizes.append(len(golden()[segment.path]) - HEAD_BYTES - segment.size)
    assert {*kinds} == {TORN_KIND, *Lane}
    assert ids == [(bytes(16), b"first journal id"), (b"first journal id", b"second id of it.")]
    assert sizes == [0, 44 + 4]  # a header and four bytes of the body that stood behind it


if __name__ == "__main__":
    for name, content in of_segments(trio.run(build)).items():
        (GOLDEN / name).write_bytes(content)
