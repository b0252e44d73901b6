"""The real disk: private, locked, and refusing as kernels do."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jqd.domain.clock import SystemClock
from jqd.domain.errors import JournalLocked, JournalRefused
from jqd.journal import Files, JournalConfig, open_journal
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import push, read_lane, until


def config(tmp_path: Path, **settings: object) -> JournalConfig:
    return JournalConfig(directory=tmp_path / "a" / "journal", **{"retry_s": 0.001, **settings})  # type: ignore[arg-type]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_directory_is_made_private_and_read_back_in_a_later_life(tmp_path: Path) -> None:
    settings = config(tmp_path, segment_bytes=100)
    before = descriptors()
    async with open_journal(settings, clock=SystemClock()) as journal:
        await push(journal, b"one" * 30, b"two" * 30, b"three")
        assert await read_lane(journal) == [b"one" * 30, b"two" * 30, b"three"]
        assert settings.directory.stat().st_mode & 0o777 == 0o700
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in settings.directory.iterdir())
    assert descriptors() == before
    async with open_journal(settings, clock=SystemClock()) as journal:
        assert await read_lane(journal) == [b"one" * 30, b"two" * 30, b"three"]
        assert journal.stats().damaged == []


async def test_a_second_daemon_is_told_who_lives_there(tmp_path: Path) -> None:
    async with open_journal(config(tmp_path), clock=ManualClock()):
        before = descriptors()
        with pytest.raises(JournalLocked, match=rf"in use by another daemon \(process {os.getpid()}\)"):
            async with open_journal(config(tmp_path), clock=ManualClock()):
                pass
        assert descriptors() == before
    async with open_journal(config(tmp_path), clock=ManualClock()):
        pass


async def test_a_torn_tail_and_damage_on_a_real_disk(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with open_journal(settings, clock=ManualClock()) as journal:
        await push(journal, b"a", b"b", b"c")
    (path,) = settings.directory.glob("*.jqd")
    with path.open("r+b") as file:
        file.seek(8_192 + 45 + 20)
        file.write(b"\xff")
        file.seek(0, os.SEEK_END)
        file.write(b"torn")
    for _ in range(2):
        async with open_journal(settings, clock=ManualClock()) as journal:
            assert await read_lane(journal) == [b"a", b"c"]
            assert path.with_suffix(".damaged").samefile(path)
            assert path.with_suffix(".damaged").name in " ".join(journal.stats().damaged)
    assert [each.read_bytes() for each in settings.directory.glob("*.torn")] == [b"torn"]


async def test_a_deleted_directory_is_noticed_before_the_next_ack(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with open_journal(settings, clock=ManualClock()) as journal:
        await push(journal, b"a")
        shutil.rmtree(settings.directory)
        with pytest.raises(JournalRefused, match="deleted or replaced"):
            await push(journal, b"b")
        await until(lambda: "lock file" in (journal.refusing or ""))
        shutil.rmtree(settings.directory.parent)
        settings.directory.parent.write_text("a file where the directory was")
        assert "lock file" in (journal.refusing or "")


async def test_a_replaced_directory_is_noticed_before_the_next_ack(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with open_journal(settings, clock=ManualClock()) as journal:
        await push(journal, b"a")
        settings.directory.rename(settings.directory.with_name("moved"))
        shutil.copytree(settings.directory.with_name("moved"), settings.directory)
        with pytest.raises(JournalRefused, match="deleted or replaced"):
            await push(journal, b"b")


async def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("in the way")
    before = descriptors()
    with pytest.raises(JournalRefused, match="cannot be opened"):
        async with open_journal(config(tmp_path), clock=ManualClock()):
            pass
    assert descriptors() == before


async def test_a_lock_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a" / "journal").mkdir(parents=True)
    (tmp_path / "a" / "journal" / "lock").symlink_to("/dev/null")
    with pytest.raises(JournalRefused, match="cannot be opened"):
        async with open_journal(config(tmp_path), clock=ManualClock()):
            pass


def test_a_lock_that_fails_leaves_no_descriptor_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def broken(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", broken)
    before = descriptors()
    with pytest.raises(OSError, match="locks"):
        Files().lock(tmp_path / "lock")
    assert descriptors() == before


def test_a_file_is_written_over_in_its_midst_and_cut(tmp_path: Path) -> None:
    files = Files()
    files.open_directory(tmp_path)
    fd = files.create(tmp_path / "x")
    files.write(fd, [b"abc", b"def"])
    files.close(fd)
    fd = files.open(tmp_path / "x", write=True)
    files.overwrite(fd, b"XY", 2)
    files.truncate(fd, 5)
    assert files.read(fd, 100, 1) == b"bXYe"
    files.close(fd)
    files.release()


def test_a_short_write_in_the_midst_of_a_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: len(data) - 1)
    with pytest.raises(OSError, match="short write"):
        Files().overwrite(0, b"xy", 0)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_an_error_and_is_not_waited_for(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A pipe under the name of a segment hung `jqd journal`, and a start."""
    path = tmp_path / f"{0:020d}.jqd"
    make(path)
    before = descriptors()
    with pytest.raises(OSError, match=path.name):
        Files().open(path)
    assert descriptors() == before


