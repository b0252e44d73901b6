"""Crash sites: hosts and ports where a connection broke, or where a suspect is sent: a job that may have caused such a
break. Each request there waits until it may be sent.

A site is made when the first connection breaks or the first suspect is sent, from the requests under way. Until then no
code of this file or of `crash_isolation.py` runs for a request.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Protocol

import trio

from jqd.runner.crash_isolation import Burst, CrashIsolation, Extent, Isolation
from jqd.runner.worker import Worker


class IsolatedRequest:
    """A request as crash isolation sees it: at its worker, and at the host and port, which several workers may
    share."""

    def __init__(self, worker: str, own: Isolation, machine: Isolation) -> None:
        self._worker, self._own, self._machine = worker, own, machine
        self._waits_at: Isolation | None = None  # where it waits until nothing else is at work

    async def wait_admitted(
        self,
        request: "Request",
        isolation: CrashIsolation,
        losses: int,
        send_s: float,
        now_s: Callable[[], float],
        wait_free: Callable[[], Awaitable[None]],
    ) -> None:
        """Wait until the request may be sent. A request of suspected jobs waits until nothing else runs at the worker;
        other requests wait while suspected jobs run there."""
        try:
            while True:
                # Read anew: group and extent change when more connections of the burst break.
                first = isolation.of(next(iter(request.missing), ""))
                jobs, group = len(request.missing), first.group if first is not None else 1
                extent = isolation.extent(request.missing)
                wait_s = self.admit_or_wait_s(losses, now_s(), send_s, jobs=jobs, group=group, extent=extent)
                if not wait_s:
                    return
                with trio.move_on_after(wait_s):
                    await wait_free()
        finally:
            self._wait_at(None)

    def admit_or_wait_s(
        self, losses: int, now_s: float, send_s: float, *, jobs: int, group: int, extent: Extent
    ) -> float:
        """Decide whether the request may be sent now. Returns 0 if it may, within the next `send_s`; else the seconds
        after which to ask again.

        `losses`: how often connections broke while its jobs ran; 0: its jobs are not suspected. `jobs`: their number.
        `group`: how many suspected jobs may run at once. `extent`: what suspected jobs have to themselves: while they
        wait, no new jobs are sent to their worker, or to the whole host and port."""
        machine = self._machine
        if not losses:
            wait_s = max(self._own.wait_s(now_s), machine.wait_s(now_s))
            if not wait_s:
                self.set_out()
            return wait_s
        place = machine if extent is Extent.ALL else self._own
        self._wait_at(place)
        if place is not machine and (wait_s := machine.wait_s(now_s)) > 0:
            return wait_s
        perhaps = extent is Extent.PERHAPS
        if perhaps and (others_s := machine.others_s(self._worker, now_s)) > 0:
            self._wait_at(None)  # its worker need not become empty yet: another one's suspects are at work
            return others_s
        wait_s = place.admit_or_wait_s(self, losses, now_s, send_s, jobs=jobs, group=group)
        if not wait_s:
            self._wait_at(None)
            if perhaps:
                machine.hold_others(self, self._worker, now_s, send_s)
        return wait_s

    def _wait_at(self, place: Isolation | None) -> None:
        """Note that the request waits until nothing else runs at this worker, or host and port. None: it no longer
        waits."""
        if self._waits_at is not None:
            self._waits_at.waiting -= 1
        if place is not None:
            place.waiting += 1
        self._waits_at = place

    def set_out(self) -> None:
        for place in (self._own, self._machine):
            place.set_out(self)

    def entered(self, jobs: int, losses: int, now_s: float) -> None:
        for place in (self._own, self._machine):
            place.entered(self, jobs, losses, now_s, self._worker)

    def fewer(self, jobs: int) -> None:
        for place in (self._own, self._machine):
            place.at_work -= jobs

    def is_alone(self) -> bool:
        """Return whether no other request was running at the host and port since this request was sent."""
        return self._machine.is_alone(self)

    def answered(self) -> None:
        self._machine.answered(self)

    def lost(self, now_s: float) -> Burst:
        """Note that the request's connection broke. Returns the burst: the connections that broke at about the same
        time."""
        self._own.lost(now_s, self)
        return self._machine.lost(now_s, self)

    def left(self, now_s: float) -> None:
        for place in (self._own, self._machine):
            place.left(self, now_s)


class Request(Protocol):
    """A request to a worker, from the claim of its jobs until its answer has ended."""

    worker: Worker
    missing: dict[str, Any]
    """Job id → each of its jobs that has no outcome yet."""
    isolated: IsolatedRequest | None
    set_out: bool
    """Whether crash isolation has allowed it to be sent."""
    sent_at_s: float | None


class Site:
    """Keeps jobs that may have crashed a worker apart from others: at one host and port, and at each worker there."""

    def __init__(self, under_way: Iterable[Request]) -> None:
        self.machine = Isolation()
        self._workers: dict[str, Isolation] = {}  # by URL: several may be registered at one
        sent: list[tuple[float, Request, IsolatedRequest]] = []
        for request in under_way:
            request.isolated = isolated = self.track(request.worker.url or request.worker.id)
            if request.sent_at_s is not None:
                sent.append((request.sent_at_s, request, isolated))
            elif request.set_out:
                isolated.set_out()
        for sent_at_s, request, isolated in sorted(sent, key=lambda one: one[0]):
            isolated.entered(len(request.missing), 0, sent_at_s)

    def track(self, url: str) -> IsolatedRequest:
        return IsolatedRequest(url, self._workers.setdefault(url, Isolation()), self.machine)

    def is_kept(self, url: str, now_s: float) -> bool:
        """Return whether the worker at this URL, or the whole host and port, is reserved for suspected jobs that run or
        wait."""
        own = self._workers.get(url)
        return self.machine.is_kept(now_s) or (own is not None and own.is_kept(now_s))

    def keep(self, urls: Collection[str]) -> None:
        """Forget workers that run no jobs and whose URL is not in `urls`."""
        self._workers = {url: each for url, each in self._workers.items() if url in urls or each.at_work}
