"""What a pushed job may look like: the limits of its fields, pure and quick."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from jqd.words.dates import instant_ms
from jqd.words.errors import Fault
from jqd.words.job import (
    MAX_RETRY_MAX,
    NAME_LENGTH_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TAGS_MAX,
    TIMEOUT_S_MAX,
    is_name,
)
from jqd.words.jobid import parse_id
from jqd.words.meant import suggestion
from jqd.words.record import PushedJob

FIELDS = tuple(PushedJob.__struct_fields__)
NOT_YET = {
    "then": "then is not supported yet; push the next job from the worker",
}
DELAY_S_MAX = 100 * 366 * 86_400.0  # a century: longer is a slip of units, milliseconds for seconds
FAULTS_MAX = 4  # told of one job: enough to mend it, and 10,000 bad jobs still make a bearable answer
QUOTE_LENGTH_MAX = 64  # of what a client sent, when it is repeated to him
DETAIL_LENGTH_MAX = 300

WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "a map",
    "None": "null",
}
SECONDS = ("/delay", "/timeout", "/ttl")

_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"missing required field `(.*?)`")
_TYPES = re.compile(r"^Expected `([^`]*)`, got `([^`]*)`")
_WHERE = re.compile(r" - at `\$(.*)`$")


def longest_if_good(jobs: Sequence[PushedJob], bytes_max: int) -> int | None:
    """The quick look: None when `faults` would find something in any job, else the bytes of the longest argument."""
    longest = 0
    for job in jobs:
        name, size = job.name, len(job.argument)
        if size > longest:
            longest = size
        # One chain of comparisons, no calls: this runs for every job that is ever pushed.
        if (
            0 < len(name) <= NAME_LENGTH_MAX
            and name.isprintable()
            and PRIORITY_MIN <= job.priority <= PRIORITY_MAX
            and 0 <= job.max_retry <= MAX_RETRY_MAX
            and 0 < job.timeout <= TIMEOUT_S_MAX
            and size <= bytes_max
            and job.run_at is None
            and job.delay is None
            and job.job_id is None
            and not job.tags
            and not job.replace
        ):
            continue
        if faults(job, bytes_max):
            return None
    return longest


def faults(job: PushedJob, bytes_max: int) -> list[Fault]:
    """The first few things that are wrong with a job whose fields have the right types."""
    return list(islice(_faults(job, bytes_max), FAULTS_MAX))


def explain(error: str, fields: Sequence[str]) -> Fault:
    """What a decoder said of a map that should have had `fields`."""
    if unknown := _UNKNOWN.search(error):
        name = unknown.group(1)[:QUOTE_LENGTH_MAX]
        return Fault(_pointer(name), NOT_YET.get(name) or f"there is no field {name!r}{suggestion(name, fields)}")
    if missing := _MISSING.search(error):
        return Fault(f"/{missing.group(1)}", f"{missing.group(1)} is required")
    where = _WHERE.search(error)
    pointer = where.group(1).replace(".", "/").replace("[", "/").replace("]", "") if where else ""
    detail = _TYPES.sub(partial(_typed, pointer), _WHERE.sub("", error))
    return Fault(pointer[:QUOTE_LENGTH_MAX], detail[:DETAIL_LENGTH_MAX])


def _typed(pointer: str, types: re.Match[str]) -> str:
    """The decoder's words for types are Python's; who pushes may have never seen any."""
    wanted = [WORDS.get(word, word) for word in types[1].split(" | ") if word != "null"]
    got = "a number with a decimal point" if types[2] == "float" else WORDS.get(types[2], types[2])
    unit = " of seconds" if pointer in SECONDS else ""
    return f"{' or '.join(wanted)}{unit} is wanted, not {got}"


def eligible_at_ms(job: PushedJob, now_ms: int) -> int:
    """The date before which a checked job must not start; 0 when it may start at once."""
    if job.delay is not None:
        return now_ms + round(job.delay * 1000) if job.delay else 0
    return 0 if job.run_at is None else instant_ms(job.run_at)


def _faults(job: PushedJob, bytes_max: int) -> Iterator[Fault]:
    if job.job_id is not None and (fault := _id_fault(job.job_id)):
        yield Fault("/job_id", fault)
    if job.replace and job.job_id is None:
        yield Fault("/replace", "replace is about a job_id; give the one whose job is to be replaced")
    if not 0 < len(job.name) <= NAME_LENGTH_MAX:
        yield Fault("/name", f"a name has 1 to {NAME_LENGTH_MAX} characters, this one {len(job.name)}")
    elif not job.name.isprintable():
        yield Fault("/name", f"a name has printable characters only, this one is {job.name!r}")
    if not PRIORITY_MIN <= job.priority <= PRIORITY_MAX:
        yield Fault(
            "/priority", f"a priority is a 32-bit integer, {PRIORITY_MIN} to {PRIORITY_MAX}; this is {job.priority}"
        )
    if not 0 <= job.max_retry <= MAX_RETRY_MAX:
        yield Fault("/max_retry", f"max_retry is 0 to {MAX_RETRY_MAX}, not {job.max_retry}")
    if not 0 < job.timeout <= TIMEOUT_S_MAX:
        yield Fault("/timeout", f"a timeout is above 0 and at most {TIMEOUT_S_MAX:.0f} seconds, not {job.timeout}")
    if job.run_at is not None and job.delay is not None:
        yield Fault("/delay", "run_at and delay exclude each other; give one of them")
    if job.delay is not None and not 0 <= job.delay <= DELAY_S_MAX:
        yield Fault("/delay", f"a delay is 0 to {DELAY_S_MAX:.0f} seconds, not {job.delay}")
    if job.run_at is not None and (fault := _date_fault(job.run_at)):
        yield Fault("/run_at", fault)
    if len(job.argument) > bytes_max:
        yield Fault("/argument", f"an argument has at most {bytes_max} bytes, this one {len(job.argument)}")
    if len(job.tags) > TAGS_MAX:
        yield Fault("/tags", f"a job has at most {TAGS_MAX} tags, this one {len(job.tags)}")
        return
    for index, tag in enumerate(job.tags):
        if not is_name(tag):
            yield Fault(f"/tags/{index}", f"a tag has 1 to {NAME_LENGTH_MAX} printable characters")


def _id_fault(job_id: str) -> str | None:
    if not is_name(job_id):
        return f"a job_id has 1 to {NAME_LENGTH_MAX} printable characters"
    if job_id in (".", ".."):
        return "a job_id stands in URLs, where . and .. mean something else"
    if parse_id(job_id) is not None:
        return "a job_id of this form is one that jqd gives itself; choose another"
    return None


def _date_fault(run_at: str | float) -> str | None:
    try:
        instant_ms(run_at)
    except ValueError as error:
        return str(error)
    return None


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
