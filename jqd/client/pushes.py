"""What a push asks for and what became of it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from jqd.client.errors import ItemError
from jqd.client.job_info import Ack

PUSH_JOBS_MAX = 5_000  # per request of `push_many`: half of what a daemon takes
PUSH_BYTES_MAX = 4 * 1024 * 1024  # per request, before its last job: well below a daemon's limit
ACKS = ("memory", "fsync", "store")  # the levels, each safer than the one before it


def less(asked: Ack | None, told: Mapping[str, Any]) -> str | None:
    """The level that was reached, if it is lower than the one asked for. A job that was there before has none."""
    reached = told.get("ack")
    if asked is None or reached not in ACKS or ACKS.index(reached) >= ACKS.index(asked):
        return None
    return str(reached)


def how_safe(jobs: str, asked: Ack | None, reached: str) -> str:
    """That jobs are less safe than was asked for, in words."""
    return (
        f"{jobs} taken, but with ack={reached} instead of {asked}: the store was not there in time. Do not push again"
    )


def cuts(encoded: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where to cut a list of jobs into requests: (start, stop) of each, by number and by bytes."""
    cuts, start, size = [], 0, 0
    for index, job in enumerate(encoded):
        if index > start and (index - start == PUSH_JOBS_MAX or size + len(job) > PUSH_BYTES_MAX):
            cuts.append((start, index))
            start, size = index, 0
        size += len(job)
    return [*cuts, (start, len(encoded))] if encoded else []


def of_all(error: ItemError, start: int) -> ItemError:
    """An error of one request, with its index in the whole list and its pointer within the job."""
    if error.index is None:
        return error
    return ItemError(error.detail, error.index + start, error.pointer.removeprefix(f"/{error.index}"))


def taken(job_ids: Sequence[str | None]) -> str:
    """How many of them were taken, in words."""
    return f"{sum(job_id is not None for job_id in job_ids)} of {len(job_ids)}"
