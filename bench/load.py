"""`python -m bench load`: an open loop of single pushes against a daemon that runs, and how long they take.

From the moment at which each push is due to its acknowledgement, and to the start of its job. The worker that runs
these jobs, `bench-marked`, is started here, and asks for them: the daemon may be elsewhere. JQD_TOKEN may hold a token.
"""

import argparse
import json
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import trio
from rich.console import Console
from rich.progress import Progress

from bench.machine import machine
from bench.marks import MARKS, Marks
from bench.open_loop import TAKEN, HttpConnection, Load, open_loop
from bench.plot import percentiles
from bench.processes import wait_until, worker
from bench.result import Result, percentile

NAME = "bench-marked"
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
DURATION_S_MAX = 24 * 3600.0  # of `load`: a run is bounded
SETTLE_S = 30.0  # for the last jobs to begin
WARM_S = 30.0
NUMBERS = 10**11
SHOW = 50  # answers between two looks of the progress bar
LATE_S = 0.010  # a generator whose pushes go out later than this measures itself


def main(argv: list[str]) -> int:
    """Exit code 0 when every push was taken and every job began."""
    parser = argparse.ArgumentParser(prog="python -m bench load", description=__doc__)
    parser.add_argument("--url", default=os.environ.get("JQD_URL", "http://127.0.0.1:7420"), help="default JQD_URL")
    parser.add_argument("--rate", type=float, default=100.0, help="pushes a second; default 100")
    parser.add_argument("--connections", type=int, default=16, help="default 16")
    parser.add_argument("--duration", type=float, default=10.0, help="seconds; default 10")
    parser.add_argument("--posted", action="store_true", help="jobs are posted to the worker: a daemon of this machine")
    parser.add_argument("--json", type=Path, help="write the figures, and all percentiles, there")
    parser.add_argument("--plot", type=Path, help="write a picture (SVG) there")
    options = parser.parse_args(argv)
    if not (0 < options.duration <= DURATION_S_MAX and options.rate > 0 and options.connections > 0):
        parser.error(f"rate and connections are above 0, a duration at most {DURATION_S_MAX:.0f} s")
    urls = options.url.split(",")
    first = secrets.randbelow(NUMBERS)  # jobs that an earlier run left there are not taken for those of this one
    count = max(1, int(options.rate * options.duration))
    with tempfile.TemporaryDirectory() as directory, Progress(console=Console(stderr=True)) as progress:
        marks = Marks(Path(directory) / "marks")
        env = {MARKS: str(marks.path)}
        with worker(*urls, flags=[*([] if options.posted else ["--pull"]), "--jobs", NAME], env=env):
            warm(urls, marks)
            load = run(
                urls,
                rate=options.rate,
                numbers=range(first, first + count),
                connections=options.connections,
                each=_shown(progress, count),
            )
            wait_until(lambda: len(begun(load, marks)) == len(load.taken), SETTLE_S)
        marks.close()
    started_ms = start_ms(load, marks)
    result = judge("load", load, started_ms)
    print(machine())
    print(result.line())
    if refused := Counter(status for status in load.statuses.values() if status != TAKEN):
        print("not taken: " + ", ".join(f"{count} × {status or 'broken'}" for status, count in refused.items()))
    lines = {"push → acknowledged": load.ack_ms(), "push → start": started_ms}
    if options.json:
        told = {"machine": machine(), "rate": options.rate, "connections": options.connections, "ok": result.ok}
        every = {name: [percentile(found, n / 1000) for n in range(1001)] for name, found in lines.items() if found}
        options.json.write_text(json.dumps(told | {"figures": result.figures, "permilles_ms": every}, indent=1) + "\n")
    if options.plot:
        title = f"{options.rate:g} pushes a second over {options.connections} connections"
        options.plot.write_text(percentiles(title, lines))
    return 0 if result.ok else 1


def _shown(progress: Progress, count: int) -> Callable[[Load], None]:
    """What the bar does behind each answer."""
    task = progress.add_task("", total=count)
    slowest_ms = 0.0

    def show(load: Load) -> None:
        nonlocal slowest_ms
        done = len(load.statuses)
        number = next(reversed(load.acked_s))
        slowest_ms = max(slowest_ms, (load.acked_s[number] - load.due_s(number)) * 1e3)
        if not done % SHOW or done == count:
            progress.update(task, completed=done, description=f"slowest of the last {SHOW}: {slowest_ms:.1f} ms")
            slowest_ms = 0.0

    return show


def run(
    urls: Sequence[str],
    *,
    rate: float,
    numbers: range,
    connections: int,
    name: str = NAME,
    each: Callable[[Load], None] = lambda load: None,
) -> Load:
    """An open loop against these daemons, from connections that are spread over them."""

    async def go() -> Load:
        token = os.environ.get("JQD_TOKEN")
        orders = [[*urls[n % len(urls) :], *urls[: n % len(urls)]] for n in range(connections)]
        pushers = [HttpConnection(order, name, token) for order in orders]
        try:
            return await open_loop(pushers, rate=rate, numbers=numbers, each=each)
        finally:
            for pusher in pushers:
                await pusher.close()

    return trio.run(go)


def warm(urls: Sequence[str], marks: Marks, name: str = NAME) -> None:
    """Return when a job has run: worker and daemon have found each other."""
    before = marks.count
    taken = run(urls, rate=1.0, numbers=range(-1, 0), connections=1, name=name).taken
    if not taken or not marks.wait(before + 1, WARM_S):
        raise TimeoutError(f"no job ran at {urls[0]} within {WARM_S:.0f} s")


def begun(load: Load, marks: Marks) -> dict[int, list[int]]:
    """When each job that was taken began, by number; those that did not are left out."""
    times_ns = marks.times_ns()
    return {number: times_ns[number] for number in load.taken if number in times_ns}


def start_ms(load: Load, marks: Marks) -> list[float]:
    """From due to the first start, of the jobs that began."""
    return [(at[0] - load.began_ns) / 1e6 - load.due_s(number) * 1e3 for number, at in begun(load, marks).items()]


def judge(name: str, load: Load, started_ms: list[float]) -> Result:
    """Percentiles, rates and what went wrong."""
    acks_ms = load.ack_ms()
    late = sum(late_s > LATE_S for late_s in load.late_s) / max(1, len(load.late_s))
    figures = {
        "pushes": float(len(load.statuses)),
        "taken_per_s": len(load.taken) / max(load.acked_s.values()),
        "not_taken": float(len(load.statuses) - len(load.taken)),
        "not_begun": float(len(load.taken) - len(started_ms)),
        "late_share": late,
    }
    for kind, values in (("ack", acks_ms), ("start", started_ms)):
        figures |= {f"{kind}_{at}_ms": percentile(values, share) for at, share in SHARES.items() if values}
    return Result(name, figures, ok=not figures["not_taken"] and not figures["not_begun"])
