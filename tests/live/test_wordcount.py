"""Real input: a job per file of the running Python's standard library, every result compared."""

import subprocess
import sys
from pathlib import Path

from tests.live.harness import ROOT, Daemon, Process


def test_every_file_of_the_standard_library_is_counted_right(tmp_path: Path, shared_daemon: Daemon) -> None:
    args = ["worker", "examples.wordcount.worker", "--daemon", shared_daemon.url]
    with Process(args, tmp_path / "worker.log") as worker:
        run = subprocess.run(
            [sys.executable, "-m", "examples.wordcount", "--url", shared_daemon.url],
            cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr + worker.log.read_text()[-4000:]
        assert worker.stop() == 0
