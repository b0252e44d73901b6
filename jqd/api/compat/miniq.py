"""The API of the job queue miniq: jobs as lines of text, and handlers that run them.

    POST /{client}/job/{type}/add           POST /add?jobtype=&client=           → 200 {ok, count, ids}
    POST /{client}/handler/add/{type}/add?method=                                → 200 {ok, id}
    GET  /{client}/handler/get/{type}                                            → 200 {id, type, client, dt, data}
    POST /{client}/handler/del/{type}/delete                                     → 200 {ok}
    GET  /                                  POST or GET /start, /stop            → 200 OK

A client is a tenant; `-` is the tenant "". Each line is a job, with the line as its argument; blank lines, and lines
that begin with #, are skipped. All jobs of a request are taken, or none. A type may name a handler's version: `mail@3`.
"""

import re
from itertools import islice
from typing import Annotated, Any

import msgspec
import trio
from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.auth import AUTHORIZATION, speaking_for
from jqd.api.context import ApiContext
from jqd.api.decode import read_body, read_query, unpack
from jqd.api.message import alike
from jqd.api.problems import Problem
from jqd.domain.array_split import finish
from jqd.domain.dates import iso
from jqd.domain.errors import Invalid, Unreadable
from jqd.domain.job import NAME_LENGTH_MAX
from jqd.domain.job_spec import JobOptions
from jqd.domain.media import JSON
from jqd.domain.tenant import IN_WORDS, bare, is_tenant
from jqd.http import SOME_BYTES, Request, Response
from jqd.runner.handler import SLOTS, Body, Definition, HandlerOptions, Lang, Source, Version, id_of, is_version
from jqd.runner.worker import Batch as Jobs
from jqd.service import handlers, pauses, push
from jqd.service.batch import Batch, expect_size, read_in_pieces
from jqd.service.config import ServiceConfig
from jqd.service.server_only import expect_allowed

TEXT = "text/plain"
# Media types that count as text: curl sends the third by default, other programs the fourth.
PLAIN = dict.fromkeys(("", TEXT, "application/x-www-form-urlencoded", "application/octet-stream"), TEXT)
NOBODYS = "-"  # the client of the tenant ""; no tenant may be named so
BY_PAGES = {"origin", "referer", "sec-fetch-site"}  # browsers send at least one with a page's request to loopback

# Defaults of node-miniq for a handler: its jobs are tried every 5 minutes for 6 hours, 2 minutes each time.
BATCH_OF_URL, BATCH_OF_CODE = 10, 5  # jobs
MINIQ = JobOptions(max_retry=72, backoff=(300.0, 300.0), timeout=120.0)

_LINE = re.compile(rb"^(?!#)[^\n]*\S[^\n]*", re.MULTILINE)
_encoder = msgspec.msgpack.Encoder()


