"""The command as a process: terminals, pipes that close, and who hears what."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

END_S = 60.0  # for one command on a loaded machine


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "jqd", *words]


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
