"""Makes the callbacks of pushed jobs. A callback is itself a job, which waits for the end of another one
(chaining/callbacks.py).

    unnamed jobs   [job, job, …, callback of the first, …]      one frame: all of it, or nothing
    named jobs     [callback, …] before [job, …]                two frames, one sync: a repeated push repeats the jobs
                                                                alone, so their callbacks must be there first

Named jobs are those with a pusher's own id. If a push fails between the two frames, the callback finds that its job
does not exist. If a job loses its id to another push meanwhile, its callback is cancelled with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from jqd.domain.dates import iso
from jqd.domain.flow import CALLBACK
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import IdRange, homes_of
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.domain.tenant import annotate
from jqd.runner.callbacks import CALLBACKS
from jqd.service.id_reservations import Changes
from jqd.service.services import Services
from jqd.service.settings import save

BACKOFF_S = (1.0, 10.0, 60.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0)  # some 32 hours in all
TIMEOUT_S = 15.0  # as Standard Webhooks advises: a receiver should answer first and work afterwards

_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


def callback(
    url: str, after: Sequence[str], parent: str = "", argument: Any = None, trace: str | None = None
) -> dict[str, Any]:
    """Return the fields of a callback: a job that posts to `url` how the jobs `after` ended.

    `parent`: id of the job whose callback it is; empty for a group's. `trace`: the traceparent of the push.
    """
    traced = {"traceparent": trace} if trace else {}
    return {
        "name": CALLBACK,
        "argument": argument,
        "after": list(after),
        "on_parent_failure": "run",
        "callback": url,
        "parent": parent or None,
        "max_retry": len(BACKOFF_S),
        "backoff": list(BACKOFF_S),
        "timeout": TIMEOUT_S,
        **traced,
    }


async def group_callback(services: Services, url: str, group: str, members: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the callback of a closed group, which waits for all `members`. If there are none, the
    callback can start at once; then the setting of `expect_called` is saved here.

    Raises NotYet, JournalRefused."""
    argument: dict[str, Any] = {"group": group}
    if not members:
        await expect_called(services, services.principal.tenant)
        argument = message("group.ended", iso(services.clock.wall_ms()), {"group": group, "counts": {}})
    return callback(url, sorted(members), argument=argument)


def message(kind: str, at: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a callback's request. `kind`: the type of event. `at`: its date in ISO 8601."""
    return {"type": kind, "timestamp": at, "data": data}


async def expect_called(services: Services, tenant: str) -> None:
    """Save the setting that makes every daemon run the tenant's callbacks, unless it is saved already. Raises NotYet,
    JournalRefused."""
    name = annotate(tenant, CALLBACK)

    def make() -> Mapping[tuple[str, str], bytes]:
        return {} if name in services.workers.own else {(CALLBACKS, name): _encoder.encode(True)}

    if name not in services.workers.own:
        await save(services, make, bounded=False)


def append_callbacks(array: bytes, jobs: Sequence[JobSpec], wanted: Sequence[int], ids: IdRange) -> bytes:
    """Return an array of unnamed jobs followed by their callbacks. `wanted`: indexes of the jobs that have a
    callback."""
    given = ids.ids()
    callbacks = [
        callback(str(jobs[place].callback), [given[place]], given[place], trace=jobs[place].traceparent)
        for place in wanted
    ]
    return _encoder.encode([*_items_decoder.decode(array), *callbacks])


def write_ahead(
    services: Services, jobs: Sequence[JobSpec], wanted: Sequence[int], changes: Changes
) -> Mapping[int, str]:
    """Journal the callbacks of named jobs, before the jobs. `wanted`: indexes of the jobs that have a callback.

    Returns index of a job → id of its callback.
    """
    named = [(jobs[place], changes[place][0]) for place in wanted]
    callbacks = [callback(str(job.callback), [str(job.job_id)], job_id, trace=job.traceparent) for job, job_id in named]
    tenant = services.principal.tenant
    ids = services.journal.ids.take(len(callbacks), homes_of([annotate(tenant, str(job.job_id)) for job, _ in named]))
    head = Head(ids.first, services.clock.wall_ms(), homes=ids.homes, tenant=tenant)
    position = services.journal.write(Lane.JOBS, len(callbacks), encode_jobs(head, _encoder.encode(callbacks)))
    services.journal.ids.note(ids.first, position, tenant)
    return dict(zip(wanted, ids.ids(), strict=True))
