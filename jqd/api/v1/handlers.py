"""Handlers: PUT, GET and DELETE of /v1/handlers/{name}."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct

from jqd.api.context import ApiContext
from jqd.api.decode import read_body, read_query
from jqd.api.lists import ListQuery, answer_page, page_wanted
from jqd.api.message import alike
from jqd.api.v1 import responses
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Handlers, HandlerVersion
from jqd.domain.tenant import bare, tenant_of
from jqd.http import Request, Response
from jqd.runner.handler import Definition, Handler, Version, shares
from jqd.service import Services, handlers
from jqd.service.health import Takers, why_waiting
from jqd.service.server_only import expect_allowed


class HandlersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `GET /v1/handlers/{name}`."""

    version: Annotated[int, Meta(ge=1, le=1 << 53, description="the number of a version, 1 for the first")] | None = (
        None
    )


async def put(parts: ApiContext, request: Request, name: str) -> responses.Handler:
    """201 and the handler: each PUT sets a new version."""
    definition = read_body(request, Definition)
    expect_allowed(parts.services, [parts.services.qualified_name(name)])
    version = await handlers.put(parts.services, name, definition, peer=request.peer)
    handler, _ = handlers.find(parts.services, name)
    return _row(parts.services, parts.services.qualified_name(name), handler, version)


async def get(parts: ApiContext, request: Request, name: str) -> responses.Handler:
    """The newest version of a handler, or the one that `version` names."""
    asked = read_query(request, HandlersQuery)
    handler, version = await handlers.look(parts.services, name, asked.version)
    return _row(parts.services, parts.services.qualified_name(name), handler, version)


async def list_handlers(parts: ApiContext, request: Request) -> Response:
    """200 {handlers, cursor}: the newest version of each handler, by name."""
    wanted = page_wanted(request, ListQuery)
    found = ((each[0], each) for each in handlers.seen_by(parts.services))
    takers = Takers(parts.services.workers.list())
    return await answer_page(request, wanted, Handlers, found, lambda each: _row(parts.services, *each, takers=takers))


async def delete(parts: ApiContext, request: Request, name: str) -> None:
    """Delete all versions of a handler. Jobs in flight go on."""
    expect_allowed(parts.services, [parts.services.qualified_name(name)])
    await handlers.delete(parts.services, name)


def _row(
    services: Services, name: str, handler: Handler, version: Version, takers: Takers | None = None
) -> responses.Handler:
    waits, parts = why_waiting(services, name, takers=takers), shares(handler)
    fields = alike(
        responses.Handler,
        version,
        name=bare(name),
        tenant=tenant_of(name) or UNSET,
        version=version.number,
        options=_options(version),
        set_at=iso(version.set_at_ms),
        out=version.out or None,
        note=waits.text if waits else None,
        versions=[
            HandlerVersion(each.number, each.lang, parts.get(each.number, 0), each.out or None)
            for each in handler.versions
        ],
    )
    return responses.Handler(**fields)


def _options(version: Version) -> responses.HandlerSettings:
    kind, options = responses.HandlerSettings, version.options
    if version.is_code:
        return kind(batch=options.batch, **dict(options.of_jobs.given()))
    return kind(**alike(kind, options, headers=[*options.headers], signed=bool(options.secrets)))
