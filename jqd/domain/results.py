"""Results that are kept: how large they may be, and what becomes of a success whose result cannot be kept."""

from typing import NamedTuple

import msgspec

from jqd.domain.job import NIL, Fate, Outcome

RESULT_BYTES_MAX = 16 << 20  # of one as MessagePack, unless `runner.result_bytes_max` says less
# Of a worker's report: the largest result in base64, as JSON has bytes, and what follows it.
REPORT_BYTES_MAX = 24 << 20
PIECE_BYTES = 256 << 10  # one call of the store copies as much in a third of a millisecond; a larger result has several
LARGE_BYTES = 1 << 20  # of one that is being read: larger ones take turns, for they are here three times
LARGE_READ_MAX = 4  # of those at once: some 200 MB
RESULT_DROPPED = "RESULT_DROPPED"  # begins the message of a success whose result could not be kept
FULL_STATUS = 507  # of a job that requires its result, and for which the store has no room


class LargeResult(NamedTuple):
    """A result that is read piece by piece."""

    named: str
    """The name of its pieces in the store; the job's id stands before the colon."""
    bytes: int
    pieces: int

    @property
    def job_id(self) -> str:
        return self.named.partition(":")[0]


def without_result(outcome: Outcome, why: str) -> Outcome:
    """A success whose result cannot be kept after all. A job that requires it has failed, and nothing follows."""
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
