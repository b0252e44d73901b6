"""Reads the handlers that are code from a daemon every second, so that a new version is used from the next batch on.

A handler whose `before` fails, or whose code does not compile, is broken: the worker takes none of its jobs until a new
version comes or BROKEN_S is over. The worker's registration says so (`trouble`), and so does `jqd why` of such a job.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import httpx2
import msgspec
import trio

from jqd.client.path import path_of
from jqd.code.context import BEFORE, Broken
from jqd.code.definition import ContextKey, Definition, VersionRow
from jqd.domain.clock import Clock
from jqd.domain.dates import iso
from jqd.domain.error_summary import error_line
from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK
from jqd.domain.tenant import in_scope

LOOK_S = 1.0  # between two reads
LOOK_SHARE = 10  # pause so many times as long as a read took: a thousand handlers are some MiB
REST_S_MAX = 20.0  # but at most so long, so that one slow read does not delay new handlers for long
CALL_S = 5.0  # timeout of a call: a small message to a daemon near by
BROKEN_S = 30.0  # before a broken handler is tried again: what it needs may exist by then
JOBTYPES_MAX = 1_000  # that one worker may name
OLD_PER_LOOK = 50  # versions fetched in one look, besides each handler's newest
TROUBLE_CHARS_MAX = 300  # about one broken handler: its name, since when, and the error line
TROUBLE_CHARS_MIN = 100  # the same if many are broken; so 80 are named, and the others are counted
TROUBLES_CHARS_MAX = 8_000  # about all of them: the limit of a registration

BETWEEN = "; "  # separates broken handlers

_decode_one = msgspec.msgpack.Decoder(Definition).decode


class _Page(msgspec.Struct, frozen=True):
    handlers: list[Definition]
    cursor: str = ""


_decode_page = msgspec.msgpack.Decoder(_Page).decode


class Fault(NamedTuple):
    """Why, and since when, a handler is broken."""

    called: str
    since_ms: int
    of: str
    """Which part is broken: BEFORE, CODE, NO_PROCESS or BEGIN of context.py."""
    why: str
    until_s: float
    """When the handler is tried again, by trio's clock."""


