"""Hosts and ports where a connection broke, or a suspect is sent: each request there has its turn.

A site is made at the first of these, from the requests that are under way. Until then nothing here is called, nor in
`crash_isolation.py`.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import trio

from jqd.runner.crash_isolation import Burst, Extent, Isolation, Suspects
from jqd.runner.worker import Worker


class Stay:
    """One request at a worker, and at the host and port where that is one of several perhaps."""

    def __init__(self, worker: str, own: Isolation, house: Isolation) -> None:
        self._worker, self._own, self._house = worker, own, house
        self._stands_back = False  # its worker need not become empty yet: another one's suspects are at work

    async def wait_turn(
        self,
        request: "Request",
        suspects: Suspects,
        losses: int,
        send_s: float,
        now_s: Callable[[], float],
        wait_free: Callable[[], Awaitable[None]],
    ) -> None:
        """Until it may go out: a suspect when nothing else is at its worker, others when none has that to itself."""
        with self.waiting(losses, suspects.extent(request.missing)):
            while True:
                # A group is larger than when it was packed, if more broke since.
                first = suspects.of(next(iter(request.missing), ""))
                jobs, group = len(request.missing), first.group if first is not None else 1
                extent = suspects.extent(request.missing)
                wait_s = self.turn(losses, now_s(), send_s, jobs=jobs, group=group, extent=extent)
                if not wait_s:
                    return
                with trio.move_on_after(wait_s):
                    await wait_free()

    @contextmanager
    def waiting(self, losses: int, extent: Extent) -> Iterator[None]:
        place = self._place(extent)
        place.waiting += bool(losses)
        try:
            yield
        finally:
            self._stand_back(place, back=False)
            place.waiting -= bool(losses)

    def turn(self, losses: int, now_s: float, send_s: float, *, jobs: int, group: int, extent: Extent) -> float:
        house = self._house
        if not losses:
            wait_s = max(self._own.wait_s(now_s), house.wait_s(now_s))
            if not wait_s:
                self.set_out()
            return wait_s
        if extent is not Extent.ALL and (wait_s := house.wait_s(now_s)) > 0:
            return wait_s
        perhaps = extent is Extent.PERHAPS
        others_s = house.others_s(self._worker, now_s) if perhaps else 0.0
        self._stand_back(self._own, back=others_s > 0)
        if others_s > 0:
            return others_s
        wait_s = self._place(extent).turn(self, losses, now_s, send_s, jobs=jobs, group=group)
        if perhaps and not wait_s:
            house.bear(self, self._worker, now_s, send_s)
        return wait_s

    def _stand_back(self, place: Isolation, *, back: bool) -> None:
        if back != self._stands_back:
            self._stands_back = back
            place.waiting += -1 if back else 1

    def set_out(self) -> None:
        for place in (self._own, self._house):
            place.set_out(self)

    def entered(self, jobs: int, losses: int, now_s: float) -> None:
        for place in (self._own, self._house):
            place.entered(self, jobs, losses, now_s, self._worker)

    def fewer(self, jobs: int) -> None:
        for place in (self._own, self._house):
            place.at_work -= jobs

    def is_alone(self) -> bool:
        """Whether nothing else was at work at its host and port since it was sent."""
        return self._house.is_alone(self)

    def answered(self) -> None:
        self._house.answered(self)

    def lost(self, now_s: float) -> Burst:
        """Its connection broke. Returns with what else."""
        self._own.lost(now_s, self)
        return self._house.lost(now_s, self)

    def left(self, now_s: float) -> None:
        for place in (self._own, self._house):
            place.left(self, now_s)

    def _place(self, extent: Extent) -> Isolation:
        return self._house if extent is Extent.ALL else self._own


class Request(Protocol):
    """A request to a worker, from when its jobs were claimed until its answer has ended."""

    worker: Worker
    missing: dict[str, Any]
    """Its jobs that have not stopped, by their ids."""
    stay: Stay | None
    set_out: bool
    """Whether it had its turn."""
    sent_at_s: float | None


class Site:
    """A host and port where a connection broke, or a suspect is sent."""

    def __init__(self, under_way: Iterable[Request]) -> None:
        self.house = Isolation()
        self._workers: dict[str, Isolation] = {}  # by URL: several may be registered at one
        sent: list[tuple[float, Request, Stay]] = []
        for request in under_way:
            request.stay = stay = self.stay(request.worker.url or request.worker.id)
            if request.sent_at_s is not None:
                sent.append((request.sent_at_s, request, stay))
            elif request.set_out:
                stay.set_out()
        for sent_at_s, request, stay in sorted(sent, key=lambda one: one[0]):
            stay.entered(len(request.missing), 0, sent_at_s)

    def stay(self, url: str) -> Stay:
        return Stay(url, self._workers.setdefault(url, Isolation()), self.house)

    def is_kept(self, url: str, now_s: float) -> bool:
        """Whether a suspect has that worker to itself, or waits for that, there or at all that is there."""
        own = self._workers.get(url)
        return self.house.is_kept(now_s) or (own is not None and own.is_kept(now_s))

    def keep(self, urls: Collection[str]) -> None:
        """Forget the workers that are at none of these, and have nothing at work."""
        self._workers = {url: each for url, each in self._workers.items() if url in urls or each.at_work}
