"""A handler in code, as GET /v1/handlers answers, and which handlers may share a process."""

import hashlib
from typing import Literal, NamedTuple

import msgspec

Lang = Literal["python", "node", "sh"]


class ContextKey(NamedTuple):
    """Decides which handlers may share a process: those with equal keys."""

    engine: str
    """The `eid`; a handler without one shares with no other, not even its own other versions."""
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
    """Why the version gets no jobs any more; None: it does."""


class Definition(
    msgspec.Struct, frozen=True, kw_only=True, rename={"before_each": "beforeEach", "after_each": "afterEach"}
):
    """One version of a handler. Other fields are ignored."""

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
        """Return the version's name, for people and tracebacks."""
        return f"{self.name}@{self.version}"

    @property
    def batch(self) -> int:
        """Return how many jobs run together, between one `beforeEach` and one `afterEach`."""
        return self.options.batch or 1

    @property
    def is_code(self) -> bool:
        return self.lang in ("python", "node", "sh")

    @property
    def key(self) -> ContextKey:
        before = hashlib.sha256((self.before or "").encode()).hexdigest()[:16]
        return ContextKey(f"eid {self.eid}" if self.eid else self.called, self.lang, before, self.tenant)
