"""A buffer at the end of its process and in its forks, with a real daemon: processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from jqd.client import Client
from tests.live.harness import Daemon, ingested

ABSENT = "http://127.0.0.1:9"  # the discard port: nothing listens there
WAIT_S = 60.0
HEAD = """
import atexit, logging, os, sys
import jqd
app = jqd.App()

@app.job
def note(who: str, n: int) -> None: ...

atexit.register(print, "another handler ran")
logging.disable()
buffer = app.buffer(linger="1h", patience=0)
"""
FORKS = """
import multiprocessing
mine = [note.push("parent", n) for n in range(3)]
if (child := os.fork()) == 0:
    try:
        mine[0].confirm()
    except jqd.JqdClientError as error:
        note.push(f"child {'waited in the buffer of the process that forked' in str(error)}", 0)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
process = multiprocessing.get_context("fork").Process(target=note.push, args=("worker", 0))
process.start()
process.join()
assert process.exitcode == 0
note.push("parent", 3)
"""


def run(tmp_path: Path, code: str, url: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + code)
    told = {**os.environ, "JQD_URL": url}
    return subprocess.run(
        [sys.executable, str(path)], env=told, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def test_what_is_left_is_pushed_when_the_process_ends_each_by_who_pushed_it(
    tmp_path: Path, shared_daemon: Daemon
) -> None:
    ended = run(tmp_path, FORKS, shared_daemon.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "another handler ran\n" * 2
    with Client(shared_daemon.url) as client:
        last = client.push("note", {"who": "me", "n": 0})
        ingested(client, last)
        jobs = [client.get(job.job_id).argument for job in client.jobs(name="note") if job.job_id != last]
    assert sorted((job["who"], job["n"]) for job in jobs) == [
        ("child True", 0),
        *(("parent", n) for n in range(4)),
        ("worker", 0),
    ]


def test_what_cannot_be_pushed_then_is_told_and_the_process_does_not_end_with_0(tmp_path: Path) -> None:
    ended = run(tmp_path, "note.push('a', 1); note.options(id='order-7').push('b', 2); sys.exit(0)", ABSENT)
    assert (ended.returncode, ended.stdout) == (1, "another handler ran\n")
    assert "2 buffered jobs are not known to be pushed: " in ended.stderr
    assert "order-7 (note)" in ended.stderr
    assert "no daemon answers at http://127.0.0.1:9" in ended.stderr
    assert "Traceback" not in ended.stderr