def test_the_disk_in_memory_has_calls_of_its_own_for_all_there_are() -> None:
    calls = {name for name in vars(Files) if not name.startswith("_")}
    assert calls <= set(vars(MemoryFiles)), "else a test would write to the real one"


def run_alone(program: str, *arguments: object) -> str:
    """In a process of its own, whose limits may be lowered."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


COMMON = """
import os, resource, sys, trio
from pathlib import Path
from jqd.domain.clock import SystemClock
from jqd.domain.errors import JournalRefused
from jqd.journal import JournalConfig, open_journal
from jqd.domain.log import configure
from jqd.domain.record import Lane
configure(level="error")
directory = Path(sys.argv[1])

async def push(journal, body):
    await journal.wsync(journal.write(Lane.JOBS, 1, body))
"""


async def test_a_file_size_limit_is_a_short_write_and_then_a_refusal_and_never_an_ack(tmp_path: Path) -> None:
    out = run_alone(
        COMMON
        + """
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))  # taken back for who measures coverage

async def main():
    kept = 0
    async with open_journal(JournalConfig(directory=directory, retry_s=0.01), clock=SystemClock()) as journal:
        refused = 0
        for _ in range(40):
            try:
                await push(journal, os.urandom(9_000))
                kept += 1
            except JournalRefused as error:
                assert "EFBIG" in str(error), error
                refused += 1
                while journal.refusing:
                    await trio.sleep(0.005)
        assert refused == 3, refused
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(kept)

trio.run(main)
""",
        tmp_path,
    )
    async with open_journal(JournalConfig(directory=tmp_path), clock=ManualClock()) as journal:
        assert len(await read_lane(journal)) == int(out) == 37
        assert journal.stats().damaged == []


async def test_no_push_is_refused_when_the_process_has_no_descriptor_left(tmp_path: Path) -> None:
    run_alone(
        COMMON
        + """
async def main():
    async with open_journal(JournalConfig(directory=directory, segment_bytes=100), clock=SystemClock()) as journal:
        await push(journal, b"first")
        hoard = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        try:
            while True:
                hoard.append(os.open("/", os.O_RDONLY))
        except OSError:
            pass
        for n in range(20):
            await push(journal, b"x" * 100)
        assert (journal.stats().segments, journal.stats().refusals) == (1, 0), "the open one takes more"
        try:
            os.open("/", os.O_RDONLY)
        except OSError as error:
            assert error.errno == 24
        else:
            raise AssertionError("there were descriptors left")
    print("ok")

trio.run(main)
""",
        tmp_path,
    )
    async with open_journal(JournalConfig(directory=tmp_path), clock=ManualClock()) as journal:
        assert await read_lane(journal) == [b"first"] + [b"x" * 100] * 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    if mount("-t", "tmpfs", "-o", "size=12m", "tmpfs", place):
        pytest.skip("this test mounts a small tmpfs, which needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=10)


def mount(*arguments: object) -> int:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, timeout=10, check=False)
    return done.returncode


async def test_a_full_disk_refuses_then_resumes_when_there_is_room(small_disk: Path) -> None:
    settings = JournalConfig(directory=small_disk / "journal", retry_s=0.001)
    kept = 0
    async with open_journal(settings, clock=ManualClock()) as journal:
        with pytest.raises(JournalRefused) as refused:  # noqa: PT012
            for _ in range(20):
                await push(journal, bytes([kept]) * 1_000_000)
                kept += 1
        assert refused.value.full
        assert kept > 5
        await until(lambda: "a new segment" in (journal.refusing or ""))
        assert journal.refusing_full
        assert len(await read_lane(journal)) == kept
    async with open_journal(settings, clock=ManualClock()) as journal:
        assert len(await read_lane(journal)) == kept  # a start on a full disk still reads
    assert mount("-o", "remount,size=40m", small_disk) == 0
    async with open_journal(settings, clock=ManualClock()) as journal:
        await push(journal, b"there is room")
        assert len(await read_lane(journal)) == kept + 1


async def test_space_is_given_back_on_a_real_disk(tmp_path: Path) -> None:
    config = JournalConfig(directory=tmp_path, segment_bytes=50)
    async with open_journal(config, clock=ManualClock()) as journal:
        await push(journal, *[b"x" * 56] * 3)
        assert journal.trim(journal.end) == 200
    assert sorted(Files().names(tmp_path)) == [f"{200:020d}.jqd", "lock"]
    async with open_journal(config, clock=ManualClock()) as journal:
        assert (journal.start, journal.end, journal.stats().damaged) == (200, 300, [])
