"""Lets a loop survive a failing store or journal: it logs the failure once, and waits longer after each try."""

import random
from collections.abc import Awaitable, Callable

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalError, JournalRefused, JournalStuck, StoreAway, StoreRefused
from jqd.domain.log import get_logger

# A store that is back is noticed within a few seconds; one that is gone is not flooded.
STORE_BACKOFF = Backoff(first_s=0.1, factor=2.0, cap_s=3.0)


class LoopBackoff:
    def __init__(self, loop: str, *, source: random.Random) -> None:
        self.loop = loop
        self.failures = 0
        self.reason: str | None = None
        """Why this loop cannot go on now, for `/readyz`; None while it can."""
        self.stuck = False
        """Whether `reason` is a failure of the journal; False: of the store."""
        self._source = source
        self._log = get_logger(loop)

    async def attempt(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do the work and return True. If store or journal fail, wait before the next try and return False. Raises
        other errors."""
        try:
            await work()
        except (StoreAway, StoreRefused, JournalRefused, JournalStuck) as error:
            await self.wait_after_failure(error)
            return False
        self.succeeded()
        return True

    def succeeded(self) -> None:
        if self.failures:
            self._log.info(f"{self.loop}.{'goes_on' if self.stuck else 'store_back'}", tries=self.failures)
        self.failures, self.reason, self.stuck = 0, None, False

    async def wait_after_failure(self, error: StoreAway | StoreRefused | JournalError) -> None:
        """Log the failure once, as an error if a human must act. Then sleep, longer after each failure in a row."""
        self.failures += 1
        self.stuck = isinstance(error, JournalError)
        text = error.in_full if isinstance(error, StoreAway) else str(error)
        if self.reason is None:
            note = self._log.warning if isinstance(error, StoreAway) else self._log.error
            note(f"{self.loop}.{'stuck' if self.stuck else 'store_away'}", error=text)
        self.reason = text if isinstance(error, StoreAway) else f"{self.loop}: {text}"
        await trio.sleep(STORE_BACKOFF.delay_s(self.failures, self._source))
