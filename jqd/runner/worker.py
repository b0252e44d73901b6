"""A worker: one frozen type from its registration to the offer that jobs are claimed for.

Card      what a worker says of itself: the body of its registration, whatever surface took it
Worker    the same, and what the registry knows besides: also what `workers.json` holds
"""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from jqd.runner.reach import Standing
from jqd.words import fields
from jqd.words.errors import Fault, Invalid
from jqd.words.job import PRIORITY_MAX, PRIORITY_MIN, Name, Priority

JOBS_MAX = 100_000  # at once by one worker
BATCH_MAX = 10_000  # jobs in one request
JOBTYPES_MAX = 1_000  # named by one worker; one that takes more should take any
TTL_S_MAX = 86_400.0  # a day: a longer ttl notices nothing
URL_LENGTH_MAX = 2_048

Jobtypes = Annotated[
    tuple[Name, ...],
    Meta(min_length=1, max_length=JOBTYPES_MAX, description=f"a list of 1 to {JOBTYPES_MAX} names"),
]
Slots = Annotated[int, Meta(ge=1, le=JOBS_MAX, description=f"a whole number from 1 to {JOBS_MAX}")]
Batch = Annotated[int, Meta(ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}")]
Seconds = Annotated[float, Meta(gt=0, le=TTL_S_MAX, description=f"above 0 and at most {TTL_S_MAX:.0f} seconds")]
Url = Annotated[str, Meta(description="a URL, http(s)://host[:port][/path]")]
StyleName = Literal["native", "lightjq", "webhook", "lines"]

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_PATH = re.compile(r"[!$%&'()*+,./0-9:;=@A-Z_a-z~-]*")


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker says of itself."""

    name: Name
    id: Name | None = msgspec.field(default=None, name="worker_id")
    """Of an earlier registration that this one repeats or changes; None: a new one."""
    url: Url | None = None
    """Where batches are posted; None for a worker that pulls."""
    jobs: Jobtypes | None = None
    """The jobtypes it takes; None: any."""
    max_jobs: Slots
    """Jobs at work at once."""
    batch: Batch | None = None
    """Jobs it likes in one request; None: at most `max_jobs`."""
    priority_min: Priority = PRIORITY_MIN
    priority_max: Priority = PRIORITY_MAX
    ttl_s: Seconds | None = msgspec.field(default=None, name="ttl")
    """How long the registration holds unless it is repeated; None: until the worker leaves."""

    def __post_init__(self) -> None:
        """Check what a type cannot say. Raises Invalid."""
        for field, texts in (("name", (self.name,)), ("worker_id", (self.id,)), ("jobs", self.jobs or ())):
            for text in texts:
                if text is not None and not text.isprintable():
                    raise refused(field, f"{field} must be {fields.allowed(Name)}, not {text!r}")
        if self.url is not None:
            check_url(self.url)
        if self.priority_max < self.priority_min:
            allowed = f"a whole number from {self.priority_min} to {PRIORITY_MAX}"
            raise refused("priority_max", f"priority_max must be {allowed}, not {self.priority_max}")


class Worker(Card, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One registration. Fields in its file that this version does not know are passed over."""

    id: Name = msgspec.field(name="id")
    ttl_s: Seconds | None = msgspec.field(default=None, name="ttl_s")
    style: StyleName = msgspec.field(default="native", name="protocol")
    """What is said to it, and how its answers are read: see `styles/`."""
    registered_at_ms: int
    standing: Standing = Standing.LOOPBACK
    """Of whoever registered it: how near the address may be that its URL leads to. Old files lack it: from here."""

    @property
    def endpoint(self) -> str:
        """Host and port, as its URL writes them; empty for a worker that pulls."""
        return self.url.split("/", 3)[2] if self.url else ""

    def takes(self, jobtype: str, priority: int) -> bool:
        """Whether a job of this type and priority is for this worker."""
        return (self.jobs is None or jobtype in self.jobs) and self.priority_min <= priority <= self.priority_max


def refused(field: str, why: str) -> Invalid:
    """A registration is wrong in one field; nothing was registered."""
    return Invalid(why, [Fault(f"/{field}", why)])


def check_url(url: str) -> None:
    """Raises Invalid unless `url` is http(s)://host[:port][/path] in plain ASCII."""

    def refuse(why: str) -> Invalid:
        return refused("url", f"the worker URL {url[:200]!r} {why}; give http(s)://host[:port][/path]")

    if len(url) > URL_LENGTH_MAX:
        raise refuse(f"has more than {URL_LENGTH_MAX} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refuse(f"cannot be read ({error})") from error
    if parts.scheme not in ("http", "https"):
        raise refuse("does not start with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise refuse("holds a user name or password, which would show in logs")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise refuse("has a query or fragment")
    host = parts.hostname or ""
    pattern = _IPV6 if "[" in parts.netloc else _HOST
    if not pattern.fullmatch(host):
        raise refuse("names no host" if not host else f"has a host that cannot be: {host[:100]!r}")
    if port == 0:
        raise refuse("has port 0")
    if not _PATH.fullmatch(parts.path) or url != url.strip() or any(c in url for c in "\t\r\n"):
        raise refuse("has characters in it that must be percent-encoded")


def host_of(url: str) -> str:
    """Of a URL that `check_url` found good."""
    return urlsplit(url).hostname or ""
