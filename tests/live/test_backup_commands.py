"""`jqd backup` of a daemon that runs, and `jqd restore`: all that was acknowledged by then is there again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import redis

from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.client import Client
from jqd.domain.errors import StoreAway, StoreRefused
from jqd.store import StoreConfig, copy_rdb
from jqd.store.rdb import _received
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, Worker
from tests.valkey import Valkey, valkey

WAIT_S = 30.0  # for jobs to end on a busy machine
ON_A_SERVER = pytest.mark.parametrize("own", [True, False], ids=["own store", "named server"])


def push(client: Client, jobs: int) -> list[str]:
    return client.push_many([{"name": "square", "argument": {"n": n}} for n in range(jobs)])


@ON_A_SERVER
def test_a_daemon_that_was_killed_and_lost_its_disk_comes_back(own: bool, tmp_path: Path) -> None:
    with short_directory() as base, valkey() as server:
        at = [] if own else ["--store", server.url]
        with Daemon(base / "d", *at, env=LEASE) as daemon, Client(daemon.url) as client:
            with Worker(tmp_path / "one", daemon.url) as worker:
                ended = push(client, 20)
                client.wait(ended, timeout=WAIT_S)
                assert worker.stop() == 0
            waiting = push(client, 20)
            assert client.cancel(waiting[0])
            words = ["backup", str(base / "copy"), "--data-dir", str(base / "d"), *at]
            assert run(words) == 0
            assert run(words) == Exit.USAGE, "a backup is never written over"
            push(client, 5)
            daemon.kill()
        words = ["restore", str(base / "copy"), "--data-dir", str(base / "new")]
        new = Valkey(base / "server")
        assert run(words if own else [*words, "--store-dir", str(new.directory)]) == 0
        if not own:
            new.start()
        try:
            with Daemon(base / "new", *([] if own else ["--store", new.url]), env=LEASE) as daemon:
                with Client(daemon.url) as client, Worker(tmp_path / "two", daemon.url) as worker:
                    infos = client.wait([*ended, *waiting], timeout=WAIT_S)
                    assert [info.state for info in infos] == [*["succeeded"] * 20, "cancelled", *["succeeded"] * 19]
                    assert set(worker.starts()) == set(waiting[1:]), "what had ended does not run again"
                    assert worker.stop() == 0
                assert daemon.stop() == 0
        finally:
            new.kill()


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A backup as far as its files go."""
    (tmp_path / "copy" / "journal").mkdir(parents=True)
    (tmp_path / "copy" / "journal" / "a").write_bytes(b"four")
    (tmp_path / "copy" / "store-0.rdb").write_bytes(b"REDIS")
    made: dict[str, Any] = {"format": 1, "at": None, "own_store": True, "stores": ["store-0.rdb"], "journal": {"a": 4}}
    (tmp_path / "copy" / "backup.json").write_text(json.dumps(made))
    return tmp_path / "copy"


def test_a_backup_is_put_where_nothing_is(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["restore", str(whole), "--data-dir", str(tmp_path / "d")]
    assert run([*words, "--journal-only", "--store-dir", "x"]) == Exit.USAGE
    assert "there are 0 servers to put back" in capsys.readouterr().err
    assert run(words) == 0
    assert run(words) == Exit.USAGE
    assert "has a journal already" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "d" / "journal")
    assert run(words) == Exit.USAGE
    assert "a server has data there" in capsys.readouterr().err
    assert run([*words, "--journal-only"]) == 0
    assert (tmp_path / "d" / "journal" / "a").read_bytes() == b"four"


def test_what_is_no_whole_backup_is_not_put_back(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["restore", str(whole), "--data-dir", str(tmp_path / "d")]
    (whole / "journal" / "a").write_bytes(b"fou")
    assert run(words) == Exit.USAGE
    assert "a has another size" in capsys.readouterr().err
    (whole / "backup.json").write_text((whole / "backup.json").read_text().replace('"format": 1', '"format": 2'))
    assert run(words) == Exit.USAGE
    assert "made by another release" in capsys.readouterr().err
    (whole / "backup.json").unlink()
    assert run(words) == Exit.USAGE
    assert "is no whole backup" in capsys.readouterr().err


def test_without_a_daemon_there_is_nothing_to_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path)]) == Exit.USAGE
    assert "is no journal of a daemon" in capsys.readouterr().err
    (tmp_path / "journal").mkdir()
    assert run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path)]) == Exit.USAGE
    assert "own store does not run" in capsys.readouterr().err
    assert run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path), "--store", "redis://127.0.0.1:9"]) == 4
    words = ["backup", "/proc/no/copy", "--data-dir", str(tmp_path), "--journal-only"]
    assert run(words) == Exit.USAGE
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (b"-ERR unknown command 'SYNC'\r\n", StoreRefused, "refuses a copy: ERR unknown command"),
        (b"\n\n$5\r\nab", ConnectionError, "3 of 5 bytes are missing"),
        (b"\n", ConnectionError, "before the copy began"),
    ],
)
def test_a_copy_that_is_refused_or_breaks_off(answer: bytes, error: type[Exception], says: str, tmp_path: Path) -> None:
    left = bytearray(answer)

    def receive(size: int) -> bytes:
        piece = bytes(left[:size])
        del left[:size]
        return piece

    with (tmp_path / "copy").open("wb") as file, pytest.raises(error, match=says):
        _received(receive, file)


def test_a_server_that_forbids_copies_says_so(tmp_path: Path) -> None:
    with valkey() as server:
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "default", "-sync")
        with pytest.raises(StoreRefused, match="refuses a copy: NOPERM"):
            copy_rdb(StoreConfig(url=server.url), tmp_path / "copy")
    with pytest.raises(StoreAway, match="gave no whole copy"):
        copy_rdb(StoreConfig(url=server.url), tmp_path / "other")
