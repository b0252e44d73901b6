"""A worker: its registration as given (WorkerSpec), and as the registry stores it (Worker).

WorkerSpec   the body of a registration, from any API
Worker       the same with what the registry adds; this is stored
"""

import hashlib
import secrets
from collections.abc import Collection
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from jqd.domain import fields
from jqd.domain.errors import Invalid
from jqd.domain.flow import CALLBACK
from jqd.domain.job import PRIORITY_MAX, PRIORITY_MIN, TIMEOUT_S_MAX, Name, Priority
from jqd.domain.job_spec import TypeOptions
from jqd.domain.signature import SECRETS_MAX, why_no_secrets
from jqd.domain.tenant import SEPARATOR, annotate, any_of, bare, tenant_of
from jqd.runner.endpoint import FORM, HEADERS_MAX, why_no_headers, why_no_url
from jqd.runner.ssrf import AddressPolicy, policy_here

JOBS_MAX = 100_000  # at once by one worker
BATCH_MAX = 10_000  # jobs in one request
JOBTYPES_MAX = 1_000  # named by one worker; one that takes more should take any type
LINGER_MS_MAX = 10_000  # longer gains nothing: ten times as many jobs in a request cost hardly less each
TROUBLE_MAX = 8_000  # characters: some 80 broken handlers of a code worker, each with its error
TTL_S_MAX = 86_400.0  # a day: a longer ttl notices nothing

