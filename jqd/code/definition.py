"""A handler in code, as GET /v1/handlers returns it, and the rule which handlers may share a process."""

import hashlib
from typing import Literal, NamedTuple

import msgspec

Lang = Literal["python", "node", "sh"]


class ContextKey(NamedTuple):
    """Handlers with equal keys may share a process."""

    engine: str
    """The `eid` of the handler. A handler without one gets its own name and version, and so shares a process with no
    other."""
    lang: str
    before: str
    """Hash of the `before`."""
    tenant: str


class Options(msgspec.Struct, frozen=True):
    batch: int | None = None


class VersionRow(msgspec.Struct, frozen=True):
    version: int
    lang: str
    out: str | None = None
    """Why this version gets no more jobs; None: it gets jobs."""


class Definition(
    msgspec.Struct, frozen=True, kw_only=True, rename={"before_each": "beforeEach", "after_each": "afterEach"}
):
    """One version of a handler. Fields of the API answer that are not declared here are ignored."""

    name: str
    version: int
    lang: str
    body: str
    eid: str | None = None
    before: str | None = None
    before_each: str | None = None
    after_each: str | None = None
    options: Options = Options()
    versions: tuple[VersionRow, ...] = ()
    tenant: str = ""

    @property
    def called(self) -> str:
        """Name of this version, NAME@VERSION, for people and tracebacks."""
        return f"{self.name}@{self.version}"

    @property
    def batch(self) -> int:
        """Most jobs that run together, between one `beforeEach` and one `afterEach`."""
        return self.options.batch or 1

    @property
    def is_code(self) -> bool:
        return self.lang in ("python", "node", "sh")

    @property
    def key(self) -> ContextKey:
        before = hashlib.sha256((self.before or "").encode()).hexdigest()[:16]
        return ContextKey(f"eid {self.eid}" if self.eid else self.called, self.lang, before, self.tenant)
