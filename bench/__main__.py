"""Runs benchmarks by name, or all of them in their short form, and prints each result with the machine's name."""

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench import (
    cpu,
    e2e,
    edge,
    enqueue,
    flows,
    journal,
    latency,
    load,
    looks,
    members,
    memory,
    pull,
    recover,
    scale,
    schedule,
    single,
    soak,
    space,
    start,
    ui,
)
from bench.machine import machine
from bench.peers import command as peers
from bench.result import Result

COMMANDS: dict[str, Callable[[list[str]], int]] = {"peers": peers.main, "load": load.main}
"""These have options of their own, and are not among `all`."""

ENTRIES: dict[str, Callable[[int], Result]] = {
    "journal": journal.run,
    "enqueue": enqueue.run,
    "enqueue-one": single.run,
    "start": start.run,
    "space": space.run,
    "scale": scale.run,
    "schedule": schedule.run,
    "memory": memory.run,
    "e2e": e2e.run,
    "webhook": e2e.webhook,
    "pull": pull.run,
    "chain": flows.chain,
    "fanin": flows.fanin,
    "latency": latency.run,
    "slow": edge.slow,
    "flood": edge.flood,
    "arrays": edge.arrays,
    "claimable": edge.claimable,
    "cpu": cpu.run,
    "daemons": members.daemons,
    "failover": members.failover,
    "recover": recover.run,
    "soak": soak.run,
    "ui": ui.run,
    "looks": looks.run,
}
SHORT_JOBS = {
    "journal": 20_000,
    "enqueue": 200_000,
    "enqueue-one": 80_000,
    "start": 100_000,
    "space": 20_000,
    "scale": 50_000,
    "schedule": 20_000,
    "memory": 60_000,
    "e2e": 10_000,
    "webhook": 10_000,
    "pull": 20_000,
    "chain": 10_000,
    "fanin": 10_000,
    "latency": 500,
    "slow": 2_000,
    "flood": 200,
    "arrays": 4,
    "claimable": 200,
    "cpu": 20_000,
    "daemons": 20_000,
    "failover": 1_500,
    "recover": 20_000,
    "soak": 2_000,
    "ui": 500,
    "looks": 100_000,
}


def main() -> int:
    """Exit code 0 when every benchmark ran, 1 when one failed its own check."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started ends, too
    if len(sys.argv) > 1 and (command := COMMANDS.get(sys.argv[1])):
        return command(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one or more of {', '.join(ENTRIES)}; none means all. Others: {', '.join(COMMANDS)} [--help]",
    )
    parser.add_argument("--jobs", type=int, help="how many jobs each benchmark uses")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - ENTRIES.keys())
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(ENTRIES)}")
    where = machine()
    print(where, file=sys.stderr)
    results = []
    for name in options.names or ENTRIES:
        result = ENTRIES[name](options.jobs or SHORT_JOBS[name])
        results.append(result)
        print(result.line())
    if options.json:
        rows = [{"name": r.name, **r.figures, "ok": r.ok} for r in results]
        options.json.write_text(json.dumps({"machine": where, "results": rows}, indent=1) + "\n")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
