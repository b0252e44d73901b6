"""`jqd backup` of a daemon that runs, and `jqd restore`: all that was acknowledged by then is there again."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from jqd.cli import run
from jqd.cli.backup import _read, _servers
from jqd.cli.config import daemon_settings
from jqd.cli.exits import Exit
from jqd.client import Client
from jqd.config import Config
from jqd.domain.errors import StoreAway, StoreRefused
from jqd.domain.synced_files import copy_synced
from jqd.journal.recover import RETIRED
from jqd.processes import directories
from jqd.store import StoreConfig, copy_rdb
from jqd.store.rdb import _received
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, Worker, wait_for
from tests.live.test_night import certificate
from tests.store.ensemble import free_ports, watched
from tests.valkey import NO_REDIS, REDIS, Valkey, valkey

WAIT_S = 30.0  # for jobs to end on a busy machine
NAMED = pytest.param(False, id="named server", marks=pytest.mark.long)  # as each store below is
ON_A_SERVER = pytest.mark.parametrize("own", [pytest.param(True, id="own store"), NAMED])


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
    made: dict[str, Any] = {"format": 1, "at": None, "own_store": True, "stores": {"store-0.rdb": 5}}
    made |= {"journal": {"a": 4}, "processes": {"1": {"b": 3}}}
    (tmp_path / "copy" / "process-1").mkdir()
    (tmp_path / "copy" / "process-1" / "b").write_bytes(b"two")
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


def test_a_restore_that_broke_off_can_be_repeated(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At whichever copy it broke off, a daemon and its server find nothing of it; afterwards they find all."""
    words = ["restore", str(whole), "--data-dir", str(tmp_path / "d")]
    found = [tmp_path / "d" / "journal", tmp_path / "d" / "store" / "appendonlydir"]
    for copies in range(3):
        left = ["a copy"] * copies

        def breaks_off(source: Path, target: Path, left: list[str] = left) -> int:
            if not left:
                raise OSError(errno.ENOSPC, "No space left on device")
            left.pop()
            return copy_synced(source, target)

        with monkeypatch.context() as patched:
            patched.setattr("jqd.cli.backup.copy_synced", breaks_off)
            patched.setattr("jqd.store.rdb.copy_synced", breaks_off)
            assert run(words) == Exit.USAGE
        assert "the backup cannot be put back" in capsys.readouterr().err
        assert [path.exists() for path in found] == [False, False]
    before = os.umask(0o022)
    try:
        assert run(words) == 0
    finally:
        os.umask(before)
    files = {str(path.relative_to(tmp_path / "d")): path for path in (tmp_path / "d").rglob("*") if path.is_file()}
    store = ["store/appendonlydir/appendonly.aof.1.base.rdb", "store/appendonlydir/appendonly.aof.manifest"]
    assert sorted(files) == ["journal/a", "journal/process-1/b", *store]
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}


def test_a_journal_that_another_process_left_behind_is_not_joined_by_one_of_a_backup(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = daemon_settings(None, None, tmp_path / "d")
    (left := directories(3, config)[1]).mkdir(parents=True)
    (left / "00000000000000000000.jqd").touch()
    assert run(["restore", str(whole), "--data-dir", str(tmp_path / "d"), "--journal-only"]) == Exit.USAGE
    assert "has a journal already" in capsys.readouterr().err


def test_files_of_a_backup_are_for_its_owner_alone(tmp_path: Path) -> None:
    """It may be packed or moved out of its directory, and has all that jobs and tokens have."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / RETIRED).touch(0o644)
    before = os.umask(0o022)
    try:
        assert run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path), "--journal-only"]) == 0
        assert os.umask(0o022) == 0o022, "as it was"
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert modes == {RETIRED: 0o600, "backup.json": 0o600}


def test_segments_that_come_and_go_meanwhile_leave_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention copies what has not ended into a segment that is begun meanwhile, and deletes where it stood."""
    journal = tmp_path / "journal"
    journal.mkdir()
    a, b, c, d = (journal / f"{number:020}.jqd" for number in range(4))
    for path in (a, b, c):
        path.write_bytes(b"1" * 8192)
    (journal / RETIRED).write_text("one")

    def rolls(source: Path, target: Path) -> int:
        size = copy_synced(source, target)
        if source == a:
            c.write_bytes(b"2" * 8200)
            d.write_bytes(b"3" * 8192)
            (journal / RETIRED).write_text("two")
            a.unlink()
            b.unlink()
        return size

    monkeypatch.setattr("jqd.cli.backup.copy_synced", rolls)
    assert run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path), "--journal-only"]) == 0
    copied = {path.name: path.read_bytes() for path in (tmp_path / "copy" / "journal").iterdir()}
    assert copied == {path.name: path.read_bytes() for path in journal.iterdir()}
    assert _read(tmp_path / "copy").journal == {name: len(data) for name, data in copied.items()}


