"""Power cuts at block level: a real daemon's journal on a real ext4, whose device notes every write and every flush.

    jqd serve ──▶ ext4 ──▶ loop ──▶ blocklog: W W F W F …      each 201 notes how long the log was
                                                  ╎ cut
    the image is built again from what was flushed before the cut, and of the later writes any 512-byte sectors

Then it is mounted, the journal is recovered, and every job acknowledged before the cut must be there exactly; what is
there besides must be a job that was pushed, each once, and nothing may look damaged.

    python -m tests.crash.powercut --cuts 10000         some twenty minutes
    python -m tests.crash.powercut --seed 7 --cuts 50   the same cuts of a run with about the same writes
"""

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen

import httpx2
import msgspec
import trio

from jqd.domain.clock import SystemClock
from jqd.domain.record import Lane, decode_jobs
from jqd.journal import JournalConfig, open_journal
from tests.crash import mounts
from tests.crash.blocklog import FLUSH, IMAGE, Op, read_log
from tests.crash.disk import quiet
from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon
from tests.valkey import valkey

DISK_BYTES = 16 << 20  # the smallest on which ext4 has a journal of its own with some room
SECTOR_BYTES = 512
SEGMENT_BYTES = 4_000
PUSHERS = 3  # side by side, so that commits hold several frames
RECOVER_S = 30.0
UNMOUNTABLE_MAX = 0.1  # of the cuts: ext4's own superblock torn in its middle, which no real disk does so often


@dataclass
class Recording:
    """What the device was told, and what the pushers were."""

    ops: list[Op]
    begin: int
    """Index of the first operation after the file system was made and mounted."""
    acknowledged: dict[str, tuple[int, int]]
    """Job id → the number pushed, and the bytes of the log when its 201 came."""
    pushed: int


@dataclass
class Report:
    """What the cuts showed."""

    cuts: int = 0
    unmountable: int = 0
    needed: int = 0
    """Acknowledged jobs that were looked for, over all cuts."""


def why_not() -> str | None:
    """Why this cannot be done here, or None."""
    return mounts.why_not("losetup", "mkfs.ext4", "/dev/fuse")


def record(pushes: int) -> Recording:
    """Push to a real daemon, `pushes` requests, while the log runs; then kill it."""
    with short_directory() as base, ExitStack() as stack:
        log, disk, place = base / "log", base / "f", base / "m"
        for path in (disk, place):
            path.mkdir()
        stack.enter_context(_logged_disk(disk, log))
        device = stack.enter_context(mounts.loop_device(disk / IMAGE))
        mounts.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", device)
        server = stack.enter_context(valkey())
        stack.enter_context(mounts.mounted(device, place))
        mounts.run("sync", "-f", str(place))
        begin = len(read_log(log))
        env = {"JQD_JOURNAL__DIRECTORY": str(place / "journal"), "JQD_JOURNAL__SEGMENT_BYTES": str(SEGMENT_BYTES)}
        with Daemon(base / "d", "--store", server.url, env=env) as daemon:
            book = _push_all(daemon.url, log, pushes)
            daemon.kill()
        ops = read_log(log)
    return Recording(ops, begin, book.acknowledged, book.pushed)


