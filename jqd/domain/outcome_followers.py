"""Encodes followers, which are jobs that a worker reports with a success to be run next, inside the outcome of their
parent. The store gets both in one call, without a separate push (docs/adr/0047).

Outcome.follows     [ {first: "", at, …}, [ {name, job_id, parent, …}, … ] ]     the body of a `jobs` frame (record.py)
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw

from jqd.domain.dates import instant_ms
from jqd.domain.errors import JournalDamaged
from jqd.domain.followers import Item, encode_as_outbox_entry, is_nil, with_ids
from jqd.domain.job import Job, Outcome
from jqd.domain.job_spec import JobOptions
from jqd.domain.record import Head, decode_jobs, encode_jobs
from jqd.domain.tenant import tenant_of

# Fields that need more than writing the job: only a push does it.
PUSH_ONLY_FIELDS = ("job_id", "group", "unique", "callback")
PARENT = b"\xa6parent"  # the encoded name of a field that each follower has
_FIXMAP, _MAP16 = 8, 0xDE  # MessagePack: upper half of a small map's first byte; first byte of a larger map

Options = list[tuple[JobOptions, list[int]]]
"""Default options, each with the indexes of the jobs that it is for, as `options` of `record.Head`."""

_date_decoder = msgspec.msgpack.Decoder(str | float)
_encoder = msgspec.msgpack.Encoder()


FollowerOptions = Callable[[str, Sequence[Item]], Options | None]
"""A function of (tenant, followers). It returns the default options for these followers, or None if they have to be
pushed separately."""


def push_separately(*_: object) -> None:
    """Return None for any followers, so that they are pushed separately and not applied with the outcome."""


def encode_followers(
    items: Sequence[Item],
    parent: str,
    jobtype: str,
    generation: int,
    ended_at_ms: int,
    trace: str,
    options: FollowerOptions,
) -> bytes:
    """Return the followers of a success, encoded for `Outcome.follows`: as jobs that the store gets with the outcome,
    or as an outbox entry if `options` says that they have to be pushed separately. `items`: the validated followers."""
    parents = parent, jobtype, generation, ended_at_ms, trace
    if (given := options(tenant_of(jobtype), items)) is None:
        return encode_as_outbox_entry(items, *parents)
    return encode_as_jobs(items, *parents, options=given)


def need_push(items: Sequence[Item]) -> bool:
    """Return whether any of the followers has a field that only a separate push can handle."""
    return any(not is_nil(item.get(field)) for item in items for field in PUSH_ONLY_FIELDS)


def encode_as_jobs(
    items: Sequence[Item],
    parent: str,
    jobtype: str,
    generation: int,
    ended_at_ms: int,
    trace: str = "",
    *,
    options: Options,
) -> bytes:
    """Return followers encoded for `Outcome.follows`, as jobs that the store gets with the outcome. `items`: the
    validated followers. `options`: the default options of their jobtypes."""
    jobs = with_ids(items, parent, generation, ended_at_ms, trace)
    eligible = {place: _date_ms(job["run_at"]) for place, job in enumerate(jobs) if not is_nil(job.get("run_at"))}
    head = Head("", ended_at_ms, eligible, options=options, tenant=tenant_of(jobtype))
    return encode_jobs(head, _encoder.encode(jobs))


def has_jobs(follows: bytes) -> bool:
    """Return whether an `Outcome.follows` contains jobs, which the store gets with the outcome. Otherwise it is an
    entry for the outbox, or empty."""
    return len(follows) > 1 and (follows[1] >> 4 == _FIXMAP or follows[1] == _MAP16)


def followers_in(outcomes: Sequence[Outcome]) -> dict[int, list[Job]]:
    """Return index of an outcome → the followers that it contains. Outcomes whose followers cannot be decoded are left
    out; the outbox reports them."""
    found: dict[int, list[Job]] = {}
    for place, outcome in enumerate(outcomes):
        if outcome.follows and has_jobs(outcome.follows):
            with suppress(JournalDamaged):
                found[place] = decode_jobs(outcome.follows)
    return found


def count_followers(outcome: Outcome) -> int:
    """Return an upper bound of the number of jobs that an outcome contains."""
    return outcome.follows.count(PARENT) if outcome.follows else 0


def _date_ms(date: Raw | str) -> int:
    return instant_ms(_date_decoder.decode(date) if isinstance(date, Raw) else date)
