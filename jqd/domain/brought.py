"""Followers that need no push: their outcome brings them, and the store gets both in one call (docs/adr/0047).

Outcome.follows     [ {first: "", at, …}, [ {name, job_id, parent, …}, … ] ]     the body of a `jobs` frame (record.py)
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw

from jqd.domain.dates import instant_ms
from jqd.domain.errors import JournalDamaged
from jqd.domain.followers import Item, is_nil, named, with_ids
from jqd.domain.job import Job, Outcome
from jqd.domain.job_spec import JobOptions
from jqd.domain.record import Head, decode_jobs, encode_jobs
from jqd.domain.tenant import tenant_of

BY_PUSH = ("job_id", "group", "unique", "callback")  # fields of which a push has more to do than to write the job
PARENT = b"\xa6parent"  # a field that each follower has, as it is encoded
_FIXMAP, _MAP16 = 8, 0xDE  # MessagePack: the first half of the byte with which a small map begins; the byte of a larger

Options = list[tuple[JobOptions, list[int]]]
"""As in `record.Head`."""

_date_decoder = msgspec.msgpack.Decoder(str | float)
_encoder = msgspec.msgpack.Encoder()


FollowerOptions = Callable[[str, Sequence[Item]], Options | None]
"""Tenant, followers → what was registered and they leave out; None: they have to be pushed."""


def by_push(*_: object) -> None:
    """Have followers pushed."""


def following(
    items: Sequence[Item],
    parent: str,
    jobtype: str,
    generation: int,
    ended_at_ms: int,
    trace: str,
    options: FollowerOptions,
) -> bytes:
    """Return checked followers as their parent's outcome holds them: brought by it, or for the outbox."""
    parents = parent, jobtype, generation, ended_at_ms, trace
    if (given := options(tenant_of(jobtype), items)) is None:
        return named(items, *parents)
    return brought(items, *parents, options=given)


def need_push(items: Sequence[Item]) -> bool:
    """Return whether any of these followers asks for more than to be there: its outcome cannot bring it then."""
    return any(not is_nil(item.get(field)) for item in items for field in BY_PUSH)


def brought(
    items: Sequence[Item],
    parent: str,
    jobtype: str,
    generation: int,
    ended_at_ms: int,
    trace: str = "",
    *,
    options: Options,
) -> bytes:
    """Return checked followers as the outcome that brings them holds them."""
    jobs = with_ids(items, parent, generation, ended_at_ms, trace)
    eligible = {place: _date_ms(job["run_at"]) for place, job in enumerate(jobs) if not is_nil(job.get("run_at"))}
    head = Head("", ended_at_ms, eligible, options=options, tenant=tenant_of(jobtype))
    return encode_jobs(head, _encoder.encode(jobs))


def has_jobs(follows: bytes) -> bool:
    """Return whether what follows a success (`Outcome.follows`) is a `jobs` frame's body, and part of that outcome: the
    store gets both at once. Else it is an entry for the outbox."""
    return len(follows) > 1 and (follows[1] >> 4 == _FIXMAP or follows[1] == _MAP16)


def followers_in(outcomes: Sequence[Outcome]) -> dict[int, list[Job]]:
    """Return place → jobs that an outcome brings. What cannot be decoded is left to the outbox, which reports it."""
    found: dict[int, list[Job]] = {}
    for place, one in enumerate(outcomes):
        if one.follows and has_jobs(one.follows):
            with suppress(JournalDamaged):
                found[place] = decode_jobs(one.follows)
    return found


def count_followers(outcome: Outcome) -> int:
    """Return how many jobs an outcome brings, at most."""
    return outcome.follows.count(PARENT) if outcome.follows else 0


def _date_ms(date: Raw | str) -> int:
    return instant_ms(_date_decoder.decode(date) if isinstance(date, Raw) else date)
