"""Sets, shows and deletes handlers, at any daemon for all daemons. A handler may be code, which no daemon runs itself.

Code runs as the user that the code worker was started as. So only the master of the tenant "" may set a handler in
code, only if `runner.allow_code` is on, and for another tenant only if code workers run it in a sandbox.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from jqd.domain.errors import Denied, Fault, Invalid, NotFound
from jqd.domain.flow import CALLBACK
from jqd.domain.shares import Share
from jqd.domain.tenant import bare, tenant_of
from jqd.domain.tokens import Role
from jqd.runner.handler import Definition, Handler, HandlerOptions, Version, id_of, is_version, spec_of
from jqd.runner.registry import HANDLER, WorkerRegistry
from jqd.runner.ssrf import machine, policy_of
from jqd.service.job_limits import expect_new_name
from jqd.service.services import Services
from jqd.service.settings import get_or_refresh, save, wait_loaded

HANDLERS = Share("handlers", 1_000)  # each search for work goes through all of them
VERSIONS_MAX = 10  # kept of each handler
VERSION_BYTES_MAX = 131_072  # of one version, with the texts that are kept but not run
VERSIONS_BYTES_MAX = 262_144  # of all versions but the newest: they are journaled and sent again with each new one
NUMBERS_LENGTH = 12  # characters kept free for "@" and a version, as `name@3` must be a valid name, too

_encoder = msgspec.msgpack.Encoder()


async def put(services: Services, name: str, definition: Definition, *, peer: str | None) -> Version:
    """Save a new version of a handler; it is on disk when this returns. `peer`: the client's address.

    Raises Invalid; Denied if it has code, which this principal may not set; NotYet before this daemon knows all
    settings; JournalRefused.
    """
    if not name.isprintable() or not 1 <= len(name) <= 128 - NUMBERS_LENGTH:
        why = f"the name of a handler must be 1 to {128 - NUMBERS_LENGTH} printable characters, not {name[:64]!r}"
        raise Invalid.at("/name", why)
    if name == CALLBACK:
        raise Invalid.at("/name", f"{CALLBACK} is what jqd calls its own callbacks; choose another name")
    if is_version(name):
        why = f"{name[:64]!r} is how a version of a handler is called: a handler's name must not end in @ and a number"
        raise Invalid.at("/name", why)
    if definition.is_code:
        expect_may_set(services)
        expect_fit(definition)
    else:
        await _check_url(services, name, definition, peer)
    await wait_loaded(services)
    own = services.qualified_name(name)
    fields = {field: getattr(definition, field) for field in Definition.__struct_fields__}
    made: list[Version] = []

    def make() -> Mapping[tuple[str, str], bytes]:
        known = services.workers.handler(own) or Handler(0)
        if not known.versions:
            expect_new_name("handler", name)
        number, now_ms = known.last + 1, services.clock.wall_ms()
        version = Version(**fields, number=number, set_at_ms=now_ms, standing=policy_of(peer), machine=machine())
        _refuse_more(services, own, known, version)
        made.append(version)
        handler = Handler(number, (*_kept(known.versions), version))
        options = services.options.of_handler(own, definition.options.of_jobs, id_of(own, number))
        return {(HANDLER, own): _encoder.encode(handler), **options}

    await save(services, make)
    return made[0]


async def _check_url(services: Services, name: str, definition: Definition, peer: str | None) -> None:
    """Check the URL of a handler by the rules for the URL of a worker. Raises Invalid."""
    try:
        services.workers.check(spec_of(name, definition), peer=peer)
        await services.workers.judge(definition.body, peer)
    except Invalid as error:
        raise Invalid(str(error), [_placed(fault) for fault in error.faults]) from error


def _refuse_more(services: Services, own: str, known: Handler, version: Version) -> None:
    """Raise Invalid if the tenant may have no further handler, or the new version is too large. `own`: the handler's
    qualified name. `known`: the handler as it is now; without versions if it is new."""
    there = Counter(map(tenant_of, services.workers.handlers()))
    if not known.versions and (why := HANDLERS.why_no_more(tenant_of(own), there)):
        raise Invalid.at("", f"{why}, or register a worker instead")
    if (size := len(_encoder.encode(version))) > VERSION_BYTES_MAX:
        why = f"a version of a handler may take {VERSION_BYTES_MAX} bytes with all its texts, and this one has {size}"
        raise Invalid.at("", why)


def _kept(versions: Sequence[Version]) -> list[Version]:
    """Return which of the existing versions to keep when a new one is added: the newest that fit the limits."""
    newest = versions[:-VERSIONS_MAX:-1]
    sizes = accumulate(len(_encoder.encode(version)) for version in newest)
    return [version for version, size in zip(newest, sizes, strict=True) if size <= VERSIONS_BYTES_MAX][::-1]


def _placed(fault: Fault) -> Fault:
    """Return a fault found in a worker registration so that it points at the same field of a handler's definition."""
    place = {"/url": "/body", "/name": "/name"}.get(fault.pointer, f"/options{fault.pointer}")
    return fault._replace(pointer=place)


