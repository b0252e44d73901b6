"""What a worker's own log says of attempts: each by itself, or counted where nobody could read them."""

import io
from collections import Counter

import msgspec
import structlog
from structlog.testing import capture_logs

from jqd.domain.log import configure
from jqd.testing.clock import ManualClock
from jqd.worker.job_log import LINES_PER_S
from jqd.worker.service import Service, ServiceConfig
from tests.worker.exchange import Exchange, packed
from tests.worker.test_attempt import app, end


async def test_the_workers_own_log_says_how_a_job_failed_with_its_id_and_name() -> None:
    with capture_logs() as lines:
        for argument in ("nothing known", "retry after", "failed", {"return": 1}, "object"):
            await end("plain", argument, attempt=2, max_retry=5)
        await end("async", "hang", attempt=2, max_retry=5, timeout=0.01)
    assert [line["event"] for line in lines[::2]] == ["worker.job_started"] * 6
    lines = lines[1::2]
    told = [(line["event"], line["log_level"], line["job_id"], line["name"], line["attempt"]) for line in lines]
    who = ("a", "plain", 2)
    assert told == [
        ("worker.job_raised", "warning", *who),
        ("worker.job_wants_retry", "info", *who),
        ("worker.job_failed", "warning", *who),
        ("worker.job_succeeded", "info", *who),
        ("worker.job_failed", "warning", *who),
        ("worker.job_timed_out", "warning", "a", "async", 2),
    ]
    assert "in ending" in lines[0]["exception"]
    assert (lines[1]["why"], lines[1]["after_s"], lines[2]["why"]) == ("the printer is busy", 7.5, "no such file")
    assert "objects of type object" in lines[4]["why"]


async def test_jobs_that_nobody_could_read_are_counted() -> None:
    many = [{"job_id": str(number), "name": "plain", "argument": {"return": 1}} for number in range(9 * LINES_PER_S)]
    clock, lines = ManualClock(), io.StringIO()
    configure(form="json", stream=lines)
    try:
        service = Service(app.jobs, ServiceConfig(concurrency=1), clock=clock)
        await Exchange(service, packed(*many)).run()
        service.attempts.lines.count()
        service.close()
    finally:
        structlog.reset_defaults()
    told = [msgspec.json.decode(line) for line in lines.getvalue().splitlines()]
    events = Counter(line["event"] for line in told)
    assert events == {
        "worker.job_started": LINES_PER_S,
        "worker.job_succeeded": LINES_PER_S,
        "worker.jobs_succeeded": 1,
    }
    assert told[-1]["count"] == 8 * LINES_PER_S
