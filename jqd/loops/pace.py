"""How a loop survives a store that is away: log the change once, wait a little longer each time, go on."""

import random

import trio

from jqd.backoff import Backoff
from jqd.errors import StoreAway, StoreRefused
from jqd.log import get_logger

# A store that is back should find us within a few seconds; one that is gone should not be hammered.
STORE_BACKOFF = Backoff(first_s=0.1, factor=2.0, cap_s=3.0)


class Pace:
    """One loop's view of the store: reachable, or away since so many tries."""

    def __init__(self, loop: str, *, source: random.Random) -> None:
        self.loop = loop
        self.failures = 0
        self.reason: str | None = None
        """Why this loop cannot go on now, for `/readyz`; None while it can."""
        self._source = source
        self._log = get_logger(loop)

    def went_well(self) -> None:
        """The store answered."""
        if self.failures:
            self._log.info(f"{self.loop}.store_back", tries=self.failures)
        self.failures, self.reason = 0, None

    async def wait_after(self, error: StoreAway | StoreRefused) -> None:
        """Note the failure and wait before the next try. A refusal needs a human: it is logged as an error."""
        self.failures += 1
        if self.reason is None:
            note = self._log.error if isinstance(error, StoreRefused) else self._log.warning
            note(f"{self.loop}.store_away", error=str(error))
        self.reason = str(error)
        await trio.sleep(STORE_BACKOFF.delay_s(self.failures, self._source))
