"""The command as a process: terminals, pipes that close, and who hears what."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jqd.client import Client
from tests import starts

END_S = 60.0  # for one command on a loaded machine


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "jqd", *words]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", starts.Popen)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines"
    file.write_text("1\n" * 3_000)
    return file


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_a_reader_that_left_is_no_traceback(output: str, url: str, lines: Path) -> None:
    words = command("push", "echo", "--lines", str(lines), "-o", output, "--url", url)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        told = child.stderr.read()
        assert child.wait(timeout=END_S) == 1
    assert told == ""


def test_the_progress_bar_is_for_terminals_only(url: str, lines: Path) -> None:
    words = command("push", "echo", "--lines", str(lines), "--url", url)
    quiet = subprocess.run(words, capture_output=True, text=True, timeout=END_S, check=True)
    assert quiet.stderr == ""
    assert len(quiet.stdout.splitlines()) == 3_000
    ours, theirs = os.openpty()
    try:
        env = {**os.environ, "TERM": "xterm"}
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=END_S, check=True, env=env
        )
        assert b"pushing echo" in os.read(ours, 65_536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert len(done.stdout.splitlines()) == 3_000


def seen_on_a_terminal(words: list[str], *wanted: bytes) -> None:
    """Run a command on a terminal until it has shown all that is wanted; then Ctrl-C ends it well."""
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "60"}
    child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    shown, deadline = b"", threading.Timer(END_S, child.kill)
    deadline.start()
    try:
        while not all(each in shown for each in wanted):
            try:
                shown += os.read(ours, 65_536)
            except OSError:
                pytest.fail(f"it ended before it showed that; it showed {shown.decode()}")
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=END_S) == 0, shown.decode()
    finally:
        deadline.cancel()
        child.kill()
        child.wait()
        os.close(ours)


def test_a_queue_is_watched_on_a_terminal(url: str) -> None:
    with Client(url) as client:
        client.push("unmanned", job_id="watched", replace=True)
    try:
        red, bold = b"\x1b[31m", b"\x1b[1m"
        told = (b"takes jobs", b"runs jobs", red + b"waits     unmanned (1): no worker takes", bold + b"NAME")
        seen_on_a_terminal(command("top", "--url", url), *told)
        seen_on_a_terminal(command("jobs", "--name", "unmanned", "--watch", "--url", url), bold + b"ID", b"watched")
        seen_on_a_terminal(
            command("jobs", "--name", "unmanned", "--watch", "-o", "jsonl", "--url", url), b'"job_id": "watched"'
        )
    finally:
        with Client(url) as client:
            client.cancel("watched")


def test_a_push_does_not_import_the_daemon() -> None:
    code = (
        "import sys; from jqd.cli import run; run(['push', 'x', '--url', 'http://127.0.0.1:9'])\n"
        "sys.exit(' '.join({'jqd.daemon', 'jqd.config', 'jqd.api', 'httptools', 'redis'} & {*sys.modules}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=END_S, check=False)
    assert told.stderr.strip().endswith("or check the URL"), told.stderr


def test_the_environment_names_daemon_and_refuses_a_wrong_setting(url: str) -> None:
    env = {**os.environ, "JQD_URL": url}
    told = subprocess.run(
        command("-o", "jsonl", "status"), capture_output=True, text=True, timeout=END_S, check=True, env=env
    )
    assert '"ready": true' in told.stdout
    wrong = {**os.environ, "JQD_STORE_URL": "redis://x"}
    told = subprocess.run(command("serve"), capture_output=True, text=True, timeout=END_S, check=False, env=wrong)
    assert (told.returncode, told.stdout) == (2, "")
    assert "did you mean 'JQD_STORE__URL'?" in told.stderr


def test_an_output_that_cannot_be_written_is_said_in_a_line_and_a_hint_that_cannot_changes_nothing(
    url: str, tmp_path: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        words = command("types", "-o", "json", "--url", url)
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=END_S, check=False)
        assert ran.stderr == "jqd: what was found cannot be written: No space left on device\n"
        assert ran.returncode == 1
        few = tmp_path / "few"
        few.write_text("1\n2\n")
        for more, ids in (
            (["1", "--id", "full-1"], 1),
            (["1", "--id", "full-2", "--result"], 1),
            (["--lines", str(few)], 2),
        ):
            words = command("push", "echo", *more, "--url", url)
            ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=END_S, check=False)
            pushed, why = ran.stderr.splitlines()
            assert (why, ran.returncode) == ("jqd: what was found cannot be written: No space left on device", 1)
            told = pushed.removeprefix("jqd: pushed: ").split()
            assert len(told) == ids, "what has happened all the same"
            with Client(url) as client:
                assert {client.get(job_id).name for job_id in told} == {"echo"}
        words = command("cancel", "nobody", "--url", url)
        assert subprocess.run(words, stderr=full, timeout=END_S, check=False).returncode == 3
