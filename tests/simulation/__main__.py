"""`python -m tests.simulation`: run many seeds, or one with all that happened in it."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import structlog
import trio

from tests.simulation import Report, make_plan, simulate
from tests.simulation.loop import PROCESS
from tests.simulation.plan import APART_KINDS, ASKED_KINDS, KEPT_KINDS, KINDS, PARTITIONS_MAX, STILL_KINDS

GIVEN = {
    "changes": "some jobs have names and are changed",
    "lends": "some workers hold jobs by themselves",
    "hasty": "those that were sent them may report at once, without a lease",
    "rules": "workers and handlers are registered",
    "pauses": "jobtypes are paused and resumed",
    "drains": "daemons are drained and resumed",
    "schedules": "schedules push jobs",
    "limits": "constraints limit what may start",
    "expires": "some jobs must begin soon or never",
    "follows": "other jobs follow some",
    "awaits": "other jobs wait for several",
    "flows": "there are named and retried parents, groups, chains, and results as arguments",
    "ages": "jobs gain by waiting",
    "quotas": "a quota has no room for a while",
}
"""Of what a seed has only now and then (`plan.SHARES`)."""


def main(argv: list[str] | None = None) -> int:
    """1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    named = ",".join(dict.fromkeys((*KINDS, *STILL_KINDS, *KEPT_KINDS, *APART_KINDS, *ASKED_KINDS)))
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--kinds", help=f"with these faults instead of the seeds' own: {named}")
    for name, what in GIVEN.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"in each seed {what}")
    parser.add_argument(
        "--partitions", type=int, choices=range(1, PARTITIONS_MAX + 1), help="of the store, instead of the seeds' own"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened, the daemons' log included")
    chosen = parser.parse_args(argv)
    seeds = range(chosen.first, chosen.first + chosen.seeds) if chosen.seed is None else [chosen.seed]
    kinds = None if chosen.kinds is None else [kind for kind in chosen.kinds.split(",") if kind]
    if unknown := set(kinds or ()) - {*KINDS, *STILL_KINDS, *KEPT_KINDS, *APART_KINDS, *ASKED_KINDS}:
        parser.error(f"there are no faults of the kind {', '.join(sorted(unknown))}")
    given = {name: True for name in GIVEN if getattr(chosen, name)}
    broken = starts = 0
    for seed in seeds:
        plan = make_plan(seed, None if kinds is None else frozenset(kinds), chosen.partitions, **given)
        try:
            report = simulate(seed, log=_say if chosen.trace else None, plan=plan)
        except BaseException:
            _print(f"seed {seed} did not come to its end")
            raise
        starts += report.starts
        if chosen.trace:
            _print_events(report)
        if report.violations:
            broken += 1
            _print(describe(seed, report, chosen.kinds, given, chosen.partitions))
    _print(f"{len(seeds)} seeds from {seeds[0]}, {starts} starts of jobs, {broken} seeds with a broken promise")
    return 1 if broken else 0


def describe(
    seed: int, report: Report, kinds: str | None = None, given: Iterable[str] = (), partitions: int | None = None
) -> str:
    """What was broken under which faults, and how to see it again. The others: the options that were given."""
    named = ", ".join(sorted(report.plan.kinds)) or "no faults"
    lines = [f"seed {seed} ({report.plan.nodes} daemons; {named}):", *(f"  {what}" for what in report.violations)]
    instead = "" if kinds is None else f" --kinds {kinds}"
    instead += "".join(f" --{name}" for name in given)
    if partitions is not None:
        instead += f" --partitions {partitions}"
    return "\n".join([*lines, f"  again: python -m tests.simulation --seed {seed}{instead} --trace"])


def _say(logger: Any, name: str, event: Any) -> Any:
    fields = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("event", "component"))
    _print(f"{trio.current_time():10.3f}  {PROCESS.get():6} {event['event']} {fields}")
    raise structlog.DropEvent


def _print_events(report: Report) -> None:
    for at_s, *what in report.events:
        _print(f"{at_s:10.3f}  {' '.join(map(str, what))}")
    _print(f"events {len(report.events)}, digest {report.digest}")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # a run of hours that is ended loses nothing of what it found


if __name__ == "__main__":
    sys.exit(main())
