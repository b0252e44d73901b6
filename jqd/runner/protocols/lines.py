"""Workers that speak lines, by node-miniq's rules: a line for each job, and a line for each in the answer, in the same
order.

    single    POST <worker url>   one line, its argument: a text of one line as it stands, anything else as JSON
              any status          is the job's, as HTTP means it; its text is the first line that is not one of those
                                  below. In a 2xx this line may begin with the job's status, 100 to 599, as in a batch
    batch     POST <worker url>   one line a job
              200 …               the whole number that a line begins with is the job's status: 2xx and 4xx end it,
                                  all others are tried again. What follows the number is its text
    either    # …                 a comment
              J: type|payload     a new job, also as a comment: #J: …

A batch is sent to a worker whose registration has a `batch` above 1. After a line without a number nobody knows which
line is of which job: its job and all jobs after it fail. The text is the result, or the message of a failure. Cancels
are not sent.

New jobs (domain/followers.py) belong to the success whose line comes after theirs. New jobs behind the last success
belong to it, so its outcome waits for the end of the answer. An answer without a success pushes no new jobs."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from jqd.domain import job_lines
from jqd.domain.errors import AnswerGarbled
from jqd.domain.job import NIL
from jqd.runner.outcome import Report
from jqd.runner.protocols.protocol import (
    Answer,
    JobReport,
    Judgement,
    Pending,
    Reader,
    Request,
    Sending,
    WorkerProtocol,
    batch_request,
)
from jqd.runner.worker import Worker

CONTENT_TYPE = "text/plain; charset=utf-8"


class Lines(WorkerProtocol):
    def batch(self, worker: Worker) -> int | None:
        """Return how many jobs a request may have: one, unless the worker registered a `batch`."""
        return worker.batch or 1

    def request(self, sending: Sending) -> Request:
        body = b"".join(job_lines.line_of(held.job.argument) for held in sending.held)
        message = sending.batch_id if self.batch(sending.worker) != 1 else sending.held[0].job.id
        return batch_request(sending, sending.url, body, message, CONTENT_TYPE, accept="text/plain")

    def judge(self, status: int) -> Judgement:
        """Return what an HTTP status means for the jobs; a 202 means the same as any other 2xx."""
        return Judgement.READ if 200 <= status < 300 else super().judge(status)

    def reader(self, sending: Sending, content_type: str, value_bytes_max: int, status: int = 200) -> Reader:
        job_ids = [held.job.id for held in sending.held]
        return _Lines(job_ids, value_bytes_max, status, single=self.batch(sending.worker) == 1)


class _Lines:
    def __init__(self, job_ids: Sequence[str], line_bytes_max: int, status: int, *, single: bool) -> None:
        self.is_decided = single
        self._left = iter(job_ids)
        self._limit, self._status = line_bytes_max, status
        self._single = single
        self._begun = bytearray()  # the beginning of a line whose end has not come
        self._success: JobReport | None = None  # the last success, held back
        self._own: list[dict[str, Any]] = []  # new jobs that belong to it
        self._follows = job_lines.Followers()  # new jobs of lines since

    @property
    def held(self) -> int:
        return len(self._begun)

    def is_costly(self, data: bytes) -> bool:
        return False

    def feed(self, data: bytes) -> Iterator[Answer]:
        self._begun += data
        if b"\n" in data:
            *lines, self._begun = self._begun.split(b"\n")
            for line in lines:
                yield from self._read(bytes(line))
        if len(self._begun) > self._limit:
            raise AnswerGarbled(f"a line has more than the {self._limit} bytes that are read")

    def end(self) -> Sequence[Answer]:
        last = [*self._read(bytes(self._begun))]
        if self._single and (job_id := next(self._left, None)) is not None:
            last += self._hold(JobReport(job_id, Report(status=self._status)))  # no line of it came: the status counts
        self._own = self._own + self._follows.jobs
        return [*last, *self._release()]

    def _read(self, line: bytes) -> Iterator[Answer]:
        """Yield the outcomes that one line completes. A success is complete only when the next outcome comes."""
        if job_lines.is_job(line):
            self._follows.add(line)
            return
        for reported in self._reports(line):
            if 200 <= reported.report.status < 300:
                yield from self._hold(reported)
            else:
                yield reported

    def _hold(self, reported: JobReport) -> Iterator[Answer]:
        """Keep a success until the next outcome shows which new jobs belong to it. Yields the success that was kept
        before, or Pending if there was none."""
        yield from self._release() if self._success is not None else (Pending(),)
        self._success, self._own, self._follows = reported, self._follows.jobs, job_lines.Followers()

    def _release(self) -> Iterator[Answer]:
        reported, self._success = self._success, None
        if reported is None:
            return
        if self._own:
            follows = msgspec.msgpack.encode(self._own)
            reported = JobReport(reported.job_id, msgspec.structs.replace(reported.report, follows=follows))
        yield reported

    def _reports(self, line: bytes) -> Iterator[JobReport]:
        if line.startswith(b"#") or not line.strip() or (job_id := next(self._left, None)) is None:
            return
        if self._single:
            answer = job_lines.status_of(line, clear=True) if 200 <= self._status < 300 else None
            yield _reports(job_id, *(answer or (self._status, line.decode("utf-8", "replace").strip())))
        elif answer := job_lines.status_of(line):
            yield _reports(job_id, *answer)
        else:
            why = job_lines.why_unread(line, "the worker answered")
            for each in (job_id, *self._left):
                yield JobReport(each, Report(status=500, message=why))


def _reports(job_id: str, status: int, text: str) -> JobReport:
    return JobReport(job_id, Report(status=status, message=text, result=msgspec.msgpack.encode(text) if text else NIL))
