"""serve, dev and worker: what they are started with, and how they end."""

import os
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.client import Client
from jqd.domain.errors import StoreAway
from tests.directories import short_directory
from tests.live.harness import Process

END_S = 30.0  # for a process to go once it was told


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("words", [["serve"], ["dev"], ["worker", "jqd.worker.demo"]])
def test_a_taken_port_is_named_with_what_to_do(
    words: list[str], taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if words[0] == "worker" else ["--data-dir", str(tmp_path / "d")]
    assert run([*words, "--bind", f"127.0.0.1:{taken}", *where]) == Exit.FAILED
    told = capsys.readouterr()
    assert str(taken) in told.err
    assert "--bind" in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_dev_refuses_a_store_of_somebody_elses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JQD_STORE__URL", "redis://127.0.0.1:9")
    assert run(["dev", "--data-dir", str(tmp_path / "d")]) == Exit.USAGE
    assert "jqd serve --store" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_too_few_open_files_are_refused_before_anything_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.serve.open_files_max", lambda: 150)
    assert run(["serve", "--bind", "127.0.0.1:0", "--data-dir", str(tmp_path / "d")]) == Exit.FAILED
    assert "ulimit -n" in capsys.readouterr().err
    assert not (tmp_path / "d" / "store").exists(), "no server is started for nothing"


def test_several_servers_are_named_by_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    async def serve(config: Any, *, ready: Any, **_: Any) -> None:
        told.append(config.store)

    monkeypatch.setattr("jqd.cli.server.serve_daemon", serve)
    flags = ["--data-dir", str(tmp_path / "d"), "--store", "redis://a", "--store", "redis://b"]
    assert run(["serve", *flags]) == Exit.DONE
    assert (told[0].url, told[0].urls) == ("", ("redis://a", "redis://b"))
    monkeypatch.setenv("JQD_STORE__URLS", "redis://a redis://b")
    assert run(["dev", "--data-dir", str(tmp_path / "e")]) == Exit.USAGE


def test_a_worker_is_told_what_flags_and_environment_say(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    async def serve(app: Any, **options: Any) -> None:
        told.update(options, jobs=set(app.jobs))

    monkeypatch.setattr("jqd.cli.worker.serve_worker", serve)
    monkeypatch.setenv("JQD_WORKER_PRIORITY_MIN", "-3")
    monkeypatch.setenv("JQD_WORKER_PRIORITY_MAX", "7")
    monkeypatch.setenv("JQD_TOKEN", "secret")
    monkeypatch.setenv("JQD_URL", "http://127.0.0.1:1")
    assert run(["worker", "jqd.worker.demo"]) == Exit.DONE
    assert (told["priority_min"], told["priority_max"], told["token"]) == (-3, 7, "secret")
    assert (told["daemons"], told["drain_s"]) == (["http://127.0.0.1:1"], 30)
    assert {"echo", "add"} <= told["jobs"]
    flags = ["--daemon", "http://a:1", "--daemon", "http://b:2", "--priority-max", "9", "--drain", "2m"]
    assert run(["worker", "jqd.worker.demo:app", *flags, "--concurrency", "3", "--name", "n"]) == Exit.DONE
    assert told["daemons"] == ["http://a:1", "http://b:2"]
    assert (told["priority_min"], told["priority_max"], told["drain_s"]) == (-3, 9, 120)
    assert (told["concurrency"], told["name"]) == (3, "n")


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import jqd\napp = jqd.App()\n@app.job\ndef f(a, /, b): ...", "TypeError: job 'f': a has no name"),
    ],
)
def test_a_module_that_does_not_import_is_told_from_its_own_line_on(
    text: str, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brokenhere.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run(["worker", "brokenhere"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert f'File "{tmp_path}/brokenhere.py", line' in told
    assert last in told
    assert told.endswith("jqd: the module of brokenhere cannot be imported; what is wrong with it stands above\n")
    assert all(ours not in told for ours in ("cyclopts", "importlib", "trio", "jqd/cli"))


def test_a_daemon_is_told_what_flags_environment_and_file_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, settled = list[Any](), list[bool]()

    async def serve(config: Any, *, ready: Any, **_: Any) -> None:
        told.append(config)
        assert not settled
        ready("http://127.0.0.1:7")

    monkeypatch.setattr("jqd.cli.server.serve_daemon", serve)
    monkeypatch.setattr("gc.freeze", lambda: settled.append(True))
    monkeypatch.setenv("JQD_LEASE__LEASE_S", "20s")
    file = tmp_path / "jqd.toml"
    file.write_text('[lease]\nlease_s = 30\nmargin_s = "1s"\n')
    flags = [
        "--data-dir",
        str(tmp_path / "d"),
        "--store",
        "redis://127.0.0.1:9",
        "--drain",
        "1m",
        "--insecure",
        "--i-accept-loss",
    ]
    assert run(["serve", "--config", str(file), "--bind", "0.0.0.0:1", *flags]) == Exit.DONE
    assert capsys.readouterr().out == "jqd is ready at http://127.0.0.1:7\n"
    config = told[0]
    assert (config.lease.lease_s, config.lease.margin_s, config.drain_s) == (20, 1, 60)
    assert (config.http.bind, config.store.url) == ("0.0.0.0:1", "redis://127.0.0.1:9")
    assert config.store.i_accept_loss
    assert config.journal.directory == tmp_path / "d" / "journal"
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert settled, "what a daemon is made of is not collected again: that would hold its loop for 15 ms and more"


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (StoreAway("the store is away"), 4, "the store is away"),
        (ExceptionGroup("nursery", [ExceptionGroup("nursery", [StoreAway("away in there")])]), 4, "away in there"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("nursery", [KeyboardInterrupt()]), 130, ""),
    ],
)
def test_weather_ends_a_daemon_with_a_sentence(
    error: BaseException,
    code: int,
    part: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(config: Any, *, ready: Any, **_: Any) -> None:
        raise error

    monkeypatch.setattr("jqd.cli.server.serve_daemon", serve)
    assert run(["serve", "--data-dir", str(tmp_path / "d")]) == code
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    "bug", [AssertionError("a bug"), ExceptionGroup("nursery", [KeyError("a bug"), StoreAway("x")])]
)
def test_a_bug_ends_it_with_its_traceback(bug: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(config: Any, *, ready: Any, **_: Any) -> None:
        raise bug

    monkeypatch.setattr("jqd.cli.server.serve_daemon", serve)
    with pytest.raises(type(bug)):
        run(["serve", "--data-dir", str(tmp_path / "d")])


def test_the_example_worker_does_not_outlive_a_killed_dev() -> None:
    with short_directory() as base:
        args = ["dev", "--data-dir", str(base / "d"), "--bind", "127.0.0.1:0"]
        with Process(args, base / "log") as dev, Client(dev.wait_line("is ready at").split()[-1]) as client:
            assert client.result(client.push("add", [1, 2], keep_result=True), wait=END_S) == 3
            pid = int(client.workers()[0]["name"].rpartition("-")[2])
            gone = os.pidfd_open(pid)
            try:
                dev.kill()
                assert select.select([gone], [], [], END_S)[0], f"the example worker {pid} lives on"
            finally:
                os.close(gone)