class Adding(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `POST /add`."""

    jobtype: str = ""
    """Required: an empty one is refused like an invalid job."""
    client: str | None = None
    """None: the tenant of the token."""


class Added(Struct, frozen=True):
    """The answer to miniq's pushes."""

    count: int
    ids: list[str]
    """Ids of the jobs, in the order of the lines."""
    ok: bool = True


class AddingHandler(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a new handler."""

    method: Annotated[Lang | None, Meta(description="one of http, python, node, sh")] = None
    """How the handler is run, if the body has no `lang`; default: http."""


class MiniqOptions(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a handler: jobs in one batch, and node-miniq's defaults for jobs."""

    batch: bool | UnsetType = UNSET
    """Whether the handler gets several jobs at once; default: only code does."""
    batch_size: Jobs | UnsetType = msgspec.field(default=UNSET, name="batchSize")
    """The most jobs at once; default: 10, or 5 for code."""


class MiniqHandler(Struct, frozen=True, forbid_unknown_fields=True):
    """A handler in miniq's form."""

    body: Body
    """The URL of a program that reads jobs as lines, or code."""
    lang: Lang | None = None
    eid: Source | None = None
    before: Source | None = None
    before_each: Source | None = msgspec.field(default=None, name="beforeEach")
    after_each: Source | None = msgspec.field(default=None, name="afterEach")
    options: MiniqOptions = MiniqOptions()


class AddedHandler(Struct, frozen=True):
    """The answer to a new handler: its version."""

    id: str
    """The version's id, such as `mail@3`: to read this version, and to push jobs for it alone."""
    ok: bool = True


class GoneHandler(Struct, frozen=True):
    """The answer to a request that deleted a handler."""

    ok: bool = True


class StoredHandler(Struct, frozen=True):
    """One version of a handler."""

    id: str
    type: str
    client: str
    dt: str
    """When it was set."""
    data: MiniqHandler


async def add(parts: ApiContext, request: Request) -> Added:
    """`POST /add?jobtype=`: push a job for each line → 200 {ok, count, ids}, once the jobs are on this daemon's disk,
    synced."""
    asked = read_query(request, Adding)
    return await _add(parts, request, asked.client, asked.jobtype)


async def add_for(parts: ApiContext, request: Request, client: str, jobtype: str) -> Added:
    """`POST /{client}/job/{type}/add`: push a job for each line as the tenant `client`; -: without a tenant."""
    return await _add(parts, request, client, jobtype)


async def add_handler(parts: ApiContext, request: Request, client: str, jobtype: str) -> AddedHandler:
    """`POST /{client}/handler/add/{type}/add?method=`: set a new version of a jobtype's handler: a map, or a URL alone
    as text → 200 {ok, id}."""
    asked = read_query(request, AddingHandler)
    parts = _for_client(parts, client)
    given = _read_handler(request)
    if asked.method is not None and given.lang not in (None, asked.method):
        why = f"lang is {given.lang}, and method in the query {asked.method}: leave one of them out"
        raise Invalid.at("/lang", why)
    lang = given.lang or asked.method or "http"
    if lang != "http" and request.media_type() == TEXT:
        raise Problem(415, f"code is not taken as text, which any web page can send: send a map with body, as {JSON}")
    definition = _definition(given, lang)
    expect_allowed(parts.services, [parts.services.qualified_name(jobtype)])
    version = await handlers.put(parts.services, jobtype, definition, peer=request.peer)
    return AddedHandler(id_of(jobtype, version.number))


async def get_handler(parts: ApiContext, request: Request, client: str, jobtype: str) -> StoredHandler:
    """`GET /{client}/handler/get/{type}`: the handler of a jobtype; for the type `name@3`, version 3 of it."""
    parts = _for_client(parts, client)
    name, _, number = jobtype.rpartition("@") if is_version(jobtype) else (jobtype, "", "")
    _, version = await handlers.look(parts.services, name, int(number[:NAME_LENGTH_MAX]) if number else None)
    return _stored(parts.services.principal.tenant, name, version)


async def delete_handler(parts: ApiContext, request: Request, client: str, jobtype: str) -> GoneHandler:
    """`POST /{client}/handler/del/{type}/delete`: delete a handler with all its versions → 200 {ok}."""
    parts = _for_client(parts, client)
    expect_allowed(parts.services, [parts.services.qualified_name(jobtype)])
    await handlers.delete(parts.services, jobtype)
    return GoneHandler()


async def here(parts: ApiContext, request: Request) -> Response:
    """`GET /` → 200 OK, while the daemon's process works."""
    return _ok()


async def stop(parts: ApiContext, request: Request) -> Response:
    """`POST /stop`: drain this daemon: it begins no job, also after a restart, but takes pushes as before."""
    await pauses.drain(parts.services, pauses.THIS)
    return _ok()


async def start(parts: ApiContext, request: Request) -> Response:
    """`POST /start`: this daemon begins jobs again."""
    await pauses.resume_daemon(parts.services, pauses.THIS)
    return _ok()


async def get_stop(parts: ApiContext, request: Request) -> Response:
    """`GET /stop`: does the same as `POST /stop`, for programs that send no body."""
    _expect_program(parts, request)
    return await stop(parts, request)


async def get_start(parts: ApiContext, request: Request) -> Response:
    """`GET /start`: does the same as `POST /start`, for programs that send no body."""
    _expect_program(parts, request)
    return await start(parts, request)


def _expect_program(parts: ApiContext, request: Request) -> None:
    """Refuse a GET that changes something and that a web page may have sent: raises Problem 403. A request with a token
    passes. On loopback a request without the headers of pages passes, too. Browsers send these headers only to trusted
    addresses such as loopback, so behind a proxy a token is needed."""
    is_direct = parts.guard.loopback and not parts.guard.hosts
    is_marked = is_direct and not BY_PAGES & request.headers.keys()
    has_token = request.headers.get(AUTHORIZATION, "").lower().startswith("bearer ")  # a foreign page has none to send
    if not is_marked and not has_token:
        raise Problem(403, f"it changes what the daemon does, and any web page can send a GET: POST {request.path}")


def _ok() -> Response:
    return Response(200, b"OK\n", TEXT)


async def _add(parts: ApiContext, request: Request, client: str | None, jobtype: str) -> Added:
    if request.media_type() != TEXT:
        raise Problem(415, f"jobs are lines of text here: send {TEXT}, or jobs as maps to POST /v1/jobs")
    if client is not None:
        parts = _for_client(parts, client)
    push.expect_open(parts.services)
    if len(request.body) <= SOME_BYTES:
        batch = _read(request.body, jobtype, parts.config)
    else:
        batch = await trio.to_thread.run_sync(_read, request.body, jobtype, parts.config, limiter=parts.read)
    if batch is None:
        return Added(0, [])
    pushed = await push.push(parts.services, batch, atomic=True)
    ids = [str(job_id) for job_id in pushed.job_ids]
    return Added(len(ids), ids)


def _for_client(parts: ApiContext, client: str) -> ApiContext:
    """Return the context that acts for the tenant which a miniq client stands for. Raises Problem 403, 422."""
    if client != NOBODYS and not is_tenant(client):
        raise Problem(422, f"a client is a tenant, {IN_WORDS}, or {NOBODYS} for none, not {client[:64]!r}")
    return parts.as_principal(speaking_for(parts.services.principal, "" if client == NOBODYS else client))


def _read(body: bytes, jobtype: str, config: ServiceConfig) -> Batch | None:
    """Read each line of a body as a job; return None if all lines are blank or comments. Raises Unreadable or
    TooLarge."""
    lines = [found.group() for found in islice(_LINE.finditer(body), config.array_jobs_max + 1)]
    if not lines:
        return None
    expect_size(len(lines), config)
    try:
        jobs = [{"name": jobtype, "argument": line.removesuffix(b"\r").decode()} for line in lines]
    except UnicodeDecodeError as error:
        raise Unreadable(f"a line is no UTF-8: {error.reason}; push bytes with POST /v1/jobs") from error
    return finish(read_in_pieces(_encoder.encode(jobs), config))


def _read_handler(request: Request) -> MiniqHandler:
    """Read the definition of a handler from the body: text or a map. Raises Invalid, Unreadable; Problem 415."""
    if request.media_type() != TEXT:
        return read_body(request, MiniqHandler)
    try:
        return unpack(_encoder.encode({"body": request.body.decode()}), MiniqHandler)
    except UnicodeDecodeError as error:
        raise Unreadable(f"the body of a handler is text, and this is no UTF-8: {error.reason}") from error


def _definition(given: MiniqHandler, lang: Lang) -> Definition:
    is_code, options = lang != "http", given.options
    batch, size = options.batch, options.batch_size
    is_batch = is_code if batch is UNSET else batch
    jobs = (size or (BATCH_OF_CODE if is_code else BATCH_OF_URL)) if is_batch else 1
    of_jobs: dict[str, Any] = dict(MINIQ.given()) | dict(options.given())
    if not is_code:
        of_jobs |= {"style": "lines", "max_jobs": max(SLOTS, jobs)}
    # A URL that came as text, perhaps from a file, may end with a newline.
    body = given.body if is_code else given.body.strip()
    fields = alike(Definition, given, lang=lang, body=body, options=HandlerOptions(batch=jobs, **of_jobs))
    return Definition(**fields)


def _stored(client: str, name: str, version: Version) -> StoredHandler:
    jobs = version.options.batch or 1
    options = MiniqOptions(batch=jobs > 1, batch_size=jobs, **dict(version.options.of_jobs.given()))
    data = MiniqHandler(**alike(MiniqHandler, version, options=options))
    return StoredHandler(id_of(bare(name), version.number), name, client or NOBODYS, iso(version.set_at_ms) or "", data)
