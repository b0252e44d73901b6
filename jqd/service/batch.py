"""Checks a pushed array of jobs: which jobs are accepted, and why the others are refused.

An array without faults costs one decode and a few comparisons per job, and its bytes go to the journal unchanged. Only
an array with a fault is decoded job by job, so that each bad job is named. A large array is checked in short steps.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from jqd.domain import decode_errors
from jqd.domain.array_split import MALFORMED, Steps, array_head, array_items, array_of, cut, finish
from jqd.domain.errors import Fault, TooLarge, Unreadable
from jqd.domain.fields import DECODE_ERRORS, faults_of
from jqd.domain.flow import CALLBACK
from jqd.domain.job import DOTS
from jqd.domain.job_spec import JobSpec
from jqd.domain.msgpack_depth import NESTING_MAX, nests_deeper
from jqd.service.config import ServiceConfig
from jqd.service.job_limits import faults
from jqd.store import Replace

DETAIL_LENGTH_MAX = 300  # characters of a decoder's message
LEVELS_MAX = NESTING_MAX + 2  # the array and the job's map enclose an argument
READ_JOBS, READ_BYTES = 1_000, 256 * 1024  # of an array that is read in one step where no job is wrong: it takes 1 ms
DESCRIBED_MAX = 100  # wrong jobs of a request whose faults are found, in 0.3 ms each, and listed in the answer
DESCRIBED_AT_ONCE = 3  # wrong jobs whose faults are found in one step of `_item_by_item`
UNSAID = Fault("", "it is wrong")  # stands for the faults of each further job, and is in no answer
PLACES = range(1 << 32)  # the indexes of a MessagePack array
EMPTY = "the body is empty; send one job (a map) or several (an array of maps)"
ONE_HEAD = {0x91: 1, 0xDC: 3, 0xDD: 5}  # first byte of a MessagePack array of one item → length of its header
TOO_DEEP = f"an argument nests deeper than {NESTING_MAX} levels; nothing was taken"

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_jobs_decoder = msgspec.msgpack.Decoder(list[JobSpec])
_job_decoder = msgspec.msgpack.Decoder(JobSpec)
_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_maps_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


class Batch(Struct):
    """The jobs of a push: the accepted jobs in order, and the faults of the refused ones."""

    single: bool
    size: int
    """Jobs in the request, good or bad."""
    array: bytes
    """The accepted jobs as one MessagePack array."""
    jobs: list[JobSpec]
    refused: list[Fault] = []
    """The faults of refused jobs. `Fault.place` is the index of the job in the request."""
    plain: bool = False
    """True only if no job has an id of its own, a date, tags, links or another option that `_longest_if_good` lists."""
    key: str = ""
    """With an Idempotency-Key: the id of the first job, which stands for the whole request (`idempotency.py`)."""
    request: str = ""
    """With an Idempotency-Key: the digest of the whole request."""
    is_own: bool = False
    """Whether jqd itself made the batch: then the parents of its jobs are known to exist."""
    over: Replace = Replace.CANCELLED
    """Which stored jobs lose their id to a job of this batch with the same id that does not set `replace`."""

    @property
    def places(self) -> list[int]:
        """Return, for each accepted job in order, its index in the request."""
        bad = {fault.place for fault in self.refused}
        return [place for place in range(self.size) if place not in bad]

    def ids_of_all(self, job_ids: Iterable[str | None]) -> list[str | None]:
        """Return one id per job of the request, None for a refused job. `job_ids`: the ids of the accepted jobs."""
        found = dict(zip(self.places, job_ids, strict=True))
        return [found.get(place) for place in range(self.size)]

    def only(self, kept: Sequence[int]) -> tuple[bytes, list[JobSpec]]:
        """Return some of the accepted jobs, as a MessagePack array and as a list. `kept`: their indexes in `jobs`."""
        items = _items_decoder.decode(self.array)
        return _encoder.encode([items[at] for at in kept]), [self.jobs[at] for at in kept]

    def without(self, faults: Mapping[int, Fault]) -> "Batch":
        """Return the batch with some of its accepted jobs refused. `faults`: index in `jobs` → why the job is
        refused."""
        if not faults:
            return self
        array, jobs = self.only([at for at in range(len(self.jobs)) if at not in faults])
        refused = in_order([*self.refused, *self.placed(faults)])
        return structs.replace(self, array=array, jobs=jobs, refused=refused)

    def placed(self, faults: Mapping[int, Fault]) -> list[Fault]:
        """Return the faults with `place` set to the index of the job in the request. `faults`: index in `jobs` →
        fault."""
        places = self.places
        return [fault._replace(place=places[at]) for at, fault in faults.items()]

    def shown(self, faults: Sequence[Fault]) -> list[Fault]:
        """Return the faults as the client gets them: if it sent one job and no array, they have no index (`place`)."""
        return [fault._replace(place=None) for fault in faults] if self.single else list(faults)


def read_array(data: bytes, single: bool, config: ServiceConfig) -> Batch:
    """Read a MessagePack array of jobs and check each. `single`: the client sent one job, not an array.

    Raises Unreadable if the body is no array of jobs or nests too deep, TooLarge for too many jobs or bytes.
    """
    if not single or not 1 < len(data) <= config.job_bytes_max + 1:
        _expect_array(data, single, config)
    return _read_good(data, single, config) or finish(_item_by_item(data, single, config, DESCRIBED_MAX))


def read_in_pieces(data: bytes, config: ServiceConfig, places: Sequence[int] = PLACES) -> Steps[Batch]:
    """Read a MessagePack array of jobs and check each, in short steps between which other tasks can run. `places`: the
    indexes of its jobs in the request. Raises Unreadable if the body is no array of jobs or nests too deep, TooLarge
    for too many jobs or bytes.

    A body that is no MessagePack is decoded once more in a single step, to get the decoder's message about the fault.
    """
    _expect_array(data, False, config)
    is_short = (array_items(data) or 0) <= READ_JOBS and len(data) <= READ_BYTES
    if is_short and (batch := _read_good(data, False, config)) is not None:
        return batch  # most arrays: to cut them into pieces first would double the time
    try:
        pieces = yield from cut(data)
    except MALFORMED:
        return (yield from _item_by_item(data, False, config, DESCRIBED_MAX, places))
    whole = Batch(False, 0, data, [], plain=True)
    good: list[memoryview] = []
    for piece in pieces:
        array, left = array_of(data, piece), DESCRIBED_MAX - (whole.size - len(whole.jobs))
        its = places[whole.size : whole.size + piece.items]
        part = _read_good(array, False, config) or (yield from _item_by_item(array, False, config, left, its))
        whole.jobs += part.jobs
        whole.refused += part.refused
        whole.size += part.size
        whole.plain &= part.plain
        good.append(memoryview(part.array)[len(array_head(len(part.jobs))) :])
        yield
    if whole.refused:
        whole.array = b"".join([array_head(len(whole.jobs)), *good])
    return whole


def _expect_array(data: bytes, single: bool, config: ServiceConfig) -> None:
    if len(data) == single:
        raise Unreadable(EMPTY)
    expect_bytes(len(data) - single, single, config)
    size = array_items(data)
    if size is not None and size > len(data):
        raise Unreadable(f"the body is no MessagePack: it announces {size} jobs, and ends before that")
    expect_size(size, config)


def _read_good(data: bytes, single: bool, config: ServiceConfig) -> Batch | None:
    """Return the batch if it has no faulty job, else None. Raises Unreadable if it nests too deep."""
    try:
        jobs = _jobs_decoder.decode(data)
    except DECODE_ERRORS:
        return None
    found = _longest_if_good(jobs, config.job_bytes_max)
    if found is None:
        return None
    longest, plain = found
    if longest > NESTING_MAX and nests_deeper(data, LEVELS_MAX):
        raise Unreadable(TOO_DEEP)
    return Batch(single, len(jobs), data, jobs, plain=plain)


def _longest_if_good(jobs: Sequence[JobSpec], bytes_max: int) -> tuple[int, bool] | None:
    """Return the size in bytes of the longest argument or `then`, and whether all jobs are plain (without own id, date,
    tags, links and such options). Return None if any job has a fault. `bytes_max`: the largest allowed argument."""
    longest, plain = 0, True
    for job in jobs:
        size = len(job.argument)
        if size > longest:
            longest = size
        # One chain of comparisons, one call: this runs for every job that is ever pushed.
        if (
            job.name.isprintable()
            and job.name not in DOTS
            and job.run_at is None
            and job.delay is None
            and job.job_id is None
            and not job.tags
            and not job.replace
            and "@" not in job.name
            and " " not in job.name
            and not job.after
            and job.then is UNSET
            and job.group is None
            and job.unique is None
            and job.while_ == "ended"
            and job.on_parent_failure == "fail"
            and not job.one_result
            and job.callback is None
            and job.result_into is None
            and job.debounce is None
            and job.parent is None
            and job.name != CALLBACK
        ):
            continue
        plain = False
        longest = max(longest, 0 if job.then is UNSET else len(job.then))
        if faults(job, bytes_max):
            return None
    return (longest, plain) if longest <= bytes_max else None


def expect_bytes(size: int, single: bool, config: ServiceConfig) -> None:
    """Raise TooLarge if a request of `size` bytes exceeds the limit for one job (`single`), or else for an array."""
    limit = config.job_bytes_max if single else config.array_bytes_max
    if size > limit:
        what = "one job has" if single else "an array of jobs has"
        raise TooLarge(f"{what} at most {limit} bytes, this one {size}")


def expect_alone(array: bytes, config: ServiceConfig) -> None:
    """Raise TooLarge if the only job of an array exceeds the limit for a job that is sent without an array. An array of
    several jobs is not checked."""
    if array_items(array) == 1:
        expect_bytes(len(array) - ONE_HEAD[array[0]], True, config)


def expect_size(size: int | None, config: ServiceConfig) -> None:
    """Raise TooLarge if an array has too many jobs, Unreadable if it has none. `size`: the number of its jobs; None:
    unknown, so nothing is checked."""
    if size is None:
        return
    if size == 0:
        raise Unreadable("the array is empty; send at least one job")
    if size > config.array_jobs_max:
        raise TooLarge(f"more than {config.array_jobs_max} jobs in one request; send them in several")


def _item_by_item(
    data: bytes, single: bool, config: ServiceConfig, described_max: int, places: Sequence[int] = PLACES
) -> Steps[Batch]:
    """Decode and check the jobs one by one, and return the batch of accepted and refused jobs.

    The faults of the first `described_max` wrong jobs are found. `places`: the indexes of the jobs in the request.
    """
    try:
        items = _items_decoder.decode(data)
    except RecursionError as error:
        raise Unreadable(TOO_DEEP) from error
    except DECODE_ERRORS as error:
        raise Unreadable(f"the body is no MessagePack: {decode_errors.why(error, before=single)}") from error
    if nests_deeper(data, LEVELS_MAX):
        raise Unreadable(TOO_DEEP)
    batch = Batch(single, len(items), b"", [])
    good: list[Raw] = []
    for index, item in enumerate(items):
        wrong = index - len(good)
        try:
            job = _job_decoder.decode(item)
        except DECODE_ERRORS:
            found = faults_of(item, JobSpec) if wrong < described_max else [UNSAID]
        else:
            found = faults(job, config.job_bytes_max)
            if not found:
                batch.jobs.append(job)
                good.append(item)
        batch.refused += [fault._replace(place=places[index]) for fault in found]
        if found and wrong % DESCRIBED_AT_ONCE == 0:
            yield
    batch.array = _encoder.encode(good)
    return batch


def in_order(faults: Iterable[Fault]) -> list[Fault]:
    """Sort faults by the index (`place`) of their job in the request."""
    return sorted(faults, key=lambda fault: -1 if fault.place is None else fault.place)


def with_trace(batch: Batch, given: str) -> Batch:
    """Return the batch with the request's `traceparent` header (`given`) set on the jobs that have none. An invalid
    header is ignored, as the specification says: it must not fail a request."""
    if _TRACEPARENT.fullmatch(given) is None or not any(job.traceparent is None for job in batch.jobs):
        return batch
    packed = Raw(_encoder.encode(given))
    items = [{"traceparent": packed, **item} for item in _maps_decoder.decode(batch.array)]
    jobs = [job if job.traceparent else structs.replace(job, traceparent=given) for job in batch.jobs]
    return structs.replace(batch, array=_encoder.encode(items), jobs=jobs)
