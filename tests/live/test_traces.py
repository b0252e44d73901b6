"""Spans of a push and of its attempts, from a program and a worker that know of a collector, over real daemons."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.collector import CONSUMER, ERROR, PRODUCER, Collector, attributes, collector
from tests.live.harness import ROOT, Daemon, Process, wait_for

PUSH = """
import sys
from opentelemetry import trace
from jqd.client import Client, tracing

tracing.set_up("shop")
with Client(sys.argv[1]) as client, trace.get_tracer("shop").start_as_current_span("order"):
    name, *arguments = sys.argv[2:]
    if len(arguments) == 1:
        print(client.push(name, arguments[0]))
    else:
        print(*client.push_many({"name": name, "argument": float(one)} for one in arguments))
trace.get_tracer_provider().shutdown()
"""


def env(found: Collector) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": found.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}


@contextmanager
def worker(found: Collector, base: Path, daemons: tuple[Daemon, Daemon], *more: str) -> Iterator[None]:
    flags = [flag for daemon in daemons for flag in ("--daemon", daemon.url)]
    told = {**env(found), "JQD_TEST_BOOK": str(base / "book")}
    with Process(["worker", "tests.live.recorder:app", *flags, *more], base / "worker.log", told) as one:
        for daemon in daemons:
            daemon.wait_worker("moody")
        yield
        assert one.stop() == 0


def push(found: Collector, daemon: Daemon, *words: str) -> list[str]:
    told = subprocess.run(
        [sys.executable, "-c", PUSH, daemon.url, *words],
        env={**os.environ, **env(found)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.split()


def test_each_attempt_is_a_span_in_the_trace_of_its_push(shared_daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    with collector() as found:
        with worker(found, tmp_path, shared_daemons):
            (job_id,) = push(found, shared_daemons[0], "moody", "third time")
            wait_for(lambda: len(found.spans("process moody")) == 3, "three attempts")
        (order,), (sent,) = found.spans("order"), found.spans("send moody")
        assert (sent.kind, sent.parent_span_id, sent.trace_id) == (PRODUCER, order.span_id, order.trace_id)
        attempts = found.spans("process moody")
        assert found.services == {"shop", "jqd-worker"}
        for number, one in enumerate(attempts, 1):
            assert (one.kind, one.parent_span_id, one.trace_id) == (CONSUMER, sent.span_id, sent.trace_id)
            assert [link.span_id for link in one.links] == [sent.span_id]
            assert (
                attributes(one).items()
                >= {
                    "messaging.system": "jqd",
                    "messaging.operation.type": "process",
                    "messaging.destination.name": "moody",
                    "messaging.message.id": job_id,
                    "jqd.attempt": number,
                }.items()
            )
        assert [one.status.code == ERROR for one in attempts] == [True, True, False]
        assert attributes(attempts[0])["error.type"] == "Retry"


def test_a_job_that_waits_in_its_worker_has_no_span_yet(shared_daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    with collector() as found:
        with worker(found, tmp_path, shared_daemons, "--concurrency", "1", "--processes", "1"):
            push(found, shared_daemons[1], "slow", "0.2", "0.2", "0.2")
            wait_for(lambda: len(found.spans("process slow")) == 3, "three jobs")
        (sent,), runs = found.spans("send slow"), found.spans("process slow")
        assert attributes(sent)["messaging.batch.message_count"] == 3
        assert {one.parent_span_id for one in runs} == {sent.span_id}
        ends = [one.end_time_unix_nano for one in runs]
        assert all(end <= after.start_time_unix_nano for end, after in zip(ends, runs[1:], strict=False))


def test_without_a_collector_nothing_of_it_is_loaded(shared_daemons: tuple[Daemon, Daemon]) -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from jqd.client import Client, tracing; tracing.set_up('x'); c = Client(sys.argv[1]); "
            "c.push('untraced'); print([name for name in sys.modules if name.startswith('opentelemetry')])",
            shared_daemons[0].url,
        ],
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert (told.stdout, told.stderr) == ("[]\n", "")
