"""Collects the answers for a list of jobs that goes in several requests.

A daemon refuses a request as a whole if it can take none of its jobs. Such a refusal is an answer like any other: where
a list is cut into requests must not decide which of its jobs are sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jqd.client.errors import (
    ContentError,
    ItemError,
    JqdClientError,
    LessSafe,
    PartlyPushed,
    TooLarge,
    add_earlier_error,
)
from jqd.client.job_info import Ack, PushedJob
from jqd.client.send import how_safe, less


class PushedList:
    """The answers to the requests of one list so far, in order."""

    def __init__(self, given: Sequence[Mapping[str, Any]], ack: Ack | None) -> None:
        """`given`: all jobs of the list, as the caller gave them. `ack`: how safe they must be."""
        self._given, self._ack = given, ack
        self._job_ids: list[str | None] = []
        self._errors: list[ItemError] = []
        self._known: set[str] = set()
        self._least: str | None = None
        self._refusals: list[ContentError] = []  # of requests of which no job was taken

    def add(self, job_ids: Sequence[str | None], errors: Sequence[ItemError], answer: Mapping[str, Any]) -> None:
        """Add the answer to the next request: an id for each of its jobs, None for a refused one, and the errors of
        refused ones."""
        start = len(self._job_ids)
        self._job_ids += job_ids
        self._errors += [_of_all(error, start) for error in errors]
        self._known.update(answer.get("duplicates") or ())
        self._least = less(self._ack, answer) or self._least

    def add_refusal(self, error: JqdClientError, jobs: int) -> None:
        """Add the refusal of the next request, which had so many jobs. If the error is not about each of them, raise
        it, or PartlyPushed with it as the cause."""
        if isinstance(error, TooLarge) and jobs == 1:
            error.errors = error.errors or [ItemError(str(error), 0)]
        if isinstance(error, ContentError) and error.errors and all(one.index is not None for one in error.errors):
            self._refusals.append(error)
            self.add([None] * jobs, error.errors, {})
            return
        if not any(self._job_ids):
            raise error
        job_ids = self._job_ids + [None] * (len(self._given) - len(self._job_ids))
        message = f"{_taken(job_ids)} jobs were taken before this happened: {error}"
        raise PartlyPushed(message, job_ids=job_ids, errors=self._errors) from error

    def result(self) -> list[PushedJob]:
        """Return the result for each job after the answer to the last request. Raises PartlyPushed if some were taken
        and others not, the error of the first request if none was, LessSafe if all are less safe than asked for."""
        safe = [job_id for job_id in self._job_ids if job_id is not None]
        if len(safe) == len(self._job_ids) and not self._errors:
            if self._least is not None:
                raise LessSafe(how_safe("some of the jobs were", self._ack, self._least), job_ids=safe, ack=self._least)
            own = {str(job["job_id"]) for job in self._given if job.get("job_id") is not None}
            return [PushedJob(job_id, job_id in self._known and job_id in own) for job_id in safe]
        if self._refusals and not safe:
            refusal = self._refusals[0]
            refusal.errors = self._errors
            if len(self._refusals) > 1:
                refusal.args = (f"none of {len(self._job_ids)} jobs was taken; of the first request: {refusal}",)
            raise refusal
        message = f"{_taken(self._job_ids)} jobs were taken, the rest refused"
        if self._errors:
            message += f"; the first: job {self._errors[0].index} {self._errors[0].pointer} {self._errors[0].detail}"
        earlier = next((error.earlier for error in self._refusals if error.earlier is not None), None)
        raise add_earlier_error(earlier, PartlyPushed(message, job_ids=self._job_ids, errors=self._errors))


def _of_all(error: ItemError, start: int) -> ItemError:
    """Return an error of one request with the index that its job has in the whole list of jobs, and with a pointer that
    begins within the job. `start`: the index of the request's first job in the whole list."""
    if error.index is None:
        return error
    return ItemError(error.detail, error.index + start, error.pointer.removeprefix(f"/{error.index}"))


def _taken(job_ids: Sequence[str | None]) -> str:
    return f"{sum(job_id is not None for job_id in job_ids)} of {len(job_ids)}"
