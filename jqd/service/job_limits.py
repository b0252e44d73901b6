"""Checks the limits of a pushed job that its type `JobSpec` does not express."""

from collections.abc import Iterator
from itertools import islice

from jqd.domain.dates import instant_ms
from jqd.domain.errors import Fault, Invalid
from jqd.domain.fields import FAULTS_MAX
from jqd.domain.flow import CALLBACK
from jqd.domain.job import has_bare_ends, is_name, why_no_place
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import is_id, is_made
from jqd.service.flow_checks import link_faults

PRINTABLE = "has printable characters only"
BARE_ENDS = "begins and ends with no blank"
KEY_STEM = "idempotency-key."  # begins the names of jobs that are pushed under an Idempotency-Key (idempotency.py)
GROUP_STEM = "group."  # begins the name of the job that waits for a group (groups.py)
CALLBACK_TAIL = "/callback"  # ends the name of a group's callback: no group has a / in its own name


def faults(job: JobSpec, bytes_max: int) -> list[Fault]:
    """Return the first few faults of a decoded job. `bytes_max`: the largest allowed argument, in bytes."""
    return list(islice(_faults(job, bytes_max), FAULTS_MAX))


def expect_new_name(what: str, name: str) -> None:
    """Raise Invalid for a new name (of `what`, such as a handler) that has blanks at its ends, or cannot stand in a
    URL."""
    if why := why_no_place(name):
        raise Invalid.at("/name", f"the name of a {what} {why}")
    if not has_bare_ends(name):
        raise Invalid.at("/name", f"the name of a {what} {BARE_ENDS}, this one is {name[:64]!r}")


def eligible_at_ms(run_at: str | float | None, delay: float | None, now_ms: int) -> int:
    """Return the instant (Unix ms) before which a checked job must not start; 0 if it may start at once."""
    if delay is not None:
        return now_ms + round(delay * 1000) if delay else 0
    return 0 if run_at is None else instant_ms(run_at)


def date_faults(run_at: str | float | None, delay: float | None) -> Iterator[Fault]:
    """Yield the faults in `run_at` and `delay`."""
    if run_at is not None and delay is not None:
        yield Fault("/delay", "run_at and delay exclude each other; give one of them")
    if run_at is not None:
        try:
            instant_ms(run_at)
        except ValueError as error:
            yield Fault("/run_at", str(error))


def _faults(job: JobSpec, bytes_max: int) -> Iterator[Fault]:
    if job.job_id is not None and (fault := _id_fault(job.job_id)):
        yield Fault("/job_id", fault)
    if job.replace and job.job_id is None:
        yield Fault("/replace", "replace is about a job_id; give the one whose job is to be replaced")
    if not job.name.isprintable():
        yield Fault("/name", f"a name {PRINTABLE}, this one is {job.name!r}")
    elif not has_bare_ends(job.name):
        yield Fault("/name", f"a name {BARE_ENDS}, this one is {job.name!r}")
    elif why := why_no_place(job.name):
        yield Fault("/name", f"a name {why}")
    elif job.name == CALLBACK:
        yield Fault("/name", f"{CALLBACK} is jqd's own; give the job that is to be told of a callback")
    yield from date_faults(job.run_at, job.delay)
    if len(job.argument) > bytes_max:
        yield Fault("/argument", f"an argument has at most {bytes_max} bytes, this one {len(job.argument)}")
    for index, tag in enumerate(job.tags):
        if not tag.isprintable():
            yield Fault(f"/tags/{index}", f"a tag {PRINTABLE}, this one is {tag!r}")
    yield from link_faults(job, bytes_max, _faults)


def _id_fault(job_id: str) -> str | None:
    if not is_name(job_id):
        return f"a job_id {PRINTABLE}, this one is {job_id!r}"
    if not has_bare_ends(job_id):
        return f"a job_id {BARE_ENDS}, this one is {job_id!r}"
    if why := why_no_place(job_id):
        return f"a job_id {why}"
    # The first job under an id stays: so a pusher's job could keep jqd from making the job that is to have this id.
    if is_id(job_id) or is_made(job_id) or job_id.startswith((KEY_STEM, GROUP_STEM)):
        return "a job_id of this form is one that jqd gives itself; choose another"
    return None
