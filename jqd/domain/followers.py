"""Followers: jobs that a worker names with a success; part of that outcome, pushed when the outcome counts
(docs/adr/0047).

    {type: "success", jobs: [{name, …}, …]} ──brought──▶ Outcome.follows ──apply_outcomes──▶ ready
                                             ──named────▶ Outcome.follows ──apply_outcomes──▶ outbox ──▶ pushed

Each has an id made of its parent, the parent's generation and its place. So it is one job, however often it comes.
Those that take a push go by the outbox (`brought.py`).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from jqd.domain.dates import iso
from jqd.domain.tenant import tenant_of

FOLLOWERS_MAX = 500  # of one success: as many names as one call of the store gives
FOLLOWERS_BYTES_MAX = 1 << 20  # all of them together: what one call of the store takes

Item = dict[str, Any]
"""A job that is to follow: what jqd did not put there is Raw."""

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_delay_decoder = msgspec.msgpack.Decoder(float)
_entry_decoder = msgspec.msgpack.Decoder(tuple[str, Raw])
_encoder = msgspec.msgpack.Encoder()


def items_of(follows: bytes) -> list[Item]:
    """Return jobs that are to follow, from a MessagePack array of them."""
    return _items_decoder.decode(follows)


def named(
    items: Iterable[Item], parent: str, jobtype: str, generation: int, ended_at_ms: int, trace: str = ""
) -> bytes:
    """Return checked followers as an outcome holds those that have to be pushed: with ids, and their tenant."""
    return _encoder.encode((tenant_of(jobtype), with_ids(items, parent, generation, ended_at_ms, trace)))


def with_ids(items: Iterable[Item], parent: str, generation: int, ended_at_ms: int, trace: str = "") -> list[Item]:
    """Return checked followers with ids, with dates in place of delays, which count from the parent's end, and in the
    trace of the parent, if they name none."""
    return [_named(item, parent, generation, place, ended_at_ms, trace) for place, item in enumerate(items)]


def follower_id(parent: str, generation: int, place: int) -> str:
    """Return the id of a follower without an id of its own (`jobid.is_made`)."""
    return f"{parent}.{generation}.{place}" if generation else f"{parent}.{place}"


class OutboxEntry(NamedTuple):
    """An entry of an outbox: a parent's id and the jobs that follow its success."""

    parent: str
    tenant: str
    jobs: Raw
    """A MessagePack array."""


def read_entry(entry: bytes) -> OutboxEntry:
    """Read an entry. Raises ValueError for what no function wrote."""
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
    """Return whether a field of an item is left out."""
    return raw is None or (isinstance(raw, Raw) and bytes(raw) == b"\xc0")