async def delete(services: Services, name: str) -> None:
    """Delete all versions of a handler at all daemons. Jobs in flight go on. Raises NotFound, NotYet."""
    await wait_loaded(services)
    await look(services, name)

    def make() -> Mapping[tuple[str, str], bytes]:
        handler, _ = find(services, name)
        own = services.qualified_name(name)
        return {(HANDLER, own): _encoder.encode(Handler(handler.last)), **services.options.of_handler(own, None, "")}

    await save(services, make)


async def look(services: Services, name: str, number: int | None = None) -> tuple[Handler, Version]:
    """Return a handler and its version `number` (None: the newest). If this daemon does not know that version, ask the
    store.

    Raises NotFound."""
    own = services.qualified_name(name)
    await get_or_refresh(services, lambda: _version(services, _handler(services, own), number))
    return find(services, name, number)


def seen_by(services: Services) -> Iterator[tuple[str, Handler, Version]]:
    """Yield qualified name, handler and newest version of each handler that the principal can see."""
    for name, handler in services.workers.handlers().items():
        known = _in_scope(services, name, handler)
        if (version := _version(services, known, None)) is not None:
            yield name, known, version


def find(services: Services, name: str, number: int | None = None) -> tuple[Handler, Version]:
    """Return a handler and its version `number` (None: the newest) as this daemon knows them, without a call to the
    store. Raises NotFound."""
    handler = _handler(services, services.qualified_name(name))
    if not handler.versions:
        raise NotFound(f"there is no handler {name[:64]!r}")
    found = _version(services, handler, number)
    if found is None:
        if not services.principal.can_read:
            raise NotFound(f"handler {name[:64]!r} is not in code, and who only works sees no other")
        kept = ", ".join(str(version.number) for version in handler.versions)
        raise NotFound(f"handler {name[:64]!r} has no version {number} (any more); it has {kept}")
    return handler, found


def _handler(services: Services, own: str) -> Handler:
    return _in_scope(services, own, services.workers.handler(own) or Handler(0))


def _in_scope(services: Services, own: str, handler: Handler) -> Handler:
    """Return a handler reduced to the versions that the principal may see: a token may be limited to one version."""
    known = tuple(each for each in handler.versions if services.principal.can_access(id_of(own, each.number)))
    return Handler(handler.last, known)


def _version(services: Services, handler: Handler, number: int | None) -> Version | None:
    """Return the version `number` of a handler (None: the newest). Return None if there is no such version or the
    principal may not see it: a worker's token sees only versions in code."""
    sees_all = services.principal.can_read
    seen = (each for each in reversed(handler.versions) if sees_all or each.is_code)
    return next((each for each in seen if number in (None, each.number)), None)


LANGS = {"python": "python", "node": "node.js", "sh": "shell"}  # language → its name in messages
OF_URLS = ("style", "format", "method", "headers", "secrets", "weight", "max_jobs", "priority_min", "priority_max")
"""Options that say how a URL is called, and for how many jobs at once. A handler in code may have none of them."""
BROKEN = "handler"  # first word of a code worker's complaint about a handler that it cannot run
SANDBOX = "bwrap"  # the value of `runner.sandbox` that isolates tenants' code

_USUAL = HandlerOptions()


def expect_may_set(services: Services) -> None:
    """Raise Denied if the principal may not set handlers in code."""
    who = services.principal
    if not services.allow_code:
        raise Denied(
            "handlers may not be code here: `runner.allow_code = true` (JQD_RUNNER__ALLOW_CODE=true) and a restart of"
            " this daemon allow that; whoever sets one runs code where code workers run"
        )
    if who.role is not Role.MASTER or not who.is_server or (who.tenant and not who.speaks_for):
        raise Denied(
            'handlers in code are set by the master of the tenant "" alone, with a token of the role master and no'
            " tenant, or the master key: whoever sets one runs code where code workers run"
        )
    if who.tenant and services.sandbox != SANDBOX:
        raise Denied(
            f"handlers of tenant {who.tenant!r} may not be code here: that is only where code workers run it apart from"
            f' everything else, by `runner.sandbox = "{SANDBOX}"`, which is {services.sandbox!r} at this daemon'
        )


def expect_fit(definition: Definition) -> None:
    """Raise Invalid if a handler in code has options that are only for URLs."""
    for field in OF_URLS:
        if getattr(definition.options, field) != getattr(_USUAL, field):
            why = f"{field} says how a URL is called, and this handler is {LANGS[definition.lang]} code: leave it out"
            raise Invalid.at(f"/options/{field}", why)


def why_unserved(workers: WorkerRegistry, jobtype: str) -> str | None:
    """Return why a jobtype whose handler is code has no worker; None if its handler is not code."""
    version = workers.code(jobtype)
    if version is None:
        return None
    broken = f"{BROKEN} {bare(jobtype).rpartition('@')[0] or bare(jobtype)}@{version.number} "
    troubles = [worker.trouble for worker in workers.list() if worker.tenant == tenant_of(jobtype) and worker.trouble]
    complaints = (each for trouble in troubles for each in re.split(rf"; (?={BROKEN} )", trouble))
    waits = f"handler is {LANGS[version.lang]} code: waits for a code worker (`jqd worker --code`)"
    return next((f"a code worker says: {each}" for each in complaints if each.startswith(broken)), waits)
