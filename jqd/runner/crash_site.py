"""Crash sites: hosts and ports where a connection broke, or where a suspect is sent: a job that may have caused such a
break. Each request there waits until it may be sent.

A site is made when the first connection breaks or the first suspect is sent, from the requests under way. Until then no
code of this file or of `crash_isolation.py` runs for a request.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING

import trio

from jqd.runner.crash_isolation import TURN_LOSSES, TURN_S, Burst, CrashIsolation, Isolation

if TYPE_CHECKING:
    from jqd.runner.delivery import Delivery


class IsolatedRequest:
    """A request as crash isolation sees it: at its worker, and at the host and port, which several workers may
    share."""

    def __init__(self, worker: Isolation, site: "Site") -> None:
        self.worker, self._site = worker, site

    async def wait_admitted(
        self,
        delivery: "Delivery",
        suspects: CrashIsolation,
        send_s: float,
        now_s: Callable[[], float],
        wait_free: Callable[[], Awaitable[None]],
    ) -> None:
        """Wait until the request of this delivery may be sent, within the next `send_s`. A request of suspected jobs
        waits until nothing else runs at the worker; other requests wait while suspected jobs run there."""
        worker, is_suspect = self.worker, delivery.losses > 0
        until_s = now_s() + (TURN_S if delivery.losses >= TURN_LOSSES else 0)
        while now_s() < until_s and (wait_s := self._site.take_turn_or_wait_s(self, now_s())):
            with trio.move_on_after(min(wait_s, until_s - now_s())):
                await wait_free()
        worker.waiting += is_suspect
        try:
            while True:
                # Read anew: the group changes when more connections of the burst break.
                first = suspects.of(next(iter(delivery.missing), ""))
                jobs, group = len(delivery.missing), first.group if first is not None else 1
                wait_s = worker.admit_or_wait_s(self, delivery.losses, now_s(), send_s, jobs=jobs, group=group)
                if not wait_s:
                    break
                with trio.move_on_after(wait_s):
                    await wait_free()
        finally:
            worker.waiting -= is_suspect

    def entered(self, jobs: int, losses: int, now_s: float) -> None:
        self._site.entered(self, jobs, now_s)
        self.worker.entered(self, jobs, losses, now_s)

    def fewer(self, jobs: int) -> None:
        self._site.at_work -= jobs
        self.worker.at_work -= jobs

    def is_alone(self) -> bool:
        """Return whether no other request was running at the host and port since this request was sent. False if a
        connection had broken there just before."""
        return self._site.alone is self

    def lost(self, now_s: float) -> Burst:
        """Note that the request's connection broke. Returns the burst: the connections of its worker that broke at
        about the same time."""
        burst = self.worker.lost(now_s)
        self._site.settled_at_s = self.worker.settled_at_s
        return burst

    def left(self, now_s: float) -> None:
        self._site.turn.discard(self)
        if self.is_alone():
            self._site.alone = None
        self.worker.left(self, now_s)


class Site:
    """Keeps jobs that may have crashed a worker apart from others, at each worker of one host and port."""

    def __init__(self, under_way: Iterable["Delivery"]) -> None:
        self.at_work = 0
        """Number of jobs that were sent to this host and port and have not ended."""
        self.alone: IsolatedRequest | None = None
        """The request beside which no other has run here since it was sent."""
        self.settled_at_s = float("-inf")
        """Shortly after the last loss: a request sent before this may have reached a process that was dying already."""
        self.turn: set[IsolatedRequest] = set()
        """The requests of one worker that have the turn: suspects of other workers wait."""
        self._turn_until_s = float("-inf")
        self._workers: dict[str, Isolation] = {}  # by URL: several may be registered at one
        for delivery in under_way:
            delivery.isolated = self.track(delivery.worker.url or delivery.worker.id)
            if delivery.sent_at_s is not None:
                delivery.isolated.entered(len(delivery.missing), 0, delivery.sent_at_s)

    def track(self, url: str) -> IsolatedRequest:
        return IsolatedRequest(self._workers.setdefault(url, Isolation()), self)

    def entered(self, request: IsolatedRequest, jobs: int, now_s: float) -> None:
        self.alone = None if self.at_work or now_s < self.settled_at_s else request
        self.at_work += jobs

    def take_turn_or_wait_s(self, request: IsolatedRequest, now_s: float) -> float:
        """Take the turn for a request of suspects, beside others of its worker, and return 0. If another worker has it,
        or a process may be dying just now, return the seconds after which to ask again."""
        if now_s >= self._turn_until_s:
            self.turn.clear()
        if any(other.worker is not request.worker for other in self.turn):
            return self._turn_until_s - now_s
        if not self.turn:
            if now_s < self.settled_at_s:
                return self.settled_at_s - now_s
            self._turn_until_s = now_s + TURN_S
        self.turn.add(request)
        return 0.0

    def is_kept(self, url: str, now_s: float) -> bool:
        """Return whether the worker at this URL is reserved for suspected jobs that run or wait."""
        worker = self._workers.get(url)
        return worker is not None and worker.is_kept(now_s)

    def keep(self, urls: Collection[str]) -> None:
        """Forget workers that run no jobs and whose URL is not in `urls`."""
        self._workers = {url: each for url, each in self._workers.items() if url in urls or each.at_work}
