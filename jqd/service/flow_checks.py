"""Checks the fields of a job that link it to others: `after`, `then`, `group`, `unique`, `callback` and so on."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import UNSET

from jqd.domain.errors import Fault
from jqd.domain.fields import DECODE_ERRORS, faults_of
from jqd.domain.flow import THEN_MAX, as_array
from jqd.domain.job import DOTS, NIL, has_bare_ends
from jqd.domain.job_spec import JobSpec
from jqd.runner.endpoint import FORM, why_no_url

PARENT = "parent is said by jqd alone, of jobs that follow an outcome"
GROUP_LENGTH_MAX = 120  # the job that waits for the group has "group." before its name, and a job's name has 128
NO_MAP = "result_into names a field of the argument, which has to be a map, or left out"
OWN_ID = "a job that follows another has an id of its own already, so it cannot be unique as well"
REPLACE = "a job that follows another cannot replace one: pushed again after a loss it would undo what came since"

Faults = Callable[[JobSpec, int], Iterator[Fault]]

_job_decoder = msgspec.msgpack.Decoder(JobSpec)
_jobs_decoder = msgspec.msgpack.Decoder(list[JobSpec])
_items_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_map_decoder = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def link_faults(job: JobSpec, bytes_max: int, faults: Faults) -> Iterator[Fault]:
    """Yield the faults in a job's links. `faults`: function that checks a whole job, applied to each job in `then`."""
    if job.callback is not None and (why := why_no_url(job.callback, filled=False)):
        yield Fault("/callback", f"the URL {job.callback[:200]!r} {why}; give {FORM}")
    if job.parent is not None:
        yield Fault("/parent", PARENT)
    for field in ("group", "unique"):
        name = getattr(job, field)
        if name is not None and not (name.isprintable() and has_bare_ends(name)):
            yield Fault(f"/{field}", f"it has printable characters and no blank at its ends, this one is {name!r}")
    if job.group is not None and len(job.group) > GROUP_LENGTH_MAX:
        yield Fault("/group", f"the name of a group has at most {GROUP_LENGTH_MAX} characters")
    if job.group is not None and ("/" in job.group or job.group in DOTS):
        yield Fault("/group", "a group stands in URLs: no / in its name, and no . or .. as its name")
    if job.debounce is not None and job.unique is None:
        yield Fault("/debounce", "debounce puts off the job with the same unique key; give a unique key")
    if job.debounce is not None and job.while_ != "waiting":
        yield Fault("/debounce", 'a job that has begun cannot be put off; say "while": "waiting"')
    if job.while_ != "ended" and job.unique is None:
        yield Fault("/while", "while says how long a job has its unique key; give a unique key")
    if job.unique is not None and job.job_id is not None:
        yield Fault("/unique", "unique and job_id exclude each other: a job_id is unique already")
    if len(set(job.after)) < len(job.after):
        yield Fault("/after", "a parent stands there twice")
    if job.job_id is not None and job.job_id in job.after:
        yield Fault("/after", "a job cannot wait for itself")
    if job.one_result and len(job.after) != 1:
        yield Fault("/one_result", f"one_result is for a job that waits for one parent, this one has {len(job.after)}")
    if job.result_into is not None and not is_map(bytes(job.argument)):
        yield Fault("/result_into", NO_MAP)
    yield from _then_faults(job, bytes_max, faults)


def stray_faults(job: JobSpec) -> Iterator[Fault]:
    """Yield a fault for each field that concerns parents, if the job has no parents (`after`)."""
    if job.after:
        return
    if job.result_into is not None:
        yield Fault("/result_into", "it names where the results of parents go, and this job waits for none: say after")
    if job.on_parent_failure != "fail":
        yield Fault("/on_parent_failure", "it is about parents, and this job waits for none: say after")


def is_map(argument: bytes) -> bool:
    """Return whether an argument is nil or a map with text keys, so that a result can be put into one of its fields."""
    if argument == NIL:
        return True
    try:
        _map_decoder.decode(argument)
    except DECODE_ERRORS:
        return False
    return True


def _then_faults(job: JobSpec, bytes_max: int, faults: Faults) -> Iterator[Fault]:
    then = b"" if job.then is UNSET else bytes(job.then)
    array = as_array(then)
    if not array:
        return
    if len(then) == 1:
        if then != b"\x90":
            yield Fault("/then", "then is a job (a map) or an array of jobs")
        return
    if len(then) > bytes_max:
        yield Fault("/then", f"then has at most {bytes_max} bytes, this one {len(then)}")
        return
    try:
        items = _items_decoder.decode(array)
    except DECODE_ERRORS:
        yield Fault("/then", "then is a job (a map) or an array of jobs")
        return
    if len(items) > THEN_MAX:
        yield Fault("/then", f"at most {THEN_MAX} jobs can follow one, these are {len(items)}")
    chosen = set[str]()
    for place, item in enumerate(items[:THEN_MAX]):
        at = f"/then/{place}" if array is then else "/then"
        try:
            follower = _job_decoder.decode(item)
        except DECODE_ERRORS:
            yield from (fault._replace(pointer=at + fault.pointer) for fault in faults_of(item, JobSpec))
            continue
        if follower.replace:
            yield Fault(f"{at}/replace", REPLACE)
        if follower.unique is not None:
            yield Fault(f"{at}/unique", OWN_ID)
        if follower.after:
            yield Fault(f"{at}/after", "a job of then waits for its parent alone; push it by itself with after")
        if follower.on_parent_failure != "fail":
            yield Fault(f"{at}/on_parent_failure", "a job of then comes only where its parent succeeded; leave it out")
        if follower.job_id is not None and follower.job_id in chosen:
            yield Fault(f"{at}/job_id", "two of them have the same job_id")
        chosen.add(follower.job_id or "")
        yield from (fault._replace(pointer=at + fault.pointer) for fault in faults(follower, bytes_max))


def names_of(jobs: Sequence[JobSpec]) -> set[str]:
    """Return the jobtypes of checked jobs, and of all jobs that are to follow them (`then`), at any depth."""
    return {each.name for job in jobs for each in following_of(job)}


def uncalled(job: JobSpec, why_no_callback: Callable[[str], str | None]) -> str:
    """Return why a callback of this checked job, or of a job in its `then`, cannot be sent; empty if all can be sent.
    `why_no_callback`: returns why nothing can be sent to a URL; None if something can."""
    urls = (each.callback for each in following_of(job) if each.callback is not None)
    return next((f"the URL {url[:200]!r} {why}" for url in urls if (why := why_no_callback(url))), "")


def following_of(job: JobSpec) -> Iterator[JobSpec]:
    """Yield a checked job and all jobs that are to follow it (`then`), at any depth."""
    left = [job]
    while left:
        job = left.pop()
        yield job
        if array := then_of(job):
            left += _jobs_decoder.decode(array)


def then_of(job: JobSpec) -> bytes:
    """Return the jobs of `then` as a MessagePack array; empty for a job without `then`."""
    return b"" if job.then is UNSET else as_array(bytes(job.then))
