"""Handlers: URLs or code that run a jobtype, set by name, without a program that registers. Each version is a worker.

The newest version takes all jobs of its handler's name. A version whose endpoint answered 410 is *out*: it gets no
jobs. A newest version with a `weight` takes so many of a hundred requests, and the version before it takes the others,
if both are URLs. Jobs of type `name@3` go to version 3 alone. A version may be code. No daemon runs code: its jobs wait
for a pull worker that registered for their type, as `jqd worker --code` does.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from jqd.domain.job import PRIORITY_MAX, PRIORITY_MIN, Priority
from jqd.domain.job_spec import NO_OPTIONS, JobOptions, TypeOptions
from jqd.domain.tenant import bare, tenant_of
from jqd.runner.endpoint import FORM
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.worker import Batch, Format, Headers, Method, Secrets, Slots, StyleName, Worker, WorkerSpec

SLOTS = 16  # jobs at once where a handler says nothing: a small web server's threads
# Characters, 20 pages of code: every daemon keeps it in memory, its journal and each store, too.
SOURCE_LENGTH_MAX = 65_536

Weight = Annotated[int, Meta(ge=0, le=100, description="a whole number of percent, 0 to 100")]
Source = Annotated[
    str, Meta(max_length=SOURCE_LENGTH_MAX, description=f"text of at most {SOURCE_LENGTH_MAX} characters")
]
Body = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=SOURCE_LENGTH_MAX,
        description=f"a URL, {FORM}; or code, 1 to {SOURCE_LENGTH_MAX} characters",
    ),
]
Lang = Literal["http", "python", "node", "sh"]


class HandlerOptions(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a handler is called, and defaults for its jobs."""

    style: StyleName = "webhook"
    format: Format | None = None
    method: Method = "POST"
    headers: Headers = {}  # noqa: RUF012 - msgspec copies it
    secrets: Secrets = ()
    weight: Weight = 100
    max_jobs: Slots = SLOTS
    batch: Batch | None = None
    priority_min: Priority = PRIORITY_MIN
    priority_max: Priority = PRIORITY_MAX

    def __repr__(self) -> str:
        """Leave headers and secrets out."""
        return f"{type(self).__name__}({self.style})"

    @property
    def of_jobs(self) -> TypeOptions:
        return TypeOptions(**dict(self.given()))


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a user sets for one version of a handler."""

    lang: Lang
    body: Body
    """The URL that jobs are posted to, if `lang` is http; else the source code that a code worker runs for them."""
    options: HandlerOptions = HandlerOptions()
    server_only: bool = False
    """Whether only running jobs and the master key may push jobs of this type."""
    eid: Source | None = None
    """Code handlers with equal `eid`, `lang` and `before` share a context. URLs ignore it and the next three."""
    before: Source | None = None
    """Code that runs once in each context."""
    before_each: Source | None = msgspec.field(default=None, name="beforeEach")
    """Code that runs before each batch."""
    after_each: Source | None = msgspec.field(default=None, name="afterEach")
    """Code that runs after each batch, also where its jobs failed."""

    @property
    def is_code(self) -> bool:
        return self.lang != "http"


class StoredOptions(HandlerOptions, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Options read from the store. Unknown ones, which another release wrote, are ignored."""


class Version(Definition, frozen=True, kw_only=True, forbid_unknown_fields=False):
    options: StoredOptions = StoredOptions()
    number: int
    set_at_ms: int
    standing: AddressPolicy = AddressPolicy.LOOPBACK
    """The widest range of addresses that its URL may lead to, by the address of the caller that set it."""
    machine: str = ""
    """Digest of the machine where `standing` was determined."""
    out: str = ""
    """Why it gets no jobs: its endpoint answered 410. Empty: it gets jobs."""


class Handler(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored versions of a handler. A handler without versions is deleted."""

    last: int
    """Number of the newest version ever made; the next one gets the number after it, even if this one was deleted."""
    versions: tuple[Version, ...] = ()


_decoder = msgspec.msgpack.Decoder(Handler)
DELETED_BYTES = 32  # more than one without versions takes


def is_deleted(body: msgspec.Raw) -> bool:
    """Return whether a stored handler was deleted, so only its last version number is kept."""
    return len(body) <= DELETED_BYTES and not _decoder.decode(body).versions


def shares(handler: Handler) -> dict[int, int]:
    """Return version number → how many of a hundred requests for the handler's name go to it. Versions that get none
    are left out."""
    running = [version for version in handler.versions if not version.out][-2:]
    parts = {version.number: 100 for version in running[-1:]}
    if len(running) > 1 and not any(version.is_code for version in running):
        parts = {running[0].number: 100 - running[1].options.weight, running[1].number: running[1].options.weight}
    return {number: part for number, part in parts.items() if part}


def newest(handler: Handler) -> Version | None:
    """Return the newest version whose endpoint has not answered 410; None: there is none."""
    return next((version for version in reversed(handler.versions) if not version.out), None)


def code_for(handler: Handler, number: int | None = None) -> Version | None:
    """Return version `number`, or without a number the newest version whose endpoint has not answered 410. None: it
    does not exist, or is a URL, not code."""
    numbered = (version for version in handler.versions if version.number == number)
    found = newest(handler) if number is None else next(numbered, None)
    return found if found is not None and found.is_code else None


def spec_of(name: str, definition: Definition) -> WorkerSpec:
    """Return the registration of a worker at the handler's URL. Raises Invalid."""
    options = definition.options
    return WorkerSpec(
        name=name,
        url=definition.body,
        jobs=(name,),
        max_jobs=options.max_jobs,
        batch=options.batch,
        priority_min=options.priority_min,
        priority_max=options.priority_max,
        style=options.style,
        format=options.format,
        method=options.method,
        headers=options.headers,
        secrets=options.secrets,
    )


def id_of(name: str, number: int) -> str:
    """Return the name of a version. It is the id of the version's worker, and a jobtype that only this worker takes."""
    return f"{name}@{number}"


def is_version(text: str) -> bool:
    """Return whether a text looks like a version's name (`name@3`). Workers and handlers may not have such names."""
    name, _, number = text.rpartition("@")
    return bool(name) and number.isdecimal()


def workers_of(name: str, handler: Handler) -> list[Worker]:
    """Return a worker for each version that is a URL whose endpoint has not answered 410."""
    parts, found = shares(handler), []
    for version in handler.versions:
        if version.out or version.is_code:
            continue
        spec, own = spec_of(bare(name), version), id_of(name, version.number)
        fields = {field: getattr(spec, field) for field in WorkerSpec.__struct_fields__}
        fields |= {"id": own, "name": bare(own), "jobs": (name, own) if version.number in parts else (own,)}
        fields |= {"handler": name, "share": parts.get(version.number, 100), "tenant": tenant_of(name)}
        options = version.options.of_jobs
        fields["options"] = {} if options == NO_OPTIONS else {name: options}
        found.append(
            Worker(**fields, registered_at_ms=version.set_at_ms, standing=version.standing, machine=version.machine)
        )
    return found