class Catalogue:
    """The handlers in code that this worker can run, and which of them are broken."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        daemon: Callable[[], str],
        tenant: str,
        clock: Clock,
        changed: Callable[[], None],
        *,
        scopes: Sequence[str] = (),
    ) -> None:
        """`daemon`: returns the URL of the daemon to ask. `changed`: called when `jobtypes` or `trouble` have changed.
        `scopes`: jobtypes that the worker's token is for; empty: all."""
        self.jobtypes: tuple[str, ...] = ()
        """Jobtypes whose jobs this worker takes: NAME, and NAME@VERSION for one version."""
        self._versions: dict[str, tuple[VersionRow, ...]] = {}
        self._known: dict[tuple[str, int], Definition] = {}
        # A failed `before` is stored under the key that handlers share, other faults under NAME@VERSION.
        self._faults: dict[ContextKey | str, Fault] = {}
        self._http, self._daemon, self._tenant, self._clock, self._changed = http, daemon, tenant, clock, changed
        self._scopes = scopes
        self._more = trio.Event()
        self._known_trouble, self._known_error = "", ""
        self._log = get_logger("code")

    async def run(self) -> None:
        while True:
            began_s = trio.current_time()
            await self._look()
            self.name_jobtypes()
            took_s = trio.current_time() - began_s
            await trio.sleep(min(max(LOOK_S, LOOK_SHARE * took_s), REST_S_MAX))

    async def wait_changed(self) -> None:
        await self._more.wait()

    def find(self, jobtype: str) -> Definition | None:
        """Return the handler of a jobtype. For NAME it is the newest version, for NAME@VERSION the version named. None:
        there is no such handler in code."""
        newest = next((one for one in reversed(self._versions.get(jobtype, ())) if not one.out), None)
        if newest is not None:
            found = self._known.get((jobtype, newest.version))
            return found if found is not None and found.is_code else None
        name, _, number = jobtype.rpartition("@")
        by_number = self._known.get((name, int(number))) if number.isdecimal() else None
        return by_number if by_number is not None and by_number.is_code else None

    def is_resting(self, definition: Definition) -> bool:
        """Return whether a handler is broken, and BROKEN_S are not over yet, after which it is tried again."""
        return any(fault.until_s > trio.current_time() for fault in self._faults_of(definition))

    def broke(self, definition: Definition, broken: Broken) -> None:
        """Record that a handler is broken. Its jobs do not fail: this worker takes none of them for BROKEN_S."""
        at = definition.key if broken.of == BEFORE else definition.called
        known = self._faults.get(at)
        since_ms = known.since_ms if known else self._clock.wall_ms()
        until_s = trio.current_time() + BROKEN_S
        self._faults[at] = Fault(definition.called, since_ms, broken.of, str(broken), until_s)
        self._log.error(
            "code.handler_broken", handler=definition.called, of=broken.of, why=str(broken), again_in_s=BROKEN_S
        )
        self.name_jobtypes()

    def mended(self, definition: Definition) -> None:
        """Record that a batch of a handler ran, so that the handler counts as broken no longer."""
        if self._faults_of(definition):
            for at in (definition.key, definition.called):
                self._faults.pop(at, None)
            self._log.info("code.handler_mended", handler=definition.called)
            self.name_jobtypes()

    @property
    def trouble(self) -> str:
        """The broken handlers as text; empty: none is broken."""
        lines = [
            f"handler {each.called} is broken since {iso(fault.since_ms)}, {fault.of}: {_printable_line(fault.why)}"
            for each in self._known.values()
            if each.is_code
            for fault in self._faults_of(each)[:1]
        ]
        of_all = TROUBLES_CHARS_MAX - TROUBLE_CHARS_MIN  # leave room for the number of others
        each_max = min(TROUBLE_CHARS_MAX, max(TROUBLE_CHARS_MIN, of_all // max(1, len(lines))))
        shown = [line[: each_max - len(BETWEEN)] for line in lines[: of_all // each_max]]
        if len(shown) < len(lines):
            shown.append(f"and {len(lines) - len(shown)} more: see this worker's log")
        return BETWEEN.join(shown)

    def name_jobtypes(self) -> None:
        """Compute `jobtypes` and `trouble` anew. If they have changed, call `changed` and wake `wait_changed`."""
        code = [each for each in self._known.values() if each.is_code]
        there = {each.key for each in code} | {each.called for each in code}
        self._faults = {at: fault for at, fault in self._faults.items() if at in there}
        asked = [name for name in self._versions if not self._scopes or in_scope(self._scopes, name)]
        current = [(name, self.find(name)) for name in asked]
        plain = [name for name, each in current if each is not None and not self.is_resting(each)]
        by_number = [each.called for each in code if not self.is_resting(each)]
        if code and not plain + by_number:
            by_number = [each.called for each in code]  # stay registered for something, so that its trouble is shown
        jobtypes, trouble = tuple([*plain, *by_number][:JOBTYPES_MAX]), self.trouble
        if jobtypes != self.jobtypes or trouble != self._known_trouble:
            self.jobtypes, self._known_trouble = jobtypes, trouble
            self._changed()
            self._more.set()
            self._more = trio.Event()

    def _faults_of(self, definition: Definition) -> list[Fault]:
        return [self._faults[at] for at in (definition.key, definition.called) if at in self._faults]

    async def _look(self) -> None:
        """Read all handlers of the worker's tenant from the daemon. If that fails, keep the handlers that were read
        before."""
        try:
            rows = [row async for row in self._rows() if row.tenant == self._tenant]
            self._versions = {row.name: row.versions for row in rows}
            kept = {(row.name, one.version) for row in rows for one in row.versions if one.lang != "http"}
            self._known = {at: each for at, each in self._known.items() if at in kept}
            self._known |= {(row.name, row.version): row for row in rows}
            # A version never changes, so it is fetched once.
            for name, number in sorted(kept - self._known.keys())[:OLD_PER_LOOK]:
                path = path_of("handlers", name)
                self._known[name, number] = _decode_one(await self._get(path, {"version": str(number)}))
        except (httpx2.HTTPError, msgspec.MsgspecError, trio.TooSlowError) as error:
            if repr(error) != self._known_error:
                self._log.warning("code.handlers_unknown", daemon=self._daemon(), error=repr(error))
            self._known_error = repr(error)

    async def _rows(self) -> AsyncIterator[Definition]:
        cursor = ""
        while True:
            page = _decode_page(await self._get("/v1/handlers", {"cursor": cursor} if cursor else {}))
            for row in page.handlers:
                yield row
            cursor = page.cursor
            if not cursor:
                return

    async def _get(self, path: str, query: dict[str, str]) -> bytes:
        with trio.fail_after(CALL_S):
            answer = await self._http.get(f"{self._daemon()}{path}", params=query, headers={"accept": MSGPACK})
        answer.raise_for_status()
        return answer.content


def _printable_line(why: str) -> str:
    """Return the line of an error that says most, without control characters and `;`, which separates handlers."""
    text = "".join(one if one.isprintable() and one != ";" else " " for one in error_line(why))
    return " ".join(text.split())
