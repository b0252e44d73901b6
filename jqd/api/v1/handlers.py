"""Handlers: PUT, GET and DELETE of /v1/handlers/{name}."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct

from jqd.api.context import ApiContext
from jqd.api.decode import read_body, read_query
from jqd.api.lists import answer_page, page_wanted
from jqd.api.v1 import responses
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Handlers, HandlerVersion
from jqd.domain.tenant import bare, tenant_of
from jqd.http import Request, Response, answer
from jqd.runner.handler import Definition, Handler, Version
from jqd.service import Services, handlers
from jqd.service.health import Takers, why_waiting
from jqd.service.server_only import expect_allowed


class HandlersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `GET /v1/handlers/{name}`."""

    version: Annotated[int, Meta(ge=1, le=1 << 53, description="the number of a version, 1 for the first")] | None = (
        None
    )


async def put(parts: ApiContext, request: Request, name: str) -> Response:
    """201 and the handler: each PUT is a new version."""
    definition = read_body(request, Definition)
    expect_allowed(parts.services, [parts.services.qualified_name(name)])
    version = await handlers.put(parts.services, name, definition, peer=request.peer)
    handler, _ = handlers.find(parts.services, name)
    row = _row(parts.services, parts.services.qualified_name(name), handler, version)
    return answer(201, row, request.answer_language())


async def get(parts: ApiContext, request: Request, name: str) -> responses.Handler:
    """The newest version of a handler, or the one of `version`."""
    asked = read_query(request, HandlersQuery)
    handler, version = await handlers.look(parts.services, name, asked.version)
    return _row(parts.services, parts.services.qualified_name(name), handler, version)


async def list_handlers(parts: ApiContext, request: Request) -> Response:
    """200 {handlers, cursor}: the newest version of each, by name."""
    wanted = page_wanted(request)
    found = ((one[0], one) for one in handlers.seen_by(parts.services))
    takers = Takers(parts.services.workers.list())
    return await answer_page(request, wanted, Handlers, found, lambda one: _row(parts.services, *one, takers=takers))


async def delete(parts: ApiContext, request: Request, name: str) -> Response:
    """Delete all versions of a handler; jobs in flight are still waited for."""
    expect_allowed(parts.services, [parts.services.qualified_name(name)])
    await handlers.delete(parts.services, name)
    return Response(204)


def _row(
    services: Services, name: str, handler: Handler, version: Version, takers: Takers | None = None
) -> responses.Handler:
    waits = why_waiting(services, name, takers=takers)
    return responses.Handler(
        name=bare(name),
        tenant=tenant_of(name) or UNSET,
        version=version.number,
        lang=version.lang,
        body=version.body,
        eid=version.eid,
        before=version.before,
        before_each=version.before_each,
        after_each=version.after_each,
        options=_options(version),
        server_only=version.server_only,
        set_at=iso(version.set_at_ms),
        out=version.out or None,
        note=waits.text if waits else None,
        versions=[HandlerVersion(one.number, one.lang, one.out or None) for one in handler.versions],
    )


def _options(version: Version) -> responses.HandlerSettings:
    options = version.options
    of_jobs = dict(options.of_jobs.given())
    if version.is_code:
        return responses.HandlerSettings(batch=options.batch, **of_jobs)
    return responses.HandlerSettings(
        style=options.style,
        format=options.format,
        method=options.method,
        headers=[*options.headers],
        signed=bool(options.secrets),
        max_jobs=options.max_jobs,
        batch=options.batch,
        priority_min=options.priority_min,
        priority_max=options.priority_max,
        **of_jobs,
    )
