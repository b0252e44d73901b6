"""Examines the store's settings and the journal's disk regularly, because a change at run time may lose jobs.

A setting of the store that would lose jobs turns health red and keeps new jobs in the journal, where they are safe.
Jobs already in the store run and end, and pushes are accepted. New jobs are applied to the store again as soon as its
setting is mended."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import trio

from jqd.domain.beat import rest
from jqd.domain.diagnostic import PASSING, Diagnostic, Severity, refusals
from jqd.domain.errors import StoreAway, StoreUnsafe
from jqd.domain.log import get_logger
from jqd.store import Evictions, StoreConfig, examine

LOOK_S = 10.0  # how long a bad setting may go unnoticed
SILENT_MEND = "look at the disk, and whether the data directory is still there: pushes may be refused from now on"

Examine = Callable[[], Awaitable[list[Diagnostic]]]
Apply = Callable[[str, int, int, Sequence[Any]], Awaitable[object]]
"""The call by which a lane applies its records: (journal id, start, end, records)."""


class Watch:
    def __init__(self, examine: Examine, *, accept_loss: bool) -> None:
        """`accept_loss`: report findings that would lose jobs, but still apply new jobs to the store; a store that
        cannot be used at all is refused all the same."""
        self._examine = examine
        self._accept_loss = accept_loss
        self._known = False  # whether the server that answers now was examined
        self._findings: list[Diagnostic] = []
        self._log = get_logger("watch")

    @property
    def reason(self) -> str | None:
        """Why new jobs are not applied to the store; None: they are."""
        refused = [finding for finding in refusals(self._findings) if not self._is_accepted(finding)]
        what = "would lose jobs" if any(finding.is_acceptable for finding in refused) else "cannot be used"
        return f"the store {what}: {'; '.join(map(str, refused))}" if refused else None

    def _is_accepted(self, finding: Diagnostic) -> bool:
        return self._accept_loss and finding.is_acceptable

    @property
    def warnings(self) -> list[str]:
        """Findings to show as warnings: losses that the operator accepted, and conditions that pass by themselves."""
        accepted = filter(self._is_accepted, refusals(self._findings))
        passing = [finding for finding in self._findings if finding.code in PASSING]
        return [*(f"accepted: {finding}" for finding in accepted), *map(str, passing)]

    async def start(self) -> None:
        """Examine the store at the start. Raises StoreUnsafe if it must not be used. A store that is away is examined
        later."""
        try:
            await self.look()
        except StoreAway as error:
            self._log.warning("watch.store_away", error=error.in_full)
        if self.reason is not None:
            # Only losses can be accepted, not a server that refuses us or a wrong partition.
            acceptable = all(finding.is_acceptable for finding in refusals(self._findings))
            accept = "To run all the same: --i-accept-loss. " if acceptable else ""
            raise StoreUnsafe(f"{self.reason}. {accept}`jqd doctor` tells more")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            try:
                await self.look()
            except StoreAway as error:
                # Other loops report it. Another server may answer afterwards, so `guard` examines it first.
                self._log.debug("watch.store_away", error=error.in_full)
            await rest(LOOK_S)

    async def look(self) -> None:
        """Examine the store and note the findings. Raises StoreAway."""
        self._known = False
        try:
            findings = await self._examine()
        except OSError as error:  # no descriptor or memory: a condition of this machine that may pass
            raise StoreAway(f"it cannot be looked at now: {error}") from error
        self._known = True
        before, self._findings = self._findings, findings
        for finding in findings:
            if finding not in before:
                self._note(finding)
        for code in {finding.code for finding in before} - {finding.code for finding in findings}:
            self._log.info("watch.mended", code=code)

    def guard(self, apply: Apply) -> Apply:
        """Return `apply` with a check before each call: it raises StoreUnsafe or StoreAway unless the store is safe."""

        async def guarded(journal_id: str, start: int, end: int, records: Sequence[Any]) -> object:
            if not self._known or self.reason is not None:  # while it is unsafe, each try examines it anew
                await self.look()
            if self.reason is not None:
                raise StoreUnsafe(self.reason)
            return await apply(journal_id, start, end, records)

        return guarded

    def _note(self, finding: Diagnostic) -> None:
        note = self._log.error if finding.severity is Severity.REFUSE else self._log.warning
        note("watch.finding", code=finding.code, what=finding.what, why=finding.why, mend=finding.mend)


def watch_over(settings: StoreConfig) -> Watch:
    return Watch(partial(examine, settings, evictions=Evictions()), accept_loss=settings.i_accept_loss)


def watch_disk(*looks: Callable[[], Iterable[Diagnostic]]) -> Watch:
    """Return a `Watch` that examines the disk by calling `looks`. A call that fails or hangs is a finding, because
    nothing else notices it while nothing is written. A hanging disk occupies one thread only."""
    limiter = trio.CapacityLimiter(1)

    async def look() -> list[Diagnostic]:
        why = f"the disk has not answered for {LOOK_S:.0f} s"
        with trio.move_on_after(LOOK_S):
            try:
                found = await trio.to_thread.run_sync(
                    lambda: [finding for each in looks for finding in each()], abandon_on_cancel=True, limiter=limiter
                )
                return found
            except OSError as error:
                why = f"the system says: {error}"
        return [Diagnostic("disk_silent", Severity.WARN, "the journal's disk cannot be looked at", why, SILENT_MEND)]

    return Watch(look, accept_loss=False)


def watch_nothing() -> Watch:
    """Return a `Watch` that finds nothing, for a store without a server."""

    async def nothing_found() -> list[Diagnostic]:
        return []

    return Watch(nothing_found, accept_loss=False)
