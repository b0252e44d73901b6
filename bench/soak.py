"""A steady load for as long as is wanted: whether memory, disk and latency stay where they are."""

from pathlib import Path

from bench.load import SETTLE_S, begun, start_ms, warm
from bench.load import run as push_at_rate
from bench.marks import MARKS, Marks
from bench.open_loop import Load
from bench.processes import directory, memory_mb, serve, wait_until, worker
from bench.result import Result, percentile

RATE, CONNECTIONS = 200, 16  # a fraction of what two cores take: what grows then grows by itself
PARTS = 5  # the first is compared to the last


def run(jobs: int) -> Result:
    """200 single pushes a second: `--jobs 720000` is an hour."""
    memory: list[float] = []

    def look(load: Load) -> None:
        if len(load.statuses) >= jobs * (len(memory) + 1) / PARTS:
            memory.append(memory_mb(process.pid))

    with directory() as base, serve(base / "data") as (url, process):
        marks = Marks(base / "marks")
        with worker(url, env={MARKS: str(marks.path)}):
            warm([url], marks)
            load = push_at_rate([url], rate=RATE, numbers=range(jobs), connections=CONNECTIONS, each=look)
            wait_until(lambda: len(begun(load, marks)) == len(load.taken), SETTLE_S)
        marks.close()
        disk_mb = sum(path.stat().st_size for path in _files(base / "data")) / 1e6
        started_ms = start_ms(load, marks)
    return steady(load, started_ms, memory, disk_mb)


def _files(base: Path) -> list[Path]:
    return [path for path in base.rglob("*") if path.is_file()]


def steady(load: Load, started_ms: list[float], memory: list[float], disk_mb: float) -> Result:
    """The first part beside the last, and whether all was taken and begun."""
    each = max(1, len(started_ms) // PARTS)
    figures = {
        "pushes": float(len(load.statuses)),
        "not_taken": float(len(load.statuses) - len(load.taken)),
        "not_begun": float(len(load.taken) - len(started_ms)),
        "start_p99_first_ms": percentile(started_ms[:each], 0.99),
        "start_p99_last_ms": percentile(started_ms[-each:], 0.99),
        "daemon_mb_first": memory[0],
        "daemon_mb_last": memory[-1],
        "disk_mb": disk_mb,
    }
    return Result("soak", figures, ok=not figures["not_taken"] and not figures["not_begun"])
