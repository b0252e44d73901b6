"""The example that counts words of thousands of texts, as its page says it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.live.harness import ROOT, Daemon, Process

TEXTS = 10_000


def test_ten_thousand_jobs_are_added_up_by_one_that_waits_for_all(tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon:
        args = ["worker", "examples.mapreduce", "--daemon", daemon.url, "--concurrency", "8", "-q"]
        with Process(args, tmp_path / "worker.log", cwd=ROOT):
            told = subprocess.run(
                [sys.executable, "-m", "examples.mapreduce", "--texts", str(TEXTS)],
                cwd=ROOT,
                env={**os.environ, "JQD_URL": daemon.url},
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("{'to': 9999, 'be': 7499, 'or': 4999, 'not': 2499} in "), told.stdout
