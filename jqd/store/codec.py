"""Encodes jobs and outcomes for Redis, and decodes them. What comes back is untrusted: it is checked, and errors name
its key.

    row of a job    ┌ MessagePack array, read by functions too ───────────────────┬ argument, as it was pushed ┐
                    │ version, jobtype, priority, max_retry, timeout_s, keep, …   │ one MessagePack value      │
                    └─────────────────────────────────────────────────────────────┴────────────────────────────┘
                     … created: ms after the time in its id; then, if needed: eligible_at_ms, name, tags, backoff,
                     queue, expires_at_ms, flow, traceparent

An outcome is kept as in the journal, without its result. `lua/shared/tries.lua` draws a row of failed attempts.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from jqd.domain.errors import StoreRefused, SysidRefused
from jqd.domain.flow import Flow
from jqd.domain.job import NIL, Held, Job, Keep, Outcome, lease_claim
from jqd.domain.jobid import ID_LENGTH, TIME_LENGTH, parse_id
from jqd.domain.results import LargeResult
from jqd.store.keys import Keys
from jqd.store.types import JOINS_MAX, Log, Member, OnItsWay

ROW_VERSION = 1
_LENGTH_BYTES = 4  # of the numbers in a `tries` row
_PAIR = b"\x92"  # MessagePack: an array of two; put before a row it makes header and argument one value

_GENERATION = re.compile(rb"(\d{1,16}):(\d{1,16})(!?)")
_LARGE = re.compile(rb"\xc1([!-~]+) (\d{1,16}) (\d{1,6})")  # its first byte begins no MessagePack
_MEMBER = re.compile(rb"(\d{1,16}):(\d{1,16}):(.*)", re.DOTALL)
_GENERATION_MARK = re.compile(rb"\AG\d{1,16}:")
"""The mark before an outcome: the generation of the content that ran, which functions read."""
_LOG = re.compile(rb"\x01(\d{1,16}) (\d{1,16}) (.*)", re.DOTALL)
LOG_HEAD, LINE_END = b"\x01", "\n"


class _Header(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int
    jobtype: str
    priority: int
    max_retry: int
    timeout: float
    keep_result: Keep
    created: int
    eligible_at_ms: int = 0
    name: str = ""
    tags: tuple[str, ...] = ()
    backoff: float | tuple[float, ...] = ()
    queue: str = ""
    expires_at_ms: int = 0
    flow: Flow | None = None
    traceparent: str = ""


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    header: _Header
    argument: Raw


_encoder = msgspec.msgpack.Encoder()
_row_decoder = msgspec.msgpack.Decoder(_Row)
_any_row_decoder = msgspec.msgpack.Decoder(tuple[list[Any], Raw])  # for rows of any version
_value_decoder = msgspec.msgpack.Decoder(Raw)
_outcome_decoder = msgspec.msgpack.Decoder(Outcome)


class Unreadable(StoreRefused):
    """Raised for a value under one of our keys that jqd did not write. The message names the key and the field."""


def encode_job(job: Job) -> bytes:
    """Encode a job as the value that the store keeps of it (its row). The job's id is not in the row: it is the name of
    the hash field."""
    return encode_header(job) + job.argument


def encode_header(job: Job) -> bytes:
    """Encode the header of a job's row: all its fields but the argument, which follows the header."""
    timeout: float = int(job.timeout) if job.timeout.is_integer() else job.timeout  # one byte instead of nine
    created = job.created_at_ms - _id_ms(job.id[:TIME_LENGTH])
    fields = (ROW_VERSION, job.jobtype, job.priority, job.max_retry, timeout, job.keep_result, created)
    flow, trace = job.flow, job.traceparent
    rare = job.expires_at_ms or job.queue or job.backoff or flow or trace
    if not (rare or job.eligible_at_ms or job.name or job.tags):
        return _encoder.encode(fields)  # the usual case
    more = (job.eligible_at_ms, job.name, job.tags, job.backoff, job.queue, job.expires_at_ms, flow, trace)
    needed = 8 if trace else 7 if flow else 6 if job.expires_at_ms else 5 if job.queue else 4 if job.backoff else 3
    return _encoder.encode((*fields, *more[:needed]))


