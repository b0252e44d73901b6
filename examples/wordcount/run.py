"""The pusher: one job per file of the running Python's standard library, every answer checked.

    python -m examples.wordcount [--url http://127.0.0.1:7420] [--files N] [--timeout S]

Exit code 0 when every job ended with the right counts, 1 otherwise.
"""

import argparse
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from examples.wordcount.count import Counts, count
from jqd.client import Client, JobInfo, JqdClientError

WRONG_SHOWN_MAX = 10  # wrong answers printed one by one


def stdlib_files(files_max: int | None = None) -> list[Path]:
    """The `.py` files of the standard library, about 1,500, without installed packages; the first `files_max`."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts and path.is_file())
    return found[:files_max]


def wrong(path: Path, info: JobInfo) -> str | None:
    """What is wrong with the answer to the job for `path`; None when it is right."""
    if not info.succeeded:
        return f"{path}: {info.state} after {info.attempts} attempts: {info.error}"
    expected = count(path)
    return None if info.result == expected else f"{path}: the worker says {info.result}, it is {expected}"


def run(client: Client, paths: Sequence[Path], timeout_s: float) -> int:
    """Push, wait, compare, tell. Answers the exit code."""
    jobs = [{"name": "wordcount.file", "argument": str(path), "keep_result": True, "timeout": 60} for path in paths]
    job_ids = client.push_many(jobs)
    print(f"pushed {len(job_ids)} jobs, {job_ids[0]} to {job_ids[-1]}")
    infos = client.wait(job_ids, timeout_s)
    mistakes, right = [], list[Counts]()
    for path, info in zip(paths, infos, strict=True):
        if mistake := wrong(path, info):
            mistakes.append(mistake)
        else:
            right.append(info.result)
    for mistake in mistakes[:WRONG_SHOWN_MAX]:
        print(mistake)
    sums = [sum(counts[what] for counts in right) for what in ("lines", "words", "bytes")]
    print(f"{len(right)} of {len(paths)} files right: {sums[0]} lines, {sums[1]} words, {sums[2]} bytes")
    return 1 if mistakes else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser("wordcount", description="Count the standard library with jqd, and check it.")
    parser.add_argument("--url", help="the daemon; else where JQD_URL says, else the one on this machine")
    parser.add_argument("--files", type=int, default=None, metavar="N", help="only the first N files")
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds for everything (%(default)g)"
    )
    given = parser.parse_args(arguments)
    if given.files is not None and given.files < 1:
        parser.error("--files takes 1 or more")
    try:
        with Client(given.url) as client:
            return run(client, stdlib_files(given.files), given.timeout)
    except JqdClientError as error:
        print(f"wordcount: {error}")
        return 1
