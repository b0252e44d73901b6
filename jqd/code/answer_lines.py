"""Reads the answers of a batch in sh, by node-miniq's rules. Pure.

A line for each job, in order. The whole number that it begins with is the job's status: 2xx and 4xx end it, all others
are tried again; what follows is its text. `#` begins a comment, `J: type|payload` or `#J: …` a new job, which follows
the success whose line comes next, or the last one where none does. Too few lines: NO_RESPONSE for the
rest. A line without a number: INVALID_RESPONSE for it and all after.

Where a handler takes one job at a time (no `batch`), a line that begins with no status is its text, and then the exit
code says how it went: 0 well, any other badly.
"""

import re
from typing import NamedTuple

from jqd.domain.job_lines import is_job, job_of, status_of, why_unread

_ONE_STATUS = re.compile(rb"([1-5][0-9][0-9])(?:\s+|$)")


class LineAnswer(NamedTuple):
    """The answer to one job."""

    status: int
    text: str
    follows: tuple[dict[str, str], ...] = ()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def read_batch(printed: bytes, jobs: int, *, is_whole: bool) -> list[LineAnswer]:
    """The answers that are there, of so many jobs. `is_whole`: the process ended by itself, so a last line may lack its
    end."""
    *lines, last = printed.split(b"\n")
    answers: list[LineAnswer] = []
    follows: tuple[dict[str, str], ...] = ()
    for line in [*lines, last] if is_whole else lines:
        if is_job(line):
            follows += (job_of(line),)
        elif line.startswith(b"#") or not line.strip() or len(answers) == jobs:
            continue
        elif answer := status_of(line):
            answers.append(LineAnswer(*answer))
            if answers[-1].is_success:
                answers[-1], follows = answers[-1]._replace(follows=follows), ()
        else:
            answers += [LineAnswer(500, why_unread(line, "the code printed"))] * (jobs - len(answers))
    last_success = next((at for at in reversed(range(len(answers))) if answers[at].is_success), None)
    if last_success is not None:
        answers[last_success] = answers[last_success]._replace(follows=answers[last_success].follows + follows)
    return answers


def read_one(printed: bytes, code: int, how: str) -> LineAnswer:
    """Return the answer to the only job of a process, from its exit code. `how`: the same in words."""
    lines = printed.split(b"\n")
    follows = tuple(job_of(line) for line in lines if is_job(line))
    rows = [line for line in lines if line.strip() and not line.startswith(b"#") and not is_job(line)]
    if rows and (number := _ONE_STATUS.match(rows[0])):
        text = rows[0][number.end() :].decode("utf-8", "replace").strip()
        return LineAnswer(int(number[1]), text, follows)
    text = b"\n".join(rows).decode("utf-8", "replace").strip()
    return LineAnswer(200, text, follows) if code == 0 else LineAnswer(500, f"{text}\n{how}".lstrip())
