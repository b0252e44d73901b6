"""The long form: `python -m tests.chaos --seconds 300 --seed 7`. Exit code 1 when something is wrong."""

import argparse
import random
import sys
import time
from pathlib import Path

from tests.chaos.nemesis import plan
from tests.chaos.run import Settings, run


def main() -> int:
    """Run, print what happened and how to do it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of faults; start and drain come on top")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the traffic; any without it")
    parser.add_argument("--rate", type=int, default=220, help="jobs pushed a second")
    parser.add_argument("--servers", type=int, default=1, help="of the store, each with a partition of it")
    parser.add_argument("--directory", type=Path, help="for the history; without it a new one in ./.jqd-chaos")
    told = parser.parse_args()
    seed = random.randrange(1_000_000) if told.seed is None else told.seed
    settings = Settings(seed, told.seconds, told.rate, servers=told.servers)
    directory = told.directory or Path(".jqd-chaos") / f"{seed}-{int(time.time())}"
    for strike in plan(seed, told.seconds, settings.daemons, settings.workers, settings.servers):
        print(f"{strike.at_s:8.2f} s  {strike.kind} {strike.target} for {strike.for_s:.2f} s")  # noqa: T201
    verdict, problems = run(settings, directory)
    print(verdict.text())  # noqa: T201
    for problem in problems:
        print(problem)  # noqa: T201
    again = f"--seed {seed} --seconds {told.seconds:g} --rate {told.rate}" + (
        f" --servers {told.servers}" if told.servers > 1 else ""
    )
    print(f"history in {directory}; check it again: python -m tests.chaos.check {directory}")  # noqa: T201
    print(f"the same faults and traffic again: python -m tests.chaos {again}")  # noqa: T201
    return int(bool(verdict.violations or problems))


if __name__ == "__main__":
    sys.exit(main())
