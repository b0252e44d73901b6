"""The long form: `python -m tests.chaos --seconds 300 --seed 7`. Exit code 1 when something is wrong."""

import argparse
import random
import sys
import time
from pathlib import Path

from tests.chaos.nemesis import plan
from tests.chaos.run import WORKLOADS, run
from tests.chaos.workload import Settings

SHARES = {"jobs": 0.6, "flows": 0.4}
"""Of the time, where both are to run."""


def main() -> int:
    """Run, print what happened and how to do it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of faults; start and drain come on top")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the traffic; any without it")
    parser.add_argument("--rate", type=int, default=220, help="jobs pushed a second; of flows as fits beside them")
    parser.add_argument("--servers", type=int, default=1, help="of the store, each with a partition of it")
    parser.add_argument("--workload", choices=[*WORKLOADS, "both"], default="both", help="both: one after the other")
    parser.add_argument("--directory", type=Path, help="for the history; without it a new one in ./.jqd-chaos")
    told = parser.parse_args()
    seed = random.randrange(1_000_000) if told.seed is None else told.seed
    shares = SHARES if told.workload == "both" else {told.workload: 1.0}
    directory = told.directory or Path(".jqd-chaos") / f"{seed}-{int(time.time())}"
    bad = False
    for workload, share in shares.items():
        settings = Settings(seed, told.seconds * share, told.rate, servers=told.servers, workload=workload)
        bad |= _one(settings, directory / workload)
    return int(bad)


def _one(settings: Settings, directory: Path) -> bool:
    """Whether something is wrong."""
    print(f"{settings.seconds:g} s of {settings.workload}")  # noqa: T201
    for strike in plan(settings.seed, settings.seconds, *settings.size):
        print(f"{strike.at_s:8.2f} s  {strike.kind} {strike.target} for {strike.for_s:.2f} s")  # noqa: T201
    verdict, problems = run(settings, directory)
    print(verdict.text())  # noqa: T201
    for problem in problems:
        print(problem)  # noqa: T201
    again = f"--workload {settings.workload} --seed {settings.seed} --seconds {settings.seconds:g}"
    again += f" --rate {settings.rate}" + (f" --servers {settings.servers}" if settings.servers > 1 else "")
    checker = {"jobs": "check", "flows": "flow_check"}[settings.workload]
    print(f"history in {directory}; check it again: python -m tests.chaos.{checker} {directory}")  # noqa: T201
    print(f"the same faults and traffic again: python -m tests.chaos {again}")  # noqa: T201
    return bool(verdict.violations or problems)


if __name__ == "__main__":
    sys.exit(main())
