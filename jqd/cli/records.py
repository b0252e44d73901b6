"""Formats records of a journal for `jqd journal cat`: as JSON lines, or in miniq's form `id|jobtype|payload`.

Values that JSON does not have are written as jqd/domain/json_ext.py says.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from jqd.cli.argument import value as meant
from jqd.cli.exits import Usage
from jqd.domain.dates import INSTANT_MS_MAX, iso
from jqd.domain.job import Job, Outcome
from jqd.domain.job_spec import KEPT
from jqd.domain.json_ext import show_packed
from jqd.domain.record import DECODERS, Lane, split_cancel
from jqd.domain.settings import Setting
from jqd.domain.tenant import bare, tenant_of
from jqd.journal.frame import Frame

SECRETS = frozenset({"headers", "secrets", "hash"})  # fields of workers and tokens that are hidden
HIDDEN = "(not shown)"

_encoder = msgspec.json.Encoder()  # several times as fast as `json`


class Record(NamedTuple):
    """A decoded record of a journal."""

    position: int
    lane: Lane
    at_ms: int
    """When the job was pushed; for other records, when they were written."""
    what: Job | Outcome | Setting | str

    @property
    def jobtype(self) -> str | None:
        """Jobtype of a job or an outcome; None for a cancel or a setting, which have none."""
        return None if isinstance(self.what, str | Setting) else bare(self.what.jobtype)

    def as_json(self) -> str:
        fields = {"position": self.position, "lane": self.lane.name.lower(), "at": _date(self.at_ms)}
        return _encoder.encode(fields | _fields(self.what)).decode()


def records(frame: Frame) -> Iterator[Record]:
    """Yield the records of a frame, decoded. Raises JournalDamaged if the frame's checksum is right, but its body
    cannot be decoded."""
    lane = Lane(frame.kind)
    for position, what in enumerate(DECODERS[lane](frame.body), frame.start):
        at_ms = what.created_at_ms if isinstance(what, Job) else frame.at_ms
        yield Record(position, lane, at_ms, what)


def _named(jobtype: str) -> dict[str, str]:
    tenant = tenant_of(jobtype)
    return {"name": bare(jobtype), **({"tenant": tenant} if tenant else {})}


def line(job: Job) -> str:
    """Format a job in miniq's form, `id|jobtype|payload`. `jqd push --lines` reads the payload as the job's
    argument."""
    return f"{job.id}|{bare(job.jobtype)}|{payload(job.argument)}"


def payload(argument: bytes) -> str:
    """Format a job's argument (MessagePack) on one line. A text is written without quotes if `jqd push --lines` reads
    it as the same text; any other value as JSON."""
    value = show_packed(argument)
    if isinstance(value, str) and value.isprintable() and value.strip() and _means_itself(value):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value).replace("\x7f", "\\u007f")


def _means_itself(text: str) -> bool:
    try:
        return bool(meant(text, "") == text)
    except Usage:
        return False  # a number too large for a job


def _without_secrets(shown: Any) -> Any:
    """Return a value with the fields in SECRETS replaced by HIDDEN. They may lie deep: a handler's record has the
    options of each version."""
    match shown:
        case dict():
            return {
                key: HIDDEN if key in SECRETS and value else _without_secrets(value) for key, value in shown.items()
            }
        case list():
            return [_without_secrets(each) for each in shown]
    return shown


def _fields(what: Job | Outcome | Setting | str) -> dict[str, Any]:
    match what:
        case Setting():
            body = show_packed(bytes(what.body))
            return {"kind": what.kind, "name": what.name, "revision": what.revision, "body": _without_secrets(body)}
        case str():
            job_id, generation = split_cancel(what)
            return {"job_id": job_id} | ({"generation": generation} if generation else {})
        case Job():
            change = what.change
            return {
                "job_id": what.id,
                **_named(what.jobtype),
                "argument": show_packed(what.argument),
                **{name: getattr(what, name) for name in KEPT},
                "eligible_at": _date(what.eligible_at_ms),
                "chosen_id": bare(what.name) or None,
                "tags": what.tags,
                "backoff": what.backoff or None,
                "expires_at": _date(what.expires_at_ms),
            } | ({"change": change.kind.name.lower(), "revision": change.revision} if change else {})
    fields = {name: getattr(what, name) for name in ("priority", "attempt", "status", "delay_ms")}
    dates = {"started_at": _date(what.started_at_ms), "finished_at": _date(what.finished_at_ms)}
    values = {"worker": what.worker, "reason": what.reason, "error": show_packed(what.error), "message": what.message}
    kept = {"result": show_packed(what.result), "keep_result": what.keep_result, "fence": what.fence}
    rare = {name: value for name in ("snoozes", "interruptions", "log") if (value := getattr(what, name))}
    if what.follows:
        rare["follows"] = show_packed(what.follows)
    begins = {"job_id": what.job_id, **_named(what.jobtype), "fate": what.fate.name.lower()}
    return begins | fields | dates | values | kept | rare


def _date(at_ms: int) -> str | None:
    """Format an instant (Unix ms) as ISO 8601. Returns None for 0, and a number outside the calendar as digits."""
    if not at_ms:
        return None
    return iso(at_ms) if 0 < at_ms <= INSTANT_MS_MAX else str(at_ms)
