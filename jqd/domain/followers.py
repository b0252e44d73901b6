"""Followers: jobs that a worker reports with a success. They are part of that outcome, and exist once it counts
(docs/adr/0047).

    {type: "success", jobs: [{name, …}, …]} ──brought──▶ Outcome.follows ──apply_outcomes──▶ ready
                                             ──named────▶ Outcome.follows ──apply_outcomes──▶ outbox ──▶ pushed

A follower's id is made of its parent's id, the parent's generation and its place, so it is one job however often it
comes. Followers that need a push go by the outbox (`brought.py`).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from jqd.domain.dates import iso
from jqd.domain.tenant import tenant_of

FOLLOWERS_MAX = 500  # of one success: as many names as one call of the store reserves
FOLLOWERS_BYTES_MAX = 1 << 20  # of one success: as much as one call of the store takes

Item = dict[str, Any]
"""A job that is to follow, by field. Values that the worker sent are Raw."""

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_delay_decoder = msgspec.msgpack.Decoder(float)
_entry_decoder = msgspec.msgpack.Decoder(tuple[str, Raw])
_encoder = msgspec.msgpack.Encoder()


def items_of(follows: bytes) -> list[Item]:
    """Decode a MessagePack array of jobs that are to follow."""
    return _items_decoder.decode(follows)


def named(
    items: Iterable[Item], parent: str, jobtype: str, generation: int, ended_at_ms: int, trace: str = ""
) -> bytes:
    """Return the `Outcome.follows` for checked followers that have to be pushed: the tenant, and jobs with ids."""
    return _encoder.encode((tenant_of(jobtype), with_ids(items, parent, generation, ended_at_ms, trace)))


def with_ids(items: Iterable[Item], parent: str, generation: int, ended_at_ms: int, trace: str = "") -> list[Item]:
    """Return checked followers with ids; with dates instead of delays, which count from the parent's end; and with the
    parent's traceparent, if they have none."""
    return [_named(item, parent, generation, place, ended_at_ms, trace) for place, item in enumerate(items)]


def follower_id(parent: str, generation: int, place: int) -> str:
    """Return the id that jqd makes for a follower without an id of its own (`jobid.is_made`)."""
    return f"{parent}.{generation}.{place}" if generation else f"{parent}.{place}"


class OutboxEntry(NamedTuple):
    """An entry of an outbox: a parent's id and the jobs that follow its success."""

    parent: str
    tenant: str
    jobs: Raw
    """A MessagePack array."""


def read_entry(entry: bytes) -> OutboxEntry:
    """Decode an entry of an outbox. Raises ValueError if it is malformed."""
    parent, _, follows = entry.partition(b" ")
    tenant, jobs = _entry_decoder.decode(follows)
    return OutboxEntry(parent.decode(), tenant, jobs)


def _named(item: Item, parent: str, generation: int, place: int, ended_at_ms: int, trace: str) -> Item:
    job = {**item}
    if is_nil(item.get("job_id")):
        job["job_id"] = follower_id(parent, generation, place)
    job["parent"] = parent
    if trace and is_nil(item.get("traceparent")):
        job["traceparent"] = trace
    if "delay" in job:
        delay = job.pop("delay")
        if not is_nil(delay):
            job["run_at"] = iso(ended_at_ms + round(_delay_decoder.decode(delay) * 1000))
    return job


def is_nil(raw: Raw | str | None) -> bool:
    """Return whether a field of an item is missing or nil."""
    return raw is None or (isinstance(raw, Raw) and bytes(raw) == b"\xc0")
