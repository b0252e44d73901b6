"""The log of the daemon, and the job log: a line for each job and event, which no job waits for."""

import errno
import io
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from jqd.domain import log
from jqd.domain.job import Fate, Held, Job, Outcome
from jqd.domain.joblog import QUEUE_BYTES_MAX, JobLog
from jqd.domain.tenant import annotate
from jqd.testing.clock import ManualClock
from tests.domain.test_lossy_stream import REFUSALS


def test_the_log_is_json_lines_or_text() -> None:
    try:
        out = io.StringIO()
        log.configure(level="info", form="json", stream=out)
        log.get_logger("x").info("x.batch", count=3)
        log.get_logger("x").debug("x.unseen")
        line = json.loads(out.getvalue())
        assert (line["event"], line["count"], line["level"], line["component"]) == ("x.batch", 3, "info", "x")
        out = io.StringIO()
        log.configure(level="debug", form="console", stream=out)
        log.get_logger("x").debug("x.seen")
        assert "x.seen" in out.getvalue()
        with pytest.raises(ValueError, match="unknown log level"):
            log.configure(level="loud")
    finally:
        structlog.reset_defaults()


@asynccontextmanager
async def writing(path: Path | None, **named: Any) -> AsyncIterator[JobLog]:
    job_log = JobLog(path, daemon="d", clock=ManualClock(), **named)
    async with trio.open_nursery() as nursery:
        await nursery.start(job_log.run)
        yield job_log
        nursery.cancel_scope.cancel()


async def test_an_end_that_changed_nothing_is_void_in_the_job_log(tmp_path: Path) -> None:
    """The job was taken from that daemon before: who reads "failed" alone takes it for lost when it starts again."""
    path = tmp_path / "jobs.jsonl"
    async with writing(path) as job_log:
        job_log.ended([Outcome(each, 7, Fate.FAILED, "t", 0, 1) for each in ("1", "2")], void=[1])
        job_log.ended([Outcome("3", 7, Fate.FAILED, "t", 0, 1)], void=None)
        await job_log.flush()
    first, second, third = [json.loads(line) for line in path.read_text().splitlines()]
    assert first["fate"] == second["fate"] == "failed"
    assert "void" not in first
    assert second["void"] is True
    assert third["void"] is None, "the answer that said it was lost"


async def test_names_in_the_job_log_are_those_that_their_tenant_knows(tmp_path: Path) -> None:
    """Who listens to events is told these rows."""
    path, job = tmp_path / "jobs.jsonl", Job("1", annotate("acme", "t"))
    async with writing(path) as job_log:
        job_log.started(annotate("acme", "w"), [Held(job, 7, 1)])
        job_log.ended([Outcome("1", 7, Fate.FAILED, job.jobtype, 0, 1, worker=annotate("acme", "w"))], void=[])
        await job_log.flush()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["tenant"], row["jobtype"], row["worker"]) for row in rows] == [("acme", "t", "w")] * 2


async def test_the_job_log_has_a_line_per_job_and_never_stops_a_job(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    async with writing(path) as job_log:
        job_log.write("entered", [{"job_id": "1", "jobtype": "t"}, {"job_id": "2", "jobtype": "t"}])
        await job_log.flush()
        path.rename(tmp_path / "rotated")
        job_log.write("ended", [{"job_id": "1", "fate": "succeeded"}])
        await job_log.flush()
    first, second = [json.loads(line) for line in (tmp_path / "rotated").read_text().splitlines()]
    assert first == {
        "ts": "2027-01-15T08:00:00.000+00:00",
        "event": "entered",
        "daemon": "d",
        "job_id": "1",
        "jobtype": "t",
    }
    assert second["job_id"] == "2"
    assert json.loads(path.read_text())["event"] == "ended"
    async with writing(None) as off:
        off.write("entered", [{}])
        assert not off._queue


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
async def test_whatever_its_disk_refuses_lines_of_the_job_log_are_dropped_and_counted(code: int) -> None:
    def refuse(_: Path, __: bytes) -> None:
        raise OSError(code, os.strerror(code))

    async with writing(Path("jobs"), append=refuse) as job_log:
        job_log.write("entered", [{}, {}])
        await job_log.flush()
        assert "2 lines were dropped" in (job_log.failing or "")


async def test_what_the_job_log_could_not_take_is_told_there_and_in_health(tmp_path: Path) -> None:
    path = tmp_path / "none" / "x"
    async with writing(path) as job_log:
        for _ in range(2):
            job_log.write("entered", [{}])
            await job_log.flush()
        assert "cannot be written" in (job_log.failing or "")
        assert "2 lines were dropped" in (job_log.failing or "")
        path.parent.mkdir()
        job_log.write("entered", [{}])
        await job_log.flush()
        assert job_log.failing is None
        job_log.write("entered", [{}])
        await job_log.flush()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line.get("count")) for line in lines] == [
        ("dropped", 2),
        ("entered", None),
        ("entered", None),
    ]


async def test_nobody_waits_for_the_disk_of_the_job_log_and_what_it_holds_is_bounded() -> None:
    written, may = list[bytes](), threading.Event()

    def append(_: Path, data: bytes) -> None:
        assert may.wait(10)
        written.append(data)

    async with writing(Path("slow"), append=append) as job_log:
        row = {"jobtype": "x" * 1_000_000}
        for _ in range(30):
            job_log.write("entered", [row])
            await trio.lowlevel.checkpoint()
        assert "wait for its disk" in (job_log.failing or "")
        may.set()
        await job_log.flush()
        job_log.write("ended", [{}])
        await job_log.flush()
        assert job_log.failing is None
    events = [line["event"] for data in written for line in map(json.loads, data.splitlines())]
    kept, dropped = events.count("entered"), 30 - events.count("entered")
    assert kept * 1_000_000 <= QUEUE_BYTES_MAX
    assert events.count("dropped") == 1
    assert json.loads(next(data for data in written if b'"dropped"' in data).splitlines()[0])["count"] == dropped
