"""How a job ended, out of what `outcome` keeps: an outcome, or a mark in its place."""

import re

import msgspec
from msgspec.structs import replace

from jqd.domain.job import NIL, Fate, Outcome
from jqd.store.codec import decode_generation, decode_outcome, whole
from jqd.store.keys import Keys

CANCELLED = b"C"  # in place of an outcome, when a cancel ended the job; that of its last attempt may follow
CRASHED = b"X"  # in place of an outcome: at how many deaths it was alone in a daemon's hand
EXPIRED = b"E"  # in place of an outcome: at which instant (ms) it was too late to begin
ROW_BYTES_MAX = 1024  # of what cannot be read, its beginning: who looks at it sees what wrote it
MEANT = re.compile(rb"G\d{1,16}:")  # before an outcome: the generation of the content that ran, which scripts read


def decode_end(keys: Keys, job_id: str, row: object) -> tuple[Outcome | None, bool]:
    """How a job ended, as `outcome` has it, and whether a cancel ended it. Raises Unreadable."""
    if row is None:
        return None, False
    if isinstance(row, bytes) and row[:1] == CANCELLED:
        return (decode_outcome(keys, "outcome", job_id, row[1:]) if len(row) > 1 else None), True
    if isinstance(row, bytes) and row[:1] == CRASHED:
        return crashed(job_id, whole(keys, "outcome", row[1:])), False
    if isinstance(row, bytes) and row[:1] == EXPIRED:
        return expired(job_id, whole(keys, "outcome", row[1:])), False
    if isinstance(row, bytes) and (meant := MEANT.match(row)):
        row = row[meant.end() :]
    return decode_outcome(keys, "outcome", job_id, row), False


def decode_told_end(keys: Keys, job_id: str, row: object, changed: object) -> Outcome | None:
    """How a job ended, as a journal may say it again: less its result. None when that is not known, or by a cancel.

    Raises Unreadable.
    """
    outcome, cancelled = decode_end(keys, job_id, row)
    if outcome is None or cancelled:
        return None
    _, generation, _ = decode_generation(keys, job_id, changed)
    generation = outcome.generation or (generation if outcome.reason in ("crash", "expired", "unreadable") else 0)
    return replace(outcome, generation=generation, keep_result=False)


def crashed(job_id: str, deaths: int) -> Outcome:
    """The end of a job that took daemons with it."""
    message = f"{deaths} daemons died while this job was the only one in their hand; it is not run again by itself"
    return Outcome(job_id, 0, Fate.DEAD, "", 0, 0, status=500, reason="crash", message=message)


def expired(job_id: str, at_ms: int) -> Outcome:
    """The end of a job that nobody began in time."""
    message = "no attempt had begun when it expired"  # the same of all, so that they are told as one reason
    return Outcome(job_id, 0, Fate.DEAD, "", 0, 0, status=408, finished_at_ms=at_ms, reason="expired", message=message)


def unreadable(job_id: str, why: str, jobtype: str, row: object) -> Outcome:
    """The end of a job of which something cannot be read. Its bytes are for those whose it is: where that is known."""
    error = msgspec.msgpack.encode(row[:ROW_BYTES_MAX]) if jobtype and isinstance(row, bytes) else NIL
    return Outcome(
        job_id, 0, Fate.DEAD, jobtype, 0, 0, status=500, reason="unreadable", error=error, message=f"UNREADABLE: {why}"
    )
