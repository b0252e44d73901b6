"""The example that counts words of thousands of texts, as its page says it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.harness import ROOT, Daemon, Process


@pytest.mark.parametrize("texts", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_jobs_are_added_up_by_one_that_waits_for_all(tmp_path: Path, texts: int) -> None:
    with Daemon(tmp_path / "d") as daemon:
        args = ["worker", "examples.mapreduce", "--daemon", daemon.url, "--concurrency", "8", "-q"]
        with Process(args, tmp_path / "worker.log", cwd=ROOT):
            told = subprocess.run(
                [sys.executable, "-m", "examples.mapreduce", "--texts", str(texts)],
                cwd=ROOT,
                env={**os.environ, "JQD_URL": daemon.url},
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"{_words(texts)} in "), told.stdout


def _words(texts: int) -> dict[str, int]:
    """How often each is in them: one of them is the sum of the others."""
    return {"to": texts - 1, "be": texts * 3 // 4 - 1, "or": texts // 2 - 1, "not": texts // 4 - 1}
