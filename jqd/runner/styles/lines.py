"""Line runners, by node-miniq's rules: a line for each job, and a line for each in the answer, in their order.

    batch     POST <worker url>   one line a job: its argument, if that is a text of one line, else as JSON
    answer    200 …               the first whole number of a line is the job's status, 100 to 599
              # …                 a comment
              J: …  or  #J: …     a new job

After a line without such a number nobody knows which line is whose: that job and all after it have failed.
The runner takes no cancels.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from jqd.runner.styles.style import Answer, Judgement, Reader, Request, Said, Sending, Style, batch_headers
from jqd.runner.verdict import INVALID_RESPONSE, Report
from jqd.words import tagged
from jqd.words.errors import AnswerGarbled

CONTENT_TYPE = "text/plain; charset=utf-8"
QUOTE_BYTES = 100  # of a line that cannot be read, when it is repeated in the job's message

_STATUS = re.compile(rb"0*([0-9]+)")


class Lines(Style):
    """See Style."""

    def request(self, sending: Sending) -> Request:
        """See Style."""
        body = b"".join(line_of(held.job.argument) for held in sending.held)
        return Request("POST", sending.url, batch_headers(sending, CONTENT_TYPE, accept="text/plain"), body)

    def judge(self, status: int) -> Judgement:
        """See Style: a 202 is an answer like any other 2xx."""
        return Judgement.READ if 200 <= status < 300 else super().judge(status)

    def reader(self, sending: Sending, content_type: str, value_bytes_max: int) -> Reader:
        """See Style; the type of the answer does not matter."""
        return _Lines([held.job.id for held in sending.held], value_bytes_max)


def line_of(argument: bytes) -> bytes:
    """An argument as one line, with its newline."""
    value = tagged.show_packed(argument)
    if isinstance(value, str) and not {"\n", "\r"} & set(value):
        return value.encode() + b"\n"
    return msgspec.json.encode(value) + b"\n"


class _Lines:
    """See Reader."""

    def __init__(self, job_ids: Sequence[str], line_bytes_max: int) -> None:
        self._left = iter(job_ids)
        self._limit = line_bytes_max
        self._begun = bytearray()  # of a line whose end is not here yet
        self._chained = False  # whether new jobs came since the last job's line

    def feed(self, data: bytes) -> Iterator[Answer]:
        """See Reader."""
        self._begun += data
        if b"\n" in data:
            *lines, self._begun = self._begun.split(b"\n")
            for line in lines:
                yield from self._read(bytes(line))
        if len(self._begun) > self._limit:
            raise AnswerGarbled(f"a line has more than the {self._limit} bytes that are read")

    def end(self) -> Sequence[Answer]:
        """See Reader."""
        return [*self._read(bytes(self._begun))] if self._begun else []

    def _read(self, line: bytes) -> Iterator[Answer]:
        if line.startswith((b"J: ", b"#J: ")):
            self._chained = True
        elif not line.startswith(b"#") and (job_id := next(self._left, None)) is not None:
            number = _STATUS.search(line)
            status = int(number[1][:4]) if number else 0
            if 100 <= status <= 599:
                message = line.decode("utf-8", "replace").strip()
                yield Said(job_id, Report(status=status, message=message), self._chained)
                self._chained = False
                return
            why = f"{INVALID_RESPONSE}: {line[:QUOTE_BYTES]!r} has no status, so nobody knows whose the next lines are"
            for each in (job_id, *self._left):
                yield Said(each, Report(status=500, message=why))
