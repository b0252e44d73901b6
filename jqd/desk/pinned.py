"""Jobs that are for one version of a handler alone, by their type: `name@3`."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from jqd.desk.batch import Batch, in_order
from jqd.desk.desk import Desk
from jqd.desk.rules import learned
from jqd.runner.handler import Handler, is_version
from jqd.words.errors import Fault
from jqd.words.tenant import bare

_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


async def refuse_unset(desk: Desk, batch: Batch) -> Batch:
    """The same without jobs for versions that were never set: they would wait for ever, or for a work not meant.

    A version that is gone takes jobs: they wait, and that is said of them. So does what is like one and none.
    """
    pinned = {desk.own(job.name) for job in batch.jobs if "@" in job.name and is_version(job.name)}
    # The store is asked once for all of them: a look takes up to a second.
    if not pinned or await learned(desk, lambda: not _unset(desk, pinned) or None):
        return batch
    return _without(batch, {bare(name): _why_unset(desk, name) for name in _unset(desk, pinned)})


def refuse_foreign(desk: Desk, batch: Batch) -> Batch:
    """The same without jobs of types that are none of those that a token is for."""
    foreign = {job.name for job in batch.jobs if not desk.principal.knows(desk.own(job.name))}
    return _without(batch, {name: f"this token is not for jobs {name[:64]!r}" for name in foreign})


def why_gone(desk: Desk, jobtype: str) -> str | None:
    """What is to be said of jobs that were pushed for one version of a handler which is gone; None of all others."""
    name, handler, number = _parts(desk, jobtype)
    if handler is None or any(version.number == number and not version.out for version in handler.versions):
        return None
    name = bare(name)
    return f"version {number} of handler {name!r} is gone: these jobs wait; cancel them, or push them for {name!r}"


def _unset(desk: Desk, pinned: set[str]) -> set[str]:
    """Those of versions that were never set, as far as is known here, and that no worker takes by name."""
    taken = (worker.jobs for worker in desk.workers.list() if worker.jobs)
    return {name for name in pinned.difference(*taken) if not _was_set(desk, name)}


def _was_set(desk: Desk, jobtype: str) -> bool:
    _, handler, number = _parts(desk, jobtype)
    return handler is None or 1 <= number <= handler.last


def _why_unset(desk: Desk, jobtype: str) -> str:
    name, handler, number = _parts(desk, jobtype)
    kept = ", ".join(str(version.number) for version in handler.versions) if handler else ""
    there_are = f"it has {kept}" if kept else "it has none any more"
    return f"handler {bare(name)[:64]!r} never had a version {number}; {there_are}"


def _parts(desk: Desk, jobtype: str) -> tuple[str, Handler | None, int]:
    name, at, number = jobtype.rpartition("@")
    is_one = bool(at) and number.isascii() and number.isdecimal()
    return name, desk.workers.handler(name) if is_one else None, int(number[:16]) if is_one else 0


def _without(batch: Batch, why: Mapping[str, str]) -> Batch:
    bad = {fault.place for fault in batch.refused}
    places = [place for place in range(batch.size) if place not in bad]
    rows = list(zip(places, _decoder.decode(batch.array), batch.jobs, strict=True))
    faults = [Fault("/name", why[job.name], place) for place, _, job in rows if job.name in why]
    good = [(item, job) for _, item, job in rows if job.name not in why]
    array = _encoder.encode([item for item, _ in good])
    return Batch(batch.single, batch.size, array, [job for _, job in good], in_order([*batch.refused, *faults]))
