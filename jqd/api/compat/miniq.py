"""Pushes as miniq has them (seed miniq-queue): lines of text, each the payload of one job of the same type.

    POST /{client}/job/{type}/add           POST /add?jobtype=&client=           → 200 {ok, count, ids}

A client is a tenant; `-` is the tenant "". The payload is the line as it stands, as a text. Blank lines, and those that
begin with #, are none. All jobs of a request are taken, or none.
"""

import re
from itertools import islice

import msgspec
import trio
from msgspec import Struct

from jqd.api.auth import speaking_for
from jqd.api.context import ApiContext
from jqd.api.decode import read_query
from jqd.api.message import answer
from jqd.api.problems import Problem
from jqd.domain.array_split import finish
from jqd.domain.errors import Unreadable
from jqd.http import SOME_BYTES, Request, Response
from jqd.service import push
from jqd.service.batch import Batch, expect_size, read_in_pieces
from jqd.service.config import ServiceConfig

TEXT = "text/plain"
PLAIN = dict.fromkeys(("", TEXT, "application/x-www-form-urlencoded"), TEXT)  # the last is what curl says by itself
NOBODYS = "-"  # no tenant is called so
_LINE = re.compile(rb"^(?!#)[^\n]*\S[^\n]*", re.MULTILINE)
_encoder = msgspec.msgpack.Encoder()


class Adding(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `POST /add`."""

    jobtype: str = ""
    """Needed: it is judged with its jobs."""
    client: str | None = None
    """None: whose the token is that is shown."""


class Added(Struct, frozen=True):
    """What was taken."""

    count: int
    ids: list[str]
    """In the order of the lines."""
    ok: bool = True


async def add(parts: ApiContext, request: Request) -> Response:
    """`POST /add?jobtype=`: a job for each line → 200 {ok, count, ids}: on this daemon's disk, synced."""
    asked = read_query(request, Adding)
    return await _add(parts, request, asked.client, asked.jobtype)


async def add_for(parts: ApiContext, request: Request, client: str, jobtype: str) -> Response:
    """`POST /{client}/job/{type}/add`: the same for a client, which is a tenant, or - for none."""
    return await _add(parts, request, client, jobtype)


async def _add(parts: ApiContext, request: Request, client: str | None, jobtype: str) -> Response:
    if request.media_type() != TEXT:
        raise Problem(415, f"jobs are lines of text here: send {TEXT}, or jobs as maps to POST /v1/jobs")
    if client is not None:
        parts = parts.as_principal(speaking_for(parts.services.principal, "" if client == NOBODYS else client))
    push.expect_open(parts.services)
    if len(request.body) <= SOME_BYTES:
        batch = _read(request.body, jobtype, parts.config)
    else:
        batch = await trio.to_thread.run_sync(_read, request.body, jobtype, parts.config, limiter=parts.read)
    pushed = await push.push(parts.services, batch, atomic=True)
    ids = [str(job_id) for job_id in pushed.job_ids]
    return answer(200, Added(len(ids), ids), request.answer_language())


def _read(body: bytes, jobtype: str, config: ServiceConfig) -> Batch:
    """Raises Unreadable, TooLarge."""
    lines = [found.group() for found in islice(_LINE.finditer(body), config.array_jobs_max + 1)]
    if not lines:
        raise Unreadable("there is no line with a job; blank lines and those that begin with # are none")
    expect_size(len(lines), config)
    try:
        jobs = [{"name": jobtype, "argument": line.removesuffix(b"\r").decode()} for line in lines]
    except UnicodeDecodeError as error:
        raise Unreadable(f"a line is no UTF-8: {error.reason}; push bytes with POST /v1/jobs") from error
    return finish(read_in_pieces(_encoder.encode(jobs), config))
