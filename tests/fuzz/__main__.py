"""The long form: `python -m tests.fuzz [--seconds 60] [--requests 100000] [--seed N] [NAME …]`.

Each target for so many seconds, by coverage where `atheris` is installed, else by hypothesis; then garbage in the
store's rows for as long; then requests to a daemon that really runs.
"""

import argparse
import faulthandler
import importlib.util
import random
import subprocess
import sys
import tempfile
import time

import trio
from hypothesis import HealthCheck, Phase, given, seed, settings

from jqd.domain.log import configure
from tests.fuzz.requests import run
from tests.fuzz.rows import garbage
from tests.fuzz.targets import TARGETS, any_bytes

STUCK_S = 60.0  # beyond its time: a round takes a second
EXAMPLES = 5_000  # between looks at the clock
long = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def by_coverage(name: str, seconds: float) -> str:
    """Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="jqd-fuzz-") as corpus:
        args = [sys.executable, "-m", "tests.fuzz.cover", name, str(max(1, round(seconds))), corpus]
        ended = subprocess.run(args, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{name}:\n{ended.stdout[-2_000:]}\n{ended.stderr[-6_000:]}"
    return " ".join(line.partition("stat::")[2] for line in ended.stderr.splitlines() if "stat::" in line)


def by_chance(name: str, seconds: float, source: random.Random) -> str:
    """Raises what the target raises."""
    number, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:

        @seed(source.getrandbits(64))
        @long
        @given(any_bytes(TARGETS[name]))
        def some(data: bytes) -> None:
            TARGETS[name](data)

        some()
        number += EXAMPLES
    return f"some {number} inputs"


def rows(seconds: float, source: random.Random) -> str:
    """Raises AssertionError."""
    configure(level="critical")  # of each row that cannot be read there is a line
    faulthandler.dump_traceback_later(seconds + STUCK_S, exit=True)  # no other way out of a script that does not end
    rounds, told, end_s = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        told += trio.run(garbage, 5, source).get("refused", 0)
        rounds += 5
    faulthandler.cancel_dump_traceback_later()
    return f"{rounds} rounds of every method, {told} refused"


def main() -> int:
    """Ends with 0, or with what broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TARGETS)}, rows, requests; none: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each but requests")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    told = parser.parse_args()
    number = random.randrange(1_000_000) if told.seed is None else told.seed
    print(f"seed {number}", flush=True)  # noqa: T201
    source, covers = random.Random(number), importlib.util.find_spec("atheris") is not None
    for name in told.names or [*TARGETS, "rows", "requests"]:
        match name:
            case "rows":
                said = rows(told.seconds, source)
            case "requests":
                said = run(told.requests, source)
            case _ if covers:
                said = by_coverage(name, told.seconds)
            case _:
                said = by_chance(name, told.seconds, source)
        print(f"{name}: {said}", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
