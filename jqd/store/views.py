"""One job as a person sees it, out of what `get_jobs` answers; and where some of that cannot be read what is left."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from jqd.domain.job import Job
from jqd.store import codec
from jqd.store.endings import decode_end, unreadable
from jqd.store.keys import Keys
from jqd.store.types import JobView

WAITS = frozenset({"ready", "later", "nowhere"})


def read_view(keys: Keys, job_id: str, place: str, fields: Sequence[object]) -> JobView:
    """Raises Unreadable."""
    _, score, sysid, row, tries, outcome, result, asked, _, generation, worker, progress, log = fields
    job = codec.decode_job(keys, job_id, row)
    if place == "nowhere":
        raise codec.Unreadable(
            f"the key {keys['jobs']} holds job {job_id!r}, but no set of {keys['ready']}:…, "
            "later, held, ended or dead does: keys were deleted by hand"
        )
    failed, history = codec.decode_tries(keys, job_id, tries)
    ended, cancelled = decode_end(keys, job_id, outcome)
    view = codec.job_view(
        job,
        place,
        codec.whole(keys, place, score),
        daemon="" if sysid is None else codec.text(keys, "members", sysid),
        failed=failed,
        history=history,
        outcome=ended,
        cancelled=cancelled,
        cancel_asked=asked is not None,
        result=codec.decode_value(keys, "result", job_id, result),
        changed=codec.decode_generation(keys, job_id, generation),
    )
    more: dict[str, Any] = {}
    if worker is not None:
        more = {"daemon": "", "worker": codec.text(keys, "leases", worker)}
    if isinstance(progress, bytes):
        more["progress"] = progress
    if log is not None:
        more["log"] = codec.text(keys, "logs", log)
    return replace(view, **more) if more else view


def damaged_view(keys: Keys, job_id: str, place: str, fields: Sequence[object], why: str) -> tuple[JobView, bool]:
    """Where it lies says how it stands, and how it ended whose it was. And whether it is to be buried.

    Raises Unreadable where all can be read, and no set has it.
    """
    ended, cancelled, job = None, False, None
    with suppress(codec.Unreadable):
        ended, cancelled = decode_end(keys, job_id, fields[5])
    with suppress(codec.Unreadable):
        job = codec.decode_job(keys, job_id, fields[3])
    if job and place == "nowhere":
        raise codec.Unreadable(why)
    jobtype = job.jobtype if job else ended.jobtype if ended else ""
    view = codec.job_view(
        job or Job(job_id, jobtype),
        place,
        codec.whole(keys, place, fields[1]),
        daemon="",
        failed=0,
        history=[],
        outcome=replace(ended, message=f"UNREADABLE: {why}") if ended else unreadable(job_id, why, jobtype, fields[3]),
        cancelled=cancelled,
        cancel_asked=False,
        result=None,
    )
    return view, job is None and place in WAITS
