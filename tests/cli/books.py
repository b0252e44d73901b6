"""Journals on a real disk, for the commands that look at them."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from jqd.domain.job import NIL, ChangeKind, Fate, Outcome
from jqd.domain.jobid import ALPHABET, IdSource
from jqd.domain.record import Head, Lane, encode_cancels, encode_jobs, encode_outcomes
from jqd.journal import JournalConfig, open_journal
from jqd.testing.clock import ManualClock

AT_MS = 1_800_000_000_000
WRITTEN_MS = AT_MS + 10_000  # when frames were written, whatever their jobs say
VERIFY = ["journal", "verify", "-o", "jsonl", "--data-dir"]


class Batch(NamedTuple):
    """One frame to write."""

    lane: Lane
    records: int
    body: bytes
    ids: list[str]


class Ids:
    """Gives ids as a journal does, at dates of our choice."""

    def __init__(self, number: int = 7, homes: str = ALPHABET[0]) -> None:
        """`homes`: of the jobs of each frame, from the first on."""
        self._homes = homes
        self._clock = ManualClock(wall_ms=AT_MS)
        self._source = IdSource(journal=number, salt=3, clock=self._clock)

    def jobs(self, *pushed: dict[str, Any], at_ms: int | None = None, **more: Any) -> Batch:
        """A frame of jobs. `more`: what else its head says."""
        self._clock.advance(1)
        given = self._source.take(len(pushed), self._homes[: len(pushed)])
        head = Head(given.first, self._clock.wall_ms() if at_ms is None else at_ms, homes=given.homes, **more)
        return Batch(Lane.JOBS, len(pushed), encode_jobs(head, msgspec.msgpack.encode(pushed)), given.ids())

    def edit(self, job_id: str, job: dict[str, Any], revision: int) -> Batch:
        """A frame of one change."""
        head = Head(self._source.take(1).first, AT_MS, {}, {0: (job_id, revision, 0, ChangeKind.EDIT)})
        return Batch(Lane.CHANGES, 1, encode_jobs(head, msgspec.msgpack.encode([job])), [job_id])


def outcome(job_id: str, fate: Fate, *, attempt: int = 1, fence: int = 1, error: bytes = NIL, **more: Any) -> Outcome:
    """How an attempt of a job of type `t` ended."""
    return Outcome(job_id, fence, fate, "t", 0, attempt, error=error, **more)


def outcomes(*ended: Outcome) -> Batch:
    """A frame of outcomes."""
    return Batch(Lane.OUTCOMES, len(ended), encode_outcomes(ended), [each.job_id for each in ended])


def cancels(*job_ids: str) -> Batch:
    """A frame of cancels."""
    return Batch(Lane.CANCELS, len(job_ids), encode_cancels(job_ids), list(job_ids))


def write(data_dir: Path, *batches: Batch, segment_bytes: int = 64 << 20) -> Path:
    """Write frames, each a commit of its own, to the journal of a data directory in one life; returns its directory."""
    directory = data_dir / "journal"
    trio.run(partial(_write, directory, batches, segment_bytes))
    return directory


def write_other(data_dir: Path, *batches: Batch) -> Path:
    """The same of the second process of `jqd serve --processes`."""
    write(data_dir / "other", *batches)
    return (data_dir / "other" / "journal").rename(data_dir / "journal" / "process-1")


async def _write(directory: Path, batches: Sequence[Batch], segment_bytes: int) -> None:
    config = JournalConfig(directory=directory, segment_bytes=segment_bytes)
    async with open_journal(config, clock=ManualClock(wall_ms=WRITTEN_MS)) as journal:
        for batch in batches:
            await journal.wsync(journal.write(batch.lane, batch.records, batch.body))


def read(directory: Path, lane: Lane = Lane.JOBS) -> list[bytes]:
    """All bodies of a lane, as a daemon that starts there reads them. It must find nothing to complain of."""
    return trio.run(_read, directory, lane)


async def _read(directory: Path, lane: Lane) -> list[bytes]:
    async with open_journal(JournalConfig(directory=directory), clock=ManualClock(wall_ms=AT_MS)) as journal:
        bodies: list[bytes] = []
        while token := journal.read_reserve(lane, 1_000):
            bodies += [piece.body for piece in await journal.read(token) if piece.first == 0]
            journal.rsync(token.lane, token.end)
        assert journal.stats().damaged == []
        return bodies


def flip(path: Path, *offsets: int) -> None:
    """Turn a bit of a file at each of these bytes."""
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset] ^= 1 << offset % 8
    path.write_bytes(content)


def states(directory: Path) -> dict[str, tuple[int, ...]]:
    """All that a look must not change: names, contents by size and date, and the directory itself."""
    found: Iterable[Path] = [directory, *directory.iterdir()]
    return {
        path.name: (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)
        for path in found
        for state in [path.stat()]
    }


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Lines of JSON that a command printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def a_bit_of_everything() -> list[Batch]:
    ids = Ids()
    mail = ids.jobs({"name": "mail", "argument": "hello"}, {"name": "mail", "argument": b"\xff"}, {"name": "log"})
    late = ids.jobs({"name": "log", "argument": {"a": 1}, "priority": 3}, eligible={0: AT_MS + 60_000})
    ended = outcomes(outcome(mail.ids[0], Fate.SUCCEEDED), outcome(mail.ids[1], Fate.RETRY))
    return [mail, late, ended, cancels(late.ids[0])]


def files_of(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "journal").glob("*.jqd"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory whose journal has two segments of some frames each."""
    for _ in range(2):
        write(tmp_path, *a_bit_of_everything())
    return tmp_path
