"""Looks at the store's settings, and at the journal's disk, again and again: a change while we run may lose jobs.

A setting that would lose jobs turns health red and keeps new jobs in the journal, where they are safe. Jobs that are in
the store already run and end, and pushes are taken as ever. All goes on as soon as the setting is mended.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import trio

from jqd.domain.diagnostic import PASSING, Diagnostic, Severity, refusals
from jqd.domain.errors import StoreAway, StoreUnsafe
from jqd.domain.log import get_logger
from jqd.store import StoreConfig, examine

LOOK_S = 10.0  # between looks; so long may a bad setting go unnoticed

Examine = Callable[[], Awaitable[list[Diagnostic]]]
Record = TypeVar("Record", contravariant=True)


class Apply(Protocol[Record]):
    """How a lane applies its records."""

    def __call__(self, journal_id: str, start: int, end: int, records: Sequence[Record], /) -> Awaitable[object]: ...


class Watch:
    """What the last look at the store found."""

    def __init__(self, examine: Examine, *, accept_loss: bool) -> None:
        """`accept_loss`: the operator accepts settings that lose jobs. They are reported, and stop nothing."""
        self._examine = examine
        self._accept_loss = accept_loss
        self._known = False  # whether the server that answers now was looked at
        self._findings: list[Diagnostic] = []
        self._log = get_logger("watch")

    @property
    def reason(self) -> str | None:
        """Why no new jobs are brought into the store, or None."""
        refused = [] if self._accept_loss else refusals(self._findings)
        what = "would lose jobs" if any(finding.is_loss for finding in refused) else "cannot be used"
        return f"the store {what}: {'; '.join(map(str, refused))}" if refused else None

    @property
    def warnings(self) -> list[str]:
        """What would lose jobs, and is accepted; and what has come over a server that was set up well."""
        accepted = refusals(self._findings) if self._accept_loss else []
        passing = [finding for finding in self._findings if finding.code in PASSING]
        return [*(f"accepted: {finding}" for finding in accepted), *map(str, passing)]

    async def start(self) -> None:
        """Look before anything else is done. Raises StoreUnsafe; a store that is away is looked at when it is back."""
        try:
            await self.look()
        except StoreAway as error:
            self._log.warning("watch.store_away", error=str(error))
        if self.reason is not None:
            # Accepting a loss opens no server that refuses us, and makes no wrong partition right.
            accept = "To run all the same: --i-accept-loss. " if _acceptable(self._findings) else ""
            raise StoreUnsafe(f"{self.reason}. {accept}`jqd doctor` tells more")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            try:
                await self.look()
            except StoreAway as error:
                # The loops that need it report it. Another server may answer afterwards: it is looked at first.
                self._log.debug("watch.store_away", error=str(error))
            await trio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look now. Raises StoreAway."""
        self._known = False
        try:
            findings = await self._examine()
        except OSError as error:  # no descriptor, no memory: it is ours, and may be over at the next look
            raise StoreAway(f"it cannot be looked at now: {error}") from error
        self._known = True
        before, self._findings = self._findings, findings
        for finding in findings:
            if finding not in before:
                self._note(finding)
        for code in {finding.code for finding in before} - {finding.code for finding in findings}:
            self._log.info("watch.mended", code=code)

    def guard(self, apply: Apply[Record]) -> Apply[Record]:
        """`apply`, but only into a store that keeps what it takes. Raises StoreUnsafe, or StoreAway, before it."""

        async def guarded(journal_id: str, start: int, end: int, records: Sequence[Record], /) -> object:
            if not self._known or self.reason is not None:  # while it is bad, each try looks anew
                await self.look()
            if self.reason is not None:
                raise StoreUnsafe(self.reason)
            return await apply(journal_id, start, end, records)

        return guarded

    def _note(self, finding: Diagnostic) -> None:
        note = self._log.error if finding.severity is Severity.REFUSE else self._log.warning
        note("watch.finding", code=finding.code, what=finding.what, why=finding.why, mend=finding.mend)


def _acceptable(findings: list[Diagnostic]) -> bool:
    return all(finding.is_loss for finding in refusals(findings))


def watch_over(settings: StoreConfig) -> Watch:
    """A watch over the server that a store is kept in."""
    return Watch(partial(examine, settings), accept_loss=settings.i_accept_loss)


def watch_disk(*looks: Callable[[], Iterable[Diagnostic]]) -> Watch:
    """A watch over what these find of the disk, which may stand still: each look waits for at most one thread."""
    limiter = trio.CapacityLimiter(1)

    async def look() -> list[Diagnostic]:
        with trio.move_on_after(LOOK_S):
            found = await trio.to_thread.run_sync(
                lambda: [finding for one in looks for finding in one()], abandon_on_cancel=True, limiter=limiter
            )
            return found
        raise TimeoutError(f"the disk has not answered for {LOOK_S:.0f} s")

    return Watch(look, accept_loss=False)


def watch_nothing() -> Watch:
    """For a store that has no server."""

    async def nothing_to_say() -> list[Diagnostic]:
        return []

    return Watch(nothing_to_say, accept_loss=False)