@lru_cache(maxsize=64)  # jobs that come together have few different times in their ids
def _id_ms(time: str) -> int:
    """Return the date (ms since 1970) from `time`, the beginning of a job id; 0 if jqd did not make the id."""
    parts = parse_id(time.ljust(ID_LENGTH, "0"))
    return 0 if parts is None else parts.at_ms


def decode_job(keys: Keys, job_id: str, row: object, *, bare: bool = False) -> Job:
    """Decode the value (row) that the store keeps of a job. `bare`: without the job's argument. Raises Unreadable, or
    StoreRefused for a row in another format version."""
    try:
        read = _row_decoder.decode(_PAIR + _bytes(row))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise _refused_row(keys, job_id, row, str(error)) from error
    header = read.header
    if header.version != ROW_VERSION:
        raise _refused_row(keys, job_id, row, "")
    return Job(
        job_id,
        header.jobtype,
        NIL if bare else bytes(read.argument),
        created_at_ms=header.created + _id_ms(job_id[:TIME_LENGTH]),
        eligible_at_ms=header.eligible_at_ms,
        name=header.name,
        tags=header.tags,
        expires_at_ms=header.expires_at_ms,
        queue=header.queue,
        priority=header.priority,
        max_retry=header.max_retry,
        keep_result=header.keep_result,
        timeout=header.timeout,
        backoff=header.backoff,
        flow=header.flow,
        traceparent=header.traceparent,
    )


def _refused_row(keys: Keys, job_id: str, row: object, why: str) -> StoreRefused:
    """Return the error for a job's row that cannot be decoded: StoreRefused if another version of jqd wrote the row,
    which is then left as it is; else Unreadable with the reason `why`."""
    with suppress(msgspec.MsgspecError, ValueError, OverflowError, RecursionError, IndexError):
        version = _any_row_decoder.decode(_PAIR + _bytes(row))[0][0]
        if type(version) is int and version != ROW_VERSION:
            described = f"the row of job {job_id!r} under the key {keys['jobs']} has version {version}"
            return StoreRefused(f"{described}, this jqd reads {ROW_VERSION}: use the jqd that wrote it")
    return _unreadable(keys["jobs"], job_id, why)


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome without its result, log and followers, which are stored apart."""
    bare = outcome.result == NIL and not outcome.log and not outcome.follows
    return _encoder.encode(outcome if bare else replace(outcome, result=NIL, log="", log_from=0, follows=b""))


def lines_of(log: str) -> bytes:
    """Return a log as the store keeps it: its last line ends with a line end, too, so that more lines can follow."""
    return f"{log.removesuffix(LINE_END)}{LINE_END}".encode("utf-8", "backslashreplace")


def decode_log(keys: Keys, job_id: str, row: object) -> Log:
    """Decode a job's row in the hash `logs`. Raises Unreadable."""
    data = _bytes(row)
    if not data.startswith(LOG_HEAD):
        return Log(0, 0, data)
    found = _LOG.fullmatch(data)
    if found is None:
        raise _unreadable(keys["logs"], job_id, "it does not begin with the fence of its attempt")
    return Log(int(found[1]), int(found[2]), found[3])


def decode_outcome(keys: Keys, name: str, job_id: str, row: object) -> Outcome:
    """Decode an outcome that was found under the key called `name`. Raises Unreadable."""
    try:
        return _outcome_decoder.decode(_GENERATION_MARK.sub(b"", _bytes(row), 1))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise _unreadable(keys[name], job_id, str(error)) from error


def decode_value(keys: Keys, name: str, job_id: str, row: object) -> bytes | None:
    """Return a value of the store's key `name` (`row`) as it is, after checking that it is one MessagePack value; None
    stays None. Raises Unreadable."""
    try:
        return None if row is None else bytes(_value_decoder.decode(_bytes(row)))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(keys[name], job_id, str(error)) from error


def encode_large(large: LargeResult) -> bytes:
    """Return the row of a large result, which lua/shared/results.lua describes."""
    return b"\xc1%b %d %d" % (large.named.encode(), large.bytes, large.pieces)


