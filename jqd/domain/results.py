"""Kept results: how large they may be, and what happens to a success whose result cannot be kept."""

from typing import NamedTuple

import msgspec

from jqd.domain.job import NIL, Fate, Outcome

RESULT_BYTES_MAX = 16 << 20  # of a result in MessagePack, unless `runner.result_bytes_max` is less
# Of a worker's report: the largest result in base64, as in JSON, and following jobs.
REPORT_BYTES_MAX = 24 << 20
PIECE_BYTES = 256 << 10  # of a piece in the store: one call copies it in 0.3 ms; a larger result has several pieces
LARGE_BYTES = 1 << 20  # larger results are read by a few requests at a time, as each takes three times its memory
LARGE_READ_MAX = 4  # of these at a time: some 200 MB
RESULT_DROPPED = "RESULT_DROPPED"  # begins the message of a success whose result could not be kept
FULL_STATUS = 507  # status of an attempt whose required result could not be kept


class LargeResult(NamedTuple):
    """A result that the store keeps in several pieces."""

    named: str
    """The name of the pieces in the store. It begins with the job's id and a colon."""
    bytes: int
    pieces: int

    @property
    def job_id(self) -> str:
        return self.named.partition(":")[0]


def without_result(outcome: Outcome, why: str) -> Outcome:
    """Return the outcome of a success without its result, which cannot be kept. If the job requires its result, the
    outcome becomes a failure without followers. `why`: the reason, for the outcome's message."""
    message = f"{RESULT_DROPPED}: {why}"
    if outcome.keep_result != "required":
        return msgspec.structs.replace(outcome, result=NIL, message=message)
    return msgspec.structs.replace(
        outcome,
        fate=Fate.FAILED,
        status=FULL_STATUS,
        reason="other",
        result=NIL,
        follows=b"",
        message=f"{message}; this job requires its result",
    )
