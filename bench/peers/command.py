"""`python -m bench peers`: rounds of all queues in turns, a table, and on request JSON and a picture."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.machine import machine
from bench.peers.catalogue import ABSENT, PEERS, Peer
from bench.peers.figures import Round, of, ratio, rotated
from bench.peers.install import NotInstalled, install
from bench.peers.race import ROUND_S, TooSlow, measure
from bench.peers.servers import NotStarted
from bench.plot import Bar, bars

JOBS, ROUNDS = 20_000, 3
SHOWN = {
    "jobs_per_s": "jobs/s end to end",
    "single_1_per_s": "single pushes/s, 1 connection",
    "single_64_per_s": "… 64 connections",
    "start_p50_ms": "push → start ms, p50",
    "start_p99_ms": "… p99",
}


def main(argv: list[str]) -> int:
    """Exit code 0 when at least one queue has figures."""
    parser = argparse.ArgumentParser(prog="python -m bench peers", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,NAME", help=f"of {', '.join(p.name for p in PEERS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}; a queue has {ROUND_S:.0f} s")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"pushed by four programs in each round; default {JOBS}")
    parser.add_argument("--json", type=Path, help="write all figures of all rounds there")
    parser.add_argument("--markdown", type=Path, help="write the table of bench/README.md there")
    parser.add_argument("--plot", type=Path, help="write a picture (SVG) there")
    options = parser.parse_args(argv)
    wanted = [name for name in options.only.split(",") if name]
    unknown = sorted(set(wanted) - {peer.name for peer in PEERS} - ABSENT.keys())
    if unknown:
        parser.error(f"no queue is called {unknown[0]!r}; there are {', '.join(p.name for p in PEERS)}")
    skipped = {name: why for name, why in ABSENT.items() if not wanted or name in wanted}
    peers = _installed([peer for peer in PEERS if not wanted or peer.name in wanted], skipped)
    rounds, failed = _run(peers, options.rounds, options.jobs)
    _show(peers, rounds, skipped | failed)
    if options.json:
        options.json.write_text(json.dumps(_told(peers, rounds, skipped, failed, options.jobs), indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(_markdown(peers, rounds))
    if options.plot:
        options.plot.write_text(_picture(peers, rounds))
    return 0 if any(rounds) else 1


def _installed(peers: list[Peer], skipped: dict[str, str]) -> list[Peer]:
    ready = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(peers))
        for peer in peers:
            progress.update(task, description=f"installing {peer.name}", advance=1)
            try:
                install(peer)
                ready.append(peer)
            except NotInstalled as error:
                skipped[peer.name] = str(error)
    return ready


def _run(peers: list[Peer], rounds: int, jobs: int) -> tuple[list[Round], dict[str, str]]:
    """Figures of each round, and why a queue has none in one of them. Ctrl-C ends it with what there is."""
    figures: list[Round] = [{} for _ in range(rounds)]
    failed: dict[str, str] = {}
    with Progress(console=Console(stderr=True)) as progress:
        order = [(turn, peer) for turn in range(rounds) for peer in rotated(peers, turn)]
        task = progress.add_task("", total=len(order))
        for turn, peer in order:
            progress.update(task, description=f"round {turn + 1}: {peer.name}")
            began_s = time.monotonic()
            try:
                figures[turn][peer.name] = measure(peer, jobs) | {"took_s": time.monotonic() - began_s}
            except (NotStarted, TooSlow, OSError) as error:
                failed[peer.name] = f"round {turn + 1}: {error}"
            except KeyboardInterrupt:
                failed[peer.name] = f"round {turn + 1}: interrupted, and so were all behind it"
                break
            progress.advance(task)
    return figures, failed


def _show(peers: list[Peer], rounds: list[Round], without: dict[str, str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(title=f"{machine()}: medians of {len(rounds)} rounds (least–greatest)")
    base = peers[0].name if peers else ""
    for column in ("", *SHOWN.values(), f"jobs/s of {base} over it", "on disk when acknowledged", "set up as"):
        table.add_column(column)
    for peer in peers:
        cells = [str(of(rounds, peer.name, figure) or "–") for figure in SHOWN]
        over = str(ratio(rounds, base, peer.name, "jobs_per_s") or "–") if peer.name != base else ""
        table.add_row(peer.name, *cells, over, peer.on_disk, peer.settings)
    console.print(table)
    for name, why in without.items():
        print(f"{name} without figures: {why}")


def _markdown(peers: list[Peer], rounds: list[Round]) -> str:
    lines = ["| ".join(("queue", *SHOWN.values())), "|".join(["---"] * (len(SHOWN) + 1))]
    lines += ["| ".join((peer.name, *(str(of(rounds, peer.name, each) or "–") for each in SHOWN))) for peer in peers]
    return "\n".join(lines) + "\n"


def _told(
    peers: list[Peer], rounds: list[Round], skipped: dict[str, str], failed: dict[str, str], jobs: int
) -> dict[str, Any]:
    return {
        "machine": machine(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": os.getloadavg()[0],
        "jobs": jobs,
        "peers": [
            {
                "name": peer.name,
                "on_disk": peer.on_disk,
                "synced": peer.synced,
                "settings": peer.settings,
                "figures": {figure: vars(found) for figure in SHOWN if (found := of(rounds, peer.name, figure))},
                f"{peers[0].name}_over_it": {
                    figure: vars(over) for figure in SHOWN if (over := ratio(rounds, peers[0].name, peer.name, figure))
                },
            }
            for peer in peers
        ],
        "rounds": rounds,
        "skipped": skipped,
        "failed": failed,
    }


def _picture(peers: list[Peer], rounds: list[Round]) -> str:
    found = [(peer, of(rounds, peer.name, "jobs_per_s")) for peer in peers]
    rows = [
        Bar(peer.name, each.median, each.least, each.greatest, peer.on_disk, strong=peer.synced)
        for peer, each in sorted(found, key=lambda pair: pair[1].median if pair[1] else 0.0, reverse=True)
        if each
    ]
    return bars("Jobs a second from push to start; dark: synced to disk when acknowledged", rows)
