"""Pages of daemons and workers: those that are there, and those that went away within the last day."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant, Worker
from jqd.domain.tenant import bare, tenant_of
from jqd.runner.departures import Gone

GONE = "on the first page: what went within the last day, the newest first, at most 100, those that died before others"


class Daemon(Struct, frozen=True):
    """A daemon of the store."""

    daemon: str
    this: bool
    living: Annotated[bool | None, Meta(description="null: not known, the store is away")]
    through: bool
    last_seen_s: float
    in_flight: int | None
    drained_at: Instant | None = None
    """Drained since."""


class GoneDaemon(Struct, frozen=True):
    """A daemon that went away within the last 24 hours."""

    daemon: str
    how: Annotated[Literal["died", "left"], Meta(description="`left`: it was stopped in good order")]
    at: Instant | None
    """When that was seen."""
    last_seen_at: Annotated[Instant | None, Meta(description="its last sign of life; null: not known")]
    jobs: Annotated[int, Meta(description="in flight there, and ready again since")]
    by: Annotated[Sequence[str], Meta(description="daemons that gave them back, or saw it go")]
    times: Annotated[int, Meta(description="how often within the day")]


class Daemons(Struct, frozen=True):
    """One page of daemons."""

    daemons: Sequence[Daemon]
    cursor: str
    """Where the next page begins; empty: there is none."""
    gone: Annotated[Sequence[GoneDaemon], Meta(description=GONE)] | UnsetType = UNSET


class GoneWorker(Struct, frozen=True, kw_only=True):
    """A worker that went away within the last 24 hours, and has not come back."""

    worker_id: str
    name: str
    tenant: str | UnsetType = UNSET
    how: Annotated[Literal["died", "left"], Meta(description="`left`: it was unregistered")]
    at: Instant | None
    last_seen_at: Instant | None
    jobs: Annotated[int, Meta(description="in flight there that went back or failed an attempt as it fell silent")]
    by: Sequence[str]
    times: int


class Workers(Struct, frozen=True):
    """One page of workers."""

    workers: Sequence[Worker]
    cursor: str
    """Where the next page begins; empty: there is none."""
    gone: Annotated[Sequence[GoneWorker], Meta(description=GONE)] | UnsetType = UNSET


def gone_daemon(gone: Gone) -> GoneDaemon:
    row = gone.row
    return GoneDaemon(row.name, _how(gone), iso(row.at_ms), iso(row.last_seen_at_ms), row.jobs, gone.by, row.times)


def gone_worker(gone: Gone) -> GoneWorker:
    row = gone.row
    return GoneWorker(
        worker_id=bare(row.name),
        name=row.called,
        tenant=tenant_of(row.name) or UNSET,
        how=_how(gone),
        at=iso(row.at_ms),
        last_seen_at=iso(row.last_seen_at_ms),
        jobs=row.jobs,
        by=gone.by,
        times=row.times,
    )


def _how(gone: Gone) -> Literal["died", "left"]:
    return "died" if gone.row.died else "left"
