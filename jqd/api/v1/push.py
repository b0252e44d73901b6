"""POST /v1/jobs: body → a batch → one call of the service → ids. Plain data in and out, whatever listens before it."""

from typing import Annotated
from urllib.parse import quote

import trio
from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import YES, Flag, read_query
from jqd.api.message import ApiRequest, ApiResponse, answer
from jqd.api.problems import errors_of
from jqd.api.v1.body import read_push
from jqd.api.v1.responses import PushedJob, PushedJobs
from jqd.domain.errors import Invalid
from jqd.service.idempotency import KEY_LENGTH_MAX, under_key
from jqd.service.push import FSYNC, Ack, Level, expect_open
from jqd.service.push import push as push_batch

KEY_HEADER = "idempotency-key"
KEYED_AT_ONCE = 1_000  # jobs named in one piece: 4 ms, and a thread for more
REPLICAS_MAX = 100  # nobody has more; a number above it is a mistake


class PushQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a push."""

    ack: Level | UnsetType = UNSET
    replicas: Annotated[int, Meta(ge=0, le=REPLICAS_MAX, description=f"a whole number from 0 to {REPLICAS_MAX}")] = 0
    atomic: Flag = "0"


async def push(parts: ApiContext, request: ApiRequest) -> ApiResponse:
    """Take one job or many. 201 means: on this daemon's disk, synced (unless `?ack=memory` asked for less).

    200: the same was pushed before. 207: some of an array are refused. Raises Invalid, Problem 415; as `service.push`.
    """
    query = read_query(request, PushQuery)
    wanted, atomic = _ack_wanted(query), query.atomic in YES
    expect_open(parts.services)
    batch = await read_push(request, parts)
    batch.patient = request.patient
    if (key := _key(request)) is not None and batch.jobs:
        if len(batch.jobs) <= KEYED_AT_ONCE:
            batch = under_key(batch, key)
        else:
            batch = await trio.to_thread.run_sync(under_key, batch, key, limiter=parts.read)
    pushed = await push_batch(parts.services, batch, wanted, atomic=atomic)
    language, ids = request.answer_language(), pushed.job_ids
    ack = pushed.ack.level if pushed.ack else UNSET
    replicas = (pushed.ack.replicas if pushed.ack else 0) or UNSET
    if batch.single:
        job_id = str(ids[0])
        quoted = job_id if job_id.isascii() and job_id.isalnum() else quote(job_id, safe="")  # ours need none
        location = {"location": f"/v1/jobs/{quoted}"}
        taken = PushedJob(job_id, ack, replicas, True if pushed.duplicates else UNSET)
        return answer(200 if pushed.duplicates else 201, taken, language, location)
    many = PushedJobs(ids, ack, replicas, pushed.duplicates or UNSET, errors_of(pushed.refused) or UNSET)
    return answer(207 if pushed.refused else 201 if pushed.ack else 200, many, language)


def _key(request: ApiRequest) -> str | None:
    """What the request is to be known by; a text in quotes, or without. Raises Invalid."""
    given = request.headers.get(KEY_HEADER)
    if given is None:
        return None
    key = given.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not key.isprintable() or not 1 <= len(key) <= KEY_LENGTH_MAX:
        raise Invalid(f"an Idempotency-Key has 1 to {KEY_LENGTH_MAX} printable characters, in quotes or without")
    return key


def _ack_wanted(query: PushQuery) -> Ack:
    """Raises Invalid."""
    if not query.replicas:
        return Ack(query.ack) if query.ack else FSYNC
    if query.ack not in (UNSET, "store"):
        raise Invalid(f"replicas={query.replicas} is about the store: ask for ack=store, not ack={query.ack}")
    return Ack("store", query.replicas)