def decode_result(keys: Keys, job_id: str, row: object) -> bytes | LargeResult | None:
    """Decode a kept result: its value, or where its pieces are; None if there is none. Raises Unreadable."""
    if isinstance(row, bytes) and (large := _LARGE.fullmatch(row)):
        return LargeResult(large[1].decode(), int(large[2]), int(large[3]))
    return decode_value(keys, "result", job_id, row)


def decode_lease_outcome(keys: Keys, flat: Sequence[object]) -> Outcome:
    """Decode a job that a worker holds by itself, as the outcome by which a journal notes that. Raises Unreadable."""
    given, fence, silence_s, worker, row, tries, generation = flat
    job_id = text(keys, "held", given)
    held = decode_held(keys, job_id, whole(keys, "held", fence), row, tries or None, generation or None)
    allowed_s = whole(keys, "leases", silence_s)
    return lease_claim(held, worker=text(keys, "leases", worker), silence_s=allowed_s, started_at_ms=held.fence // 1000)


def decode_generation(keys: Keys, job_id: str, row: object) -> tuple[int, int, bool]:
    """Return three values about a job's changes: the number of the last change (revision), the number of the job's
    content (generation), and whether the last change came too late, because the job was running or had ended. `row`:
    None if the job was never changed. Raises Unreadable."""
    if row is None:
        return 0, 0, False
    found = _GENERATION.fullmatch(row) if isinstance(row, bytes) else None
    if found is None:
        raise _unreadable(keys["generation"], job_id, "it is not revision:generation")
    return int(found[1]), int(found[2]), bool(found[3])


def failed_attempts(keys: Keys, job_id: str, row: object) -> int:
    """Return how many attempts of a job failed, by its value in the store's hash `tries`; 0 if it has none there.
    Raises Unreadable."""
    if row is None:
        return 0
    if not isinstance(row, bytes) or len(row) < _LENGTH_BYTES:
        raise _unreadable(keys["tries"], job_id, "it is cut short")
    return int.from_bytes(row[:_LENGTH_BYTES], "big")


def decode_tries(keys: Keys, job_id: str, row: object, *, last: bool = False) -> tuple[int, list[Outcome]]:
    """Return how many attempts of a job failed, and the outcomes that are kept of them, oldest first. Raises
    Unreadable.

    `last`: whether to decode only the outcome of the last attempt."""
    count = failed_attempts(keys, job_id, row)
    outcomes: list[Outcome] = []
    if row is not None:
        rest = _bytes(row)[_LENGTH_BYTES:]
        while rest and not (last and outcomes):
            size = int.from_bytes(rest[:_LENGTH_BYTES], "big")
            if size:  # an empty one says that those behind it are of earlier contents
                outcomes.append(decode_outcome(keys, "tries", job_id, rest[_LENGTH_BYTES : _LENGTH_BYTES + size]))
            rest = rest[_LENGTH_BYTES + size :]
    return count, outcomes[::-1]


def attempt(job: Job, number: int) -> int:
    """Return the number of an attempt: `number`, but at most the number of attempts that the job may have.

    A store that was emptied may get earlier attempts after later ones, and then counts too many."""
    return min(number, job.max_retry + 1)


def decode_held(
    keys: Keys, job_id: str, fence: int, row: object, tries: object, generation: object, *, bare: bool = False
) -> Held:
    """Decode a job in flight from its values in the store's hashes `jobs`, `tries` and `generation`; a value is None if
    the hash does not have the job. `bare`: without the job's argument. Raises Unreadable."""
    if tries is None and generation is None:  # the usual case
        return Held(decode_job(keys, job_id, row, bare=bare), fence, 1)
    began = 0 if generation is None else decode_generation(keys, job_id, generation)[1]
    failed = 0 if tries is None else failed_attempts(keys, job_id, tries)
    snoozes = interruptions = 0
    with suppress(Unreadable):  # the job can still run, and its view reports the damage
        for last in decode_tries(keys, job_id, tries, last=True)[1]:
            if last.for_generation >= began:
                snoozes, interruptions = last.snoozes, last.interruptions
    job = decode_job(keys, job_id, row, bare=bare)
    return Held(job, fence, attempt(job, failed + 1), began, snoozes, interruptions)


def decode_members(keys: Keys, flat: list[object], identity: str) -> dict[str, Member]:
    """Return sysid → member, from a list of sysids and their values in turn. `identity`: that of the present life of
    the store; a member whose value names it came through recovery in this life. Raises Unreadable."""
    members = {}
    for sysid, row in zip(flat[::2], flat[1::2], strict=True):
        found = _MEMBER.fullmatch(row) if isinstance(row, bytes) else None
        if found is None:
            raise _unreadable(keys["members"], repr(sysid), "it is not counter:epoch:identity")
        through = found[3] == identity.encode()
        members[text(keys, "members", sysid)] = Member(int(found[1]), int(found[2]), through)
    return members


def list_of(keys: Keys, name: str, answer: object) -> list[object]:
    """Return an answer that must be an array. Raises Unreadable, which names the key that the answer was read from."""
    if not isinstance(answer, list):
        raise _unreadable(keys[name], "?", f"the function answered {type(answer).__name__} instead of a list")
    return answer


def fields(keys: Keys, name: str, answer: object, count: int) -> list[object]:
    """Return an answer that must be an array of at most `count` values, padded with None. Raises Unreadable.

    An array from Lua ends before its first nil."""
    row = list_of(keys, name, answer)
    if len(row) > count:
        raise _unreadable(keys[name], "?", f"the function answered {len(row)} values instead of {count}")
    return row + [None] * (count - len(row))


def text(keys: Keys, name: str, value: object) -> str:
    """Decode text that was read from the key called `name`: an id, jobtype or sysid. Raises Unreadable."""
    try:
        return _bytes(value).decode()
    except ValueError as error:
        raise _unreadable(keys[name], repr(value), "it is not UTF-8 text") from error


def score(keys: Keys, name: str, value: object) -> float:
    """Decode the score of a member of a sorted set, the key called `name`. Raises Unreadable."""
    try:
        return float(_bytes(value))
    except ValueError as error:
        raise _unreadable(keys[name], repr(value), "it is not a number") from error


def whole(keys: Keys, name: str, value: object) -> int:
    """Decode a whole number that was read from the key called `name`: an integer reply, digits, or a score without its
    fraction. Raises Unreadable."""
    if isinstance(value, int):
        return value
    try:
        number = _bytes(value)
        return int(number) if number.lstrip(b"-").isdigit() else int(score(keys, name, number))
    except (ValueError, OverflowError) as error:
        raise _unreadable(keys[name], repr(value), "it is not a number") from error


def sysid_refused(sysid: str) -> SysidRefused:
    return SysidRefused(
        f"{sysid} joined {JOINS_MAX} times within minutes and died each time before its journal was applied, while "
        "all daemons of the store waited: they go on without it, and it comes back behind them, or in a minute. Look "
        "in its log for what ended it; jobs that ended here may run once more"
    )


# ---------------------------------------------------------------- one job, as a person sees it


def journal_of(job_id: str) -> int | None:
    """Return the number of the journal that made an id; None if no journal did."""
    parts = parse_id(job_id)
    return None if parts is None else parts.journal


def on_its_way(job_id: str, last_id: str | None) -> OnItsWay | None:
    """Return OnItsWay if a job that is not in the store may still be applied from its journal, else None.

    `last_id`: the last job id that was applied from this journal; None: the store does not know the journal."""
    if last_id is None or journal_of(job_id) is None or job_id <= last_id:
        return None
    return OnItsWay(last_id)


def newest_id(job_ids: Iterable[str]) -> str:
    """Return the newest id of a batch. Returns "" for an empty batch, and if no journal made the newest id: such an id
    does not tell which ids may still come."""
    newest = max(job_ids, default="")
    return newest if parse_id(newest) is not None else ""


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"bytes expected, got {type(value).__name__}")
    return value


def _unreadable(key: str, field: str, why: str) -> Unreadable:
    return Unreadable(f"the key {key} holds something at {field!r} that jqd did not write: {why}; look at it by hand")