def test_what_is_no_whole_backup_is_not_put_back(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["restore", str(whole), "--data-dir", str(tmp_path / "d")]
    (whole / "store-0.rdb").write_bytes(b"REDI")
    assert run(words) == Exit.USAGE
    assert "store-0.rdb has another size" in capsys.readouterr().err
    (whole / "store-0.rdb").write_bytes(b"REDIS")
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


@pytest.mark.long
def test_what_happens_behind_the_stores_copy_is_known_from_the_journals(tmp_path: Path) -> None:
    """As on a hosted server, whose own copy is taken first, and as of the second of two daemons."""
    with short_directory() as base:
        new = Valkey(base / "new")
        with valkey() as server, Daemon(base / "d", "--store", server.url, env=LEASE) as daemon:
            at = ["--data-dir", str(base / "d"), "--store", server.url]
            with Client(daemon.url) as client, Worker(tmp_path / "one", daemon.url) as worker:
                ended = push(client, 20)
                client.wait(ended, timeout=WAIT_S)
                assert worker.stop() == 0
                waiting = push(client, 20)
                assert run(["backup", str(base / "first"), *at]) == 0
                assert client.cancel(waiting[0])
                later = push(client, 20)
                with Worker(tmp_path / "two", daemon.url) as other:
                    client.wait([*waiting, *later], timeout=WAIT_S)
                    assert other.stop() == 0
                late = push(client, 5)
                assert run(["backup", str(base / "second"), *at, "--journal-only"]) == 0
            daemon.kill()
        unused = ["--data-dir", str(base / "unused"), "--store-dir", str(new.directory)]
        assert run(["restore", str(base / "first"), *unused]) == 0
        assert run(["restore", str(base / "second"), "--data-dir", str(base / "back"), "--journal-only"]) == 0
        new.start()
        try:
            with Daemon(base / "back", "--store", new.url, env=LEASE) as daemon, Client(daemon.url) as client:
                with Worker(tmp_path / "three", daemon.url) as worker:
                    infos = client.wait([*ended, *waiting, *later, *late], timeout=WAIT_S)
                    assert worker.stop() == 0
                assert [info.state for info in infos] == [*["succeeded"] * 20, "cancelled", *["succeeded"] * 44]
                again = set(worker.starts()) - set(late)
                assert again == set(), "what had ended before the second copy does not run again"
                assert daemon.stop() == 0
        finally:
            new.kill()


Store = tuple[list[str], list[Path], Callable[[], Sequence[str]]]
"""How the store is named; the directories of the servers to put back; what starts them and names them anew."""


@contextmanager
def over_tls() -> Iterator[Store]:
    if REDIS is None:
        pytest.skip(NO_REDIS)
    with ExitStack() as stack:
        base = stack.enter_context(short_directory())
        cert, key = certificate(base)
        (port,), (other,) = free_ports(1), free_ports(1)
        files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", str(base / "authority.pem")]
        query = f"?ssl_ca_certs={base / 'authority.pem'}"
        tls = ["--tls-auth-clients", "no", *files]
        stack.enter_context(valkey("--tls-port", str(port), *tls, binary=REDIS))
        new = Valkey(base / "new", "--tls-port", str(other), *tls, binary=REDIS)
        stack.callback(new.kill)

        def begin() -> Sequence[str]:
            new.start()
            return ["--store", f"rediss://localhost:{other}/0{query}"]

        yield ["--store", f"rediss://localhost:{port}/0{query}"], [new.directory], begin


@contextmanager
def behind_sentinels() -> Iterator[Store]:
    with watched() as servers, short_directory() as base:
        new = Valkey(base / "new")

        def begin() -> Sequence[str]:
            new.start()
            return ["--store", f"{new.url}?db=1"]

        try:
            yield ["--store", servers.url], [new.directory], begin
        finally:
            new.kill()


@contextmanager
def partitions_on_two_servers() -> Iterator[Store]:
    with valkey() as one, valkey() as two, short_directory() as base:
        new = [Valkey(base / "one"), Valkey(base / "two")]

        def begin() -> Sequence[str]:
            for server in new:
                server.start()
            return [word for server in new for word in ("--store", server.url)]

        try:
            yield ["--store", one.url, "--store", two.url], [server.directory for server in new], begin
        finally:
            for server in new:
                server.kill()


@pytest.mark.parametrize(
    ("store", "partitions"),
    [
        pytest.param(over_tls, 1, id="tls", marks=pytest.mark.long),
        pytest.param(behind_sentinels, 1, id="sentinels", marks=pytest.mark.long),
        pytest.param(behind_sentinels, 2, id="sentinels, two partitions", marks=pytest.mark.long),
        pytest.param(partitions_on_two_servers, 3, id="three partitions on two servers"),
    ],
)
def test_a_store_of_any_kind_is_copied_and_comes_back(
    store: Callable[[], AbstractContextManager[Store]], partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JQD_STORE__PARTITIONS", str(partitions))
    with store() as (at, places, begin), short_directory() as base:
        with Daemon(base / "d", *at, env=LEASE) as daemon, Client(daemon.url) as client:
            with Worker(tmp_path / "one", daemon.url) as worker:
                ended = push(client, 20)
                client.wait(ended, timeout=WAIT_S)
                assert worker.stop() == 0
            waiting = client.push_many([{"name": "square", "argument": {"n": n}} for n in range(20)], ack="store")
            assert run(["backup", str(base / "copy"), "--data-dir", str(base / "d"), *at]) == 0
            daemon.kill()
        copied = sorted(path.name for path in (base / "copy").glob("*.rdb"))
        assert copied == [f"store-{number}.rdb" for number in range(len(places))]
        words = ["restore", str(base / "copy"), "--data-dir", str(base / "new")]
        assert run([*words, *(word for place in places for word in ("--store-dir", str(place)))]) == 0
        with Daemon(base / "new", *begin(), env=LEASE) as daemon, Client(daemon.url) as client:
            with Worker(tmp_path / "two", daemon.url) as worker:
                infos = client.wait([*ended, *waiting], timeout=WAIT_S)
                assert [info.state for info in infos] == ["succeeded"] * 40
                assert set(worker.starts()) == set(waiting), "what had ended does not run again"
                assert worker.stop() == 0
            assert daemon.stop() == 0


def test_servers_are_copied_in_the_order_of_their_urls() -> None:
    """So `restore` puts each back to its own place."""
    for urls in (("redis://a",), ("redis://a", "redis://b"), ("redis://a", "redis://b", "redis://c")):
        for partitions in range(len(urls), 8):
            settings = Config(store=StoreConfig(urls=urls, partitions=partitions))
            assert tuple(server.url for server in _servers(settings)) == urls


def test_a_cluster_is_not_copied_and_what_to_do_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal").mkdir()
    at = ["--data-dir", str(tmp_path), "--store", "redis+cluster://127.0.0.1:9"]
    assert run(["backup", str(tmp_path / "copy"), *at]) == Exit.USAGE
    told = capsys.readouterr().err
    assert "a Cluster's nodes are backed up by its own means" in told
    assert "--journal-only" in told
    assert not (tmp_path / "copy").exists()
    assert run(["backup", str(tmp_path / "copy"), "--journal-only", *at]) == 0


@pytest.mark.long
def test_a_copy_beside_the_original_acts_as_it_does_unless_no_worker_may_be_reached(tmp_path: Path) -> None:
    """What OPERATIONS.md says of looking at one."""
    with ExitStack() as stack:
        base = stack.enter_context(short_directory())
        daemon = stack.enter_context(Daemon(base / "d", env=LEASE))
        with Client(daemon.url) as client, Worker(tmp_path / "book", daemon.url) as worker:
            client.pause_type("square")
            (job_id,) = push(client, 1)
            client.wait([client.push("noop")], timeout=WAIT_S)
            assert run(["backup", str(base / "copy"), "--data-dir", str(base / "d")]) == 0
            client.resume_type("square")
            client.wait([job_id], timeout=WAIT_S)
            for name, env in (("looked-at", {"JQD_RUNNER__WORKER_NETWORKS": "192.0.2.0/24"}), ("acts", {})):
                assert run(["restore", str(base / "copy"), "--data-dir", str(base / name)]) == 0
                with Daemon(base / name, env=LEASE | env) as copy, Client(copy.url) as looks:
                    looks.resume_type("square")
                    if env:
                        wait_for(lambda looks=looks: looks.workers()[0]["state"] == "unreachable", "it reaches it")  # type: ignore[misc]
                        assert "is in none of runner.worker_networks" in looks.workers()[0]["why"]
                        assert looks.get(job_id).state == "waiting"
                        assert worker.starts()[job_id] == 1
                    else:
                        assert looks.get(job_id, wait=WAIT_S).state == "succeeded"
                        assert worker.starts()[job_id] == 2, "the worker of the original had it twice"