Jobtypes = Annotated[
    tuple[Name, ...], Meta(min_length=1, max_length=JOBTYPES_MAX, description=f"a list of 1 to {JOBTYPES_MAX} names")
]
Slots = Annotated[int, Meta(ge=1, le=JOBS_MAX, description=f"a whole number from 1 to {JOBS_MAX}")]
Batch = Annotated[int, Meta(ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}")]
LingerMs = Annotated[int, Meta(ge=0, le=LINGER_MS_MAX, description=f"a whole number from 0 to {LINGER_MS_MAX}")]
Seconds = Annotated[float, Meta(gt=0, le=TTL_S_MAX, description=f"above 0 and at most {TTL_S_MAX:.0f} seconds")]
Url = Annotated[str, Meta(description=f"a URL, {FORM}")]
StyleName = Literal["native", "lightjq", "webhook", "lines"]
Format = Literal["json", "msgpack"]
Method = Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
SECRET = {"writeOnly": True}  # OpenAPI's mark of a value that is taken and never shown again, not even in an error
Headers = Annotated[
    dict[str, str],
    Meta(
        max_length=HEADERS_MAX,
        description=f"a map of at most {HEADERS_MAX} headers, name to value",
        extra_json_schema=SECRET,
    ),
]
Secrets = Annotated[
    tuple[str, ...],
    Meta(
        max_length=SECRETS_MAX,
        description=f"a list of at most {SECRETS_MAX} secrets, like whsec_…",
        extra_json_schema=SECRET,
    ),
]
FORMATS: dict[StyleName, tuple[Format, ...]] = {
    "native": ("msgpack", "json"),
    "webhook": ("json", "msgpack"),
    "lightjq": ("msgpack",),
    "lines": (),
}
"""Style → the formats that request bodies may have. The first is the default."""


Trouble = Annotated[
    str, Meta(min_length=1, max_length=TROUBLE_MAX, description=f"1 to {TROUBLE_MAX:,} printable characters")
]


HEARTBEAT_S_MAX = TIMEOUT_S_MAX  # a month, as the longest job
Heartbeat = Annotated[
    float, Meta(ge=1, le=HEARTBEAT_S_MAX, description=f"a number of seconds, 1 to {HEARTBEAT_S_MAX:.0f}")
]


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's registration, as the worker or its operator gave it."""

    name: Name
    id: Name | None = msgspec.field(default=None, name="worker_id")
    """Id of a registered worker whose registration this one repeats or changes; None: a new worker."""
    url: Url | None = None
    """Where batches are posted; None for a worker that pulls."""
    jobs: Jobtypes | None = None
    """The jobtypes it takes; None: any."""
    max_jobs: Slots
    """The most jobs that it runs at once."""
    batch: Batch | None = None
    """The most jobs in one request; None: `max_jobs`."""
    batch_linger_ms: LingerMs = 0
    """For how many milliseconds, at most, jobs wait until a batch is full."""
    priority_min: Priority = PRIORITY_MIN
    priority_max: Priority = PRIORITY_MAX
    ttl_s: Seconds | None = msgspec.field(default=None, name="ttl")
    """After how many seconds the registration ends unless it is repeated; None: when the worker leaves."""
    heartbeat_s: Heartbeat | None = msgspec.field(default=None, name="heartbeat")
    """For how many seconds it may be silent about jobs that it reports later; None: for their longest timeout."""
    style: StyleName = "native"
    """The protocol of its requests and answers: see `protocols/`."""
    format: Format | None = None
    """The format of its requests; None: the first of its style."""
    method: Method = "POST"
    """The HTTP method of requests to a web hook."""
    headers: Headers = {}
    """Added to each request."""
    secrets: Secrets | None = None
    """Secrets with which each request is signed. None: those of its earlier registration."""
    trouble: Trouble | None = None
    """Why the worker cannot run jobs at present, in its own words; only shown."""

    def __repr__(self) -> str:
        """Return the fields without headers and secrets."""
        return f"{type(self).__name__}({self.name!r}, {self.id}, {self.style}, {self.url})"

    def __post_init__(self) -> None:
        for field, texts in (("name", (self.name,)), ("worker_id", (self.id,)), ("jobs", self.jobs or ())):
            for text in texts:
                if isinstance(text, str) and not self._unqualified(text).isprintable():
                    raise refused(field, f"{field} must be {fields.allowed(Name)}, not {text!r}")
        if self.trouble is not None and not self.trouble.isprintable():
            raise refused("trouble", f"trouble must be {fields.allowed(Trouble)}, not {self.trouble!r}")
        if self.priority_max < self.priority_min:
            allowed = f"a whole number from {self.priority_min} to {PRIORITY_MAX}"
            raise refused("priority_max", f"priority_max must be {allowed}, not {self.priority_max}")
        self._check_style()
        if self.url is not None and (why := why_no_url(self.url, filled=self.style == "webhook")):
            raise refused("url", f"the worker URL {self.url[:200]!r} {why}; give {FORM}")
        if why := why_no_headers(self.headers):
            raise refused("headers", why)
        if why := why_no_secrets(self.secrets or ()):
            raise refused("secrets", why)

    def _unqualified(self, name: str) -> str:
        """Return a name without its tenant."""
        return name

    def _check_style(self) -> None:
        """Raise Invalid if fields do not apply to the worker's style, or need a URL that it does not have."""
        style = self.style
        if self.url is None:
            for field in ("style", "format", "method", "headers", "secrets"):
                if getattr(self, field) not in ("native", "lightjq", None, "POST", {}, ()):
                    raise refused(field, f"{field} says how jobs are posted to a worker, and this one has no url")
        if self.format is not None and self.format not in FORMATS[style]:
            known = " or ".join(FORMATS[style]) or "none: it is text"
            raise refused("format", f"the format of style {style} is {known}, not {self.format}")
        if self.method != "POST" and style != "webhook":
            raise refused("method", f"style {style} is posted to; only style webhook has a method")
        if style == "webhook" and self.batch not in (None, 1):
            raise refused("batch", f"style {style} has one job in a request, not {self.batch}; leave batch out")


class DeclaredOptions(TypeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A jobtype that a worker takes, with defaults for its jobs."""

    name: Name


class Worker(WorkerSpec, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A registration as it is stored. Unknown fields, of other releases, are ignored."""

    id: str = msgspec.field(name="id")
    jobs: tuple[str, ...] | None = None
    ttl_s: Seconds | None = msgspec.field(default=None, name="ttl_s")
    style: StyleName = msgspec.field(default="native", name="protocol")
    secrets: Secrets = ()
    registered_at_ms: int
    options: dict[str, TypeOptions] = {}
    """Jobtype → options for its jobs, as registered."""
    handler: str = ""
    """Name of the handler that this worker is a version of; empty: it is none."""
    share: int = 100
    """If it is a version of a handler: how many of a hundred requests it gets."""
    standing: AddressPolicy = AddressPolicy.LOOPBACK
    """The widest range of addresses that its URL may lead to, by the address of the caller that registered it."""
    machine: str = ""
    """Digest of the machine where `standing` was determined."""
    tenant: str = ""
    """Its tenant, whose jobs alone it gets. The names in `jobs` have the tenant in front. If it takes any jobtype,
    `jobs` is the single name that stands for all jobtypes of the tenant."""
    scopes: tuple[str, ...] = ()
    """Scopes of the token that registered it. They limit what jobs posted to this worker may push."""
    token: str = ""
    """Id of the token that registered it. Once the token has ended, no jobs are posted. Empty: registered without a
    token, or with a key from the configuration."""

    @property
    def language(self) -> Format | None:
        """The format in which the worker's requests encode arguments; None: plain text without a format."""
        return self.format or next(iter(FORMATS[self.style]), None)

    @property
    def policy_here(self) -> AddressPolicy:
        """Which addresses its URL may name on this daemon's machine: as its registration allows, but loopback only on
        the machine where it was registered."""
        return policy_here(self.standing, self.machine)

    @property
    def endpoint(self) -> str:
        return self.url.split("/", 3)[2] if self.url else ""

    @property
    def place(self) -> tuple[str, str]:
        """The tenant, and the host and port of the URL."""
        return self.tenant, self.endpoint

    @property
    def takes_any(self) -> bool:
        """Whether the worker takes all jobtypes of its tenant."""
        return self.jobs is None or self.jobs[0].endswith(SEPARATOR)

    def takes(self, jobtype: str, priority: int) -> bool:
        return takes_type(self.jobs, jobtype) and self.priority_min <= priority <= self.priority_max

    def _unqualified(self, name: str) -> str:
        return bare(name)


def takes_type(jobs: Collection[str] | None, jobtype: str) -> bool:
    """Return whether a worker whose registration has these `jobs` takes that type.

    A worker without a tenant takes no jobs of tenants, and a tenant's worker takes no others. "Any type" excludes
    callbacks.
    """
    if jobs is None:
        return SEPARATOR not in jobtype and jobtype != CALLBACK
    if jobtype in jobs:
        return True
    return SEPARATOR in jobtype and any_of(tenant_of(jobtype)) in jobs and bare(jobtype) != CALLBACK


def jobs_of(spec: WorkerSpec, tenant: str) -> tuple[str, ...] | None:
    """Return the jobtypes of a registration, each with the tenant in front. None: a worker without a tenant takes any
    type."""
    if spec.jobs is None:
        return (any_of(tenant),) if tenant else None
    return tuple(dict.fromkeys(annotate(tenant, name) for name in spec.jobs))


def new_id(spec: WorkerSpec) -> str:
    """Return an id for a new worker. With a URL all daemons make the same id; for a worker that pulls it is random."""
    if spec.url is None:
        return secrets.token_hex(8)
    return hashlib.blake2b(f"{spec.style}\0{spec.name}\0{spec.url}".encode(), digest_size=8).hexdigest()


def refused(field: str, why: str) -> Invalid:
    """Make the error for an invalid field of a registration."""
    return Invalid.at(f"/{field}", why)
