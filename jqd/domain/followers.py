"""Followers: jobs that a worker reports with a success, to be run next. They are part of the outcome, and exist as soon
as the outcome is accepted (docs/adr/0047).

    {type: "success", jobs: [{name, …}, …]}
        ──encode_as_jobs──────────▶ Outcome.follows ──apply_outcomes──▶ ready
        ──encode_as_outbox_entry──▶ Outcome.follows ──apply_outcomes──▶ outbox ──▶ pushed

A follower's id consists of its parent's id, the parent's generation and the follower's index. So it stays one job even
if the outcome is reported twice. Followers that need a separate push go through the outbox (`outcome_followers.py`).
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
"""A job that is to follow: field → value. Values that the worker sent are `msgspec.Raw`."""

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_delay_decoder = msgspec.msgpack.Decoder(float)
_entry_decoder = msgspec.msgpack.Decoder(tuple[str, Raw])
_encoder = msgspec.msgpack.Encoder()


def items_of(follows: bytes) -> list[Item]:
    """Decode a MessagePack array of followers."""
    return _items_decoder.decode(follows)


def encode_as_outbox_entry(
    items: Iterable[Item], parent: str, jobtype: str, generation: int, ended_at_ms: int, trace: str = ""
) -> bytes:
    """Return validated followers that have to be pushed separately, encoded for `Outcome.follows` as an outbox entry:
    the tenant, and the jobs with their ids."""
    return _encoder.encode((tenant_of(jobtype), with_ids(items, parent, generation, ended_at_ms, trace)))


def with_ids(items: Iterable[Item], parent: str, generation: int, ended_at_ms: int, trace: str = "") -> list[Item]:
    """Return validated followers as they are pushed. A follower without an id gets one, made from the id and generation
    of its parent; a delay becomes a date, counted from the parent's end; and a follower without a traceparent gets
    `trace`, its parent's."""
    return [_with_id(item, parent, generation, place, ended_at_ms, trace) for place, item in enumerate(items)]


def follower_id(parent: str, generation: int, place: int) -> str:
    """Return the id of a follower to which the worker gave no id (`jobid.is_made`). `place`: the follower's index in
    its outcome."""
    return f"{parent}.{generation}.{place}" if generation else f"{parent}.{place}"


class OutboxEntry(NamedTuple):
    """One decoded entry of an outbox: a parent's id and the jobs that follow its success."""

    parent: str
    tenant: str
    jobs: Raw
    """The jobs, as a MessagePack array."""


def read_entry(entry: bytes) -> OutboxEntry:
    """Decode an entry of an outbox. Raises ValueError if it is malformed."""
    parent, _, follows = entry.partition(b" ")
    tenant, jobs = _entry_decoder.decode(follows)
    return OutboxEntry(parent.decode(), tenant, jobs)


def _with_id(item: Item, parent: str, generation: int, place: int, ended_at_ms: int, trace: str) -> Item:
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
    """Return whether a field's value is missing or nil."""
    return raw is None or (isinstance(raw, Raw) and bytes(raw) == b"\xc0")
