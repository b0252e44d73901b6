"""Real disks that fail under a real daemon: full, cut off, read-only, limited, gone. Refused in words, nothing lost.

While the journal refuses, what it holds is ingested and dispatched as ever; when the disk is well again, pushes are
taken again by themselves, except where only a person can mend it.
"""

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import trio

from jqd.client import Client
from tests.crash import mounts
from tests.crash.powercut import read_jobs
from tests.directories import short_directory
from tests.live.harness import Daemon, Worker
from tests.live.test_crash import wait_all_ended
from tests.valkey import Valkey, valkey

ANSWER_S = 5.0  # for an answer that takes milliseconds; a journal that hangs instead of refusing fails here
MIB = 1 << 20

pytestmark = pytest.mark.timeout(120)
needs_mounts = pytest.mark.skipif(mounts.why_not() is not None, reason=mounts.why_not() or "")
NO_LOOP = mounts.why_not("losetup", "mkfs.ext4", "e2fsck")
needs_loop = pytest.mark.skipif(NO_LOOP is not None, reason=NO_LOOP or "")


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


class Pusher:
    """Pushes one job after another; notes what was acknowledged, and every other answer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: dict[str, int] = {}
        self.number = 0

    def push(self, size: int = 0) -> httpx2.Response:
        """One job with `size` bytes more than it needs."""
        self.number += 1
        job = {"name": "square", "argument": {"n": self.number, "pad": "x" * size}, "keep_result": True}
        answer = httpx2.post(f"{self.url}/v1/jobs", json=job, headers={"accept": "application/json"}, timeout=ANSWER_S)
        if answer.status_code == 201:
            self.acknowledged[answer.json()["job_id"]] = self.number
        return answer

    def push_until(self, status: int, size: int = 0, pushes_max: int = 500) -> httpx2.Response:
        """Push until that answer comes; anything but that and 201 is wrong."""
        for _ in range(pushes_max):
            answer = self.push(size)
            assert answer.status_code in (201, status), answer.text
            if answer.status_code == status:
                return answer
        raise AssertionError(f"{pushes_max} pushes and never a {status}")


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # watches a process of its own


@contextmanager
def daemon_on(base: Path, journal: Path, server: Valkey) -> Iterator[Daemon]:
    with Daemon(base / "d", "--store", server.url, env={"JQD_JOURNAL__DIRECTORY": str(journal)}) as daemon:
        yield daemon
        assert daemon.stop() == 0


def applied(pusher: Pusher) -> bool:
    """Whether the store has all that was acknowledged."""
    with Client(pusher.url) as client:
        lane = client.stats()["lanes"]["jobs"]
    return bool(lane["applied"] == lane["end"])


def all_run_as_pushed(pusher: Pusher) -> None:
    wait_all_ended(pusher.url, list(pusher.acknowledged))
    with Client(pusher.url) as client:
        for job_id, number in pusher.acknowledged.items():
            assert client.result(job_id) == {"n": number, "square": number**2}


@needs_mounts
def test_a_full_disk_refuses_with_507_and_takes_and_runs_all_again_when_there_is_room(
    tmp_path: Path, server: Valkey
) -> None:
    with short_directory() as base:
        (base / "m").mkdir()
        with (
            mounts.tmpfs(base / "m", "16m") as disk,
            daemon_on(base, disk / "journal", server) as daemon,
            Worker(tmp_path / "book", daemon.url) as worker,
        ):
            daemon.wait_worker("square")  # on a full disk nobody registers
            pusher = Pusher(daemon.url)
            ballast = disk / "ballast"
            room = os.statvfs(disk)
            ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 300_000))
            refused = pusher.push_until(507, size=20_000)
            assert "free some disk space" in refused.text
            assert daemon.get("/readyz/push").status_code == 503
            # What was acknowledged is ingested all the same. It starts when its outcome can be written.
            wait_for(lambda: applied(pusher), "a full disk stops ingest")
            assert "no job is started" in daemon.get("/readyz").json()["run"]["reason"]
            assert pusher.push().status_code == 507
            ballast.unlink()
            wait_for(lambda: daemon.get("/readyz/push").status_code == 200, "it does not resume")
            assert pusher.push().status_code == 201
            all_run_as_pushed(pusher)
            assert set(worker.starts()) == set(pusher.acknowledged)
            assert worker.stop() == 0


@needs_loop
def test_a_disk_whose_syncs_fail_loses_nothing_it_acknowledged(server: Valkey) -> None:
    """ext4 believes in more room than is behind it: writes are taken, and their sync fails."""
    with short_directory() as base:
        back, place, image = base / "b", base / "m", base / "b" / "image"
        for path in (back, place):
            path.mkdir()
        with mounts.tmpfs(back, "10m"):
            image.touch()
            os.truncate(image, 64 * MIB)
            with mounts.loop_device(image) as device, mounts.requests_of_one_page(device):
                mounts.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", device)
                with (
                    mounts.mounted(device, place),
                    Daemon(
                        base / "d", "--store", server.url, env={"JQD_JOURNAL__DIRECTORY": str(place / "journal")}
                    ) as daemon,
                ):
                    pusher = Pusher(daemon.url)
                    pusher.push_until(507, size=300_000)  # Linux says ENOSPC here, where one would expect EIO
                    assert pusher.acknowledged
                    for size in (300_000, 0, 0, 0, 300_000):
                        # The next sync of that file would say yes and lie: whatever is acknowledged now is compared.
                        assert pusher.push(size).status_code in (201, 503, 507)
                    daemon.kill()
                # Only what reached the disk counts: the page cache went with the mount, and now there is room.
                mounts.run("mount", "-o", "remount,size=80m", str(back))
                mounts.run("sh", "-c", f"e2fsck -fy {device} >&2 || test $? -le 1")
                with mounts.mounted(device, place):
                    found = dict(trio.run(read_jobs, place / "journal"))
    assert {job_id: found.get(job_id) for job_id in pusher.acknowledged} == pusher.acknowledged
    assert len(found) <= pusher.number


@needs_loop
def test_a_disk_that_turned_read_only_refuses_with_503_and_loses_nothing(server: Valkey) -> None:
    with short_directory() as base:
        image, place = base / "image", base / "m"
        place.mkdir()
        image.touch()
        os.truncate(image, 32 * MIB)
        with mounts.loop_device(image) as device:
            mounts.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", device)
            with mounts.mounted(device, place), daemon_on(base, place / "journal", server) as daemon:
                pusher = Pusher(daemon.url)
                for _ in range(5):
                    assert pusher.push().status_code == 201
                mounts.run("mount", "-o", "remount,abort", str(place))  # as ext4 itself does after an error
                pusher.push_until(503)
                assert pusher.push().status_code == 503
                wait_for(lambda: applied(pusher), "reading stopped with writing")
            with mounts.mounted(device, place):
                found = dict(trio.run(read_jobs, place / "journal"))
    assert {job_id: found.get(job_id) for job_id in pusher.acknowledged} == pusher.acknowledged


def test_a_limit_on_the_size_of_files_refuses_and_ends_with_the_limit(tmp_path: Path, server: Valkey) -> None:
    with (
        short_directory() as base,
        daemon_on(base, base / "journal", server) as daemon,
        Worker(tmp_path / "book", daemon.url) as worker,
    ):
        pusher = Pusher(daemon.url)
        assert pusher.push().status_code == 201
        pid = daemon.child.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4_096, before[1]))
        refused = pusher.push_until(503)
        assert "EFBIG" in refused.text
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        wait_for(lambda: daemon.get("/readyz/push").status_code == 200, "it does not resume")
        assert pusher.push().status_code == 201
        all_run_as_pushed(pusher)
        assert worker.stop() == 0


def test_a_deleted_directory_refuses_until_a_restart_and_what_was_ingested_lives_on(server: Valkey) -> None:
    with short_directory() as base:
        with daemon_on(base, base / "journal", server) as daemon:
            pusher = Pusher(daemon.url)
            assert pusher.push().status_code == 201
            wait_for(lambda: applied(pusher), "not ingested")
            shutil.rmtree(base / "journal")
            for _ in range(3):
                assert pusher.push().status_code == 503
            with Client(daemon.url) as client:
                assert client.get(next(iter(pusher.acknowledged))).state in ("waiting", "running", "succeeded")
        with daemon_on(base, base / "journal", server) as daemon:
            again = Pusher(daemon.url)
            assert again.push().status_code == 201