@contextmanager
def _logged_disk(place: Path, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.crash.blocklog", str(place), str(DISK_BYTES), str(log)]
    with Popen(command, stdout=PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "mounted\n"
        with mounts.unmounted_after(place):
            yield


@dataclass
class _Book:
    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    pushed: int = 0
    failed: list[BaseException] = field(default_factory=list)


def _push_all(url: str, log: Path, pushes: int) -> _Book:
    book, lock = _Book(), threading.Lock()

    def run(source: random.Random) -> None:
        with httpx2.Client(base_url=url, timeout=30) as client:
            while True:
                with lock:
                    number, book.pushed = book.pushed, book.pushed + 1
                if number >= pushes:
                    return
                job = {"name": "n", "argument": {"n": number, "pad": "x" * source.choice((0, 100, 1_500))}}
                answer = client.post("/v1/jobs", json=job, headers={"accept": "application/json"})
                at = log.stat().st_size
                assert answer.status_code == 201, answer.text
                book.acknowledged[answer.json()["job_id"]] = (number, at)

    threads = [threading.Thread(target=run, args=(random.Random(k),)) for k in range(PUSHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert len(book.acknowledged) == pushes
    return book


def replay(recording: Recording, cuts: int, seed: int, *, until_s: float = float("inf")) -> Report:
    """Cut so often, compare each time. AssertionError names the seed and the cut."""
    source, report = random.Random(seed), Report()
    ops = recording.ops
    places = sorted(source.randrange(recording.begin, len(ops)) for _ in range(cuts))
    image, flushed = bytearray(DISK_BYTES), 0
    for cut in places:
        if time.monotonic() > until_s:
            break
        flush = max((at for at in range(flushed, cut + 1) if ops[at].kind == FLUSH), default=flushed)
        for op in ops[flushed:flush]:
            image[op.offset : op.offset + len(op.data)] = op.data
        flushed = flush
        after = _torn(image, ops[flushed : cut + 1], source)
        needed = {i: number for i, (number, at) in recording.acknowledged.items() if at <= ops[cut].end}
        report.cuts += 1
        report.needed += len(needed)
        try:
            found = _recovered(after)
            if found is None:
                report.unmountable += 1
                continue
            _compare(found, needed, recording)
        except BaseException as error:
            error.add_note(f"seed {seed}, cut {cut} of {len(ops)} operations")
            raise
    return report


def _torn(image: bytearray, pending: Sequence[Op], source: random.Random) -> bytearray:
    """What a disk with a volatile cache may hold: of each write that was not flushed any sectors, or all, or none."""
    after = bytearray(image)
    share = source.choice((0.0, 0.5, 0.9, 1.0))
    for op in pending:
        for at in range(0, len(op.data), SECTOR_BYTES):
            if source.random() < share:
                after[op.offset + at : op.offset + at + SECTOR_BYTES] = op.data[at : at + SECTOR_BYTES]
    return after


def _recovered(image: bytearray) -> list[tuple[str, int]] | None:
    """Id and number of every job that the journal gives after this cut; None when no file system is there."""
    with short_directory() as base:
        path, place = base / "image", base / "m"
        path.write_bytes(image)
        place.mkdir()
        with mounts.loop_device(path) as device:
            try:
                mounts.run("mount", device, str(place))
            except AssertionError:
                return None
            with mounts.unmounted_after(place):
                if not (place / "journal").is_dir():
                    return []
                with quiet():
                    return trio.run(read_jobs, place / "journal")


async def read_jobs(directory: Path) -> list[tuple[str, int]]:
    """Recover the journal and read it: every job's id, and the number in its argument."""
    found = list[tuple[str, int]]()
    with trio.fail_after(RECOVER_S):
        async with open_journal(JournalConfig(directory=directory), clock=SystemClock()) as journal:
            while token := journal.read_reserve(Lane.JOBS, 1_000):
                for piece in await journal.read(token):
                    for job in decode_jobs(piece.body)[piece.first : piece.stop]:
                        found.append((job.id, msgspec.msgpack.decode(job.argument)["n"]))
                journal.rsync(token.lane, token.end)
            assert [each for each in journal.stats().damaged if "has its full length" not in each] == []  # not acked
    return found


def _compare(found: Sequence[tuple[str, int]], needed: dict[str, int], recording: Recording) -> None:
    there = dict(found)
    assert len(there) == len(found), "a job twice"
    lost = {job_id: number for job_id, number in needed.items() if there.get(job_id) != number}
    assert not lost, f"acknowledged and lost, or changed: {lost}"
    numbers = sorted(there.values())
    assert len(set(numbers)) == len(numbers), "a push twice"
    assert all(0 <= number < recording.pushed for number in numbers), "a job nobody pushed"


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.powercut", description="Power cuts at block level.")
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--pushes", type=int, default=300, help="requests to the daemon that is recorded")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--minutes", type=float, default=60.0, help="no further cut after so long")
    said = parser.parse_args()
    if (reason := why_not()) is not None:
        sys.exit(reason)
    say = sys.stdout.write
    say(f"seed {said.seed}\n")
    until_s = time.monotonic() + 60 * said.minutes
    recording = record(said.pushes)
    flushes = sum(op.kind == FLUSH for op in recording.ops)
    say(f"{len(recording.acknowledged)} pushes, {len(recording.ops)} operations, {flushes} of them flushes\n")
    report = replay(recording, said.cuts, said.seed, until_s=until_s)
    say(f"{report.cuts} cuts, {report.unmountable} left no file system, {report.needed} acknowledged jobs looked for: ")
    say("all there\n")


if __name__ == "__main__":
    main()
