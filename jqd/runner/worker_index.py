"""The workers that hold, oldest registration first. What a registration asks of all of them is known uncounted."""

from collections import Counter
from collections.abc import Iterator

from jqd.runner.worker import Worker

Server = tuple[str, str | None, str, str]
"""Tenant, URL, name and style: who registers the same once more is the same worker."""


class WorkerIndex:
    """By id."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._servers: dict[Server, dict[str, None]] = {}
        self._is_ordered = True
        self._last = (0, "")  # the place of the last one, while they are in order
        self.tenants: Counter[str] = Counter()
        """Tenant → how many workers it has."""
        self.names: Counter[str] = Counter()
        """Tenant → jobtypes that all of its workers name."""

    def __len__(self) -> int:
        return len(self._workers)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def __iter__(self) -> Iterator[Worker]:
        if not self._is_ordered:
            ordered = sorted(self._workers.values(), key=_place)
            self._workers = {one.id: one for one in ordered}
            self._is_ordered = True
            self._last = _place(ordered[-1]) if ordered else (0, "")
        return iter(self._workers.values())

    def get(self, worker_id: str) -> Worker | None:
        """None: there is none."""
        return self._workers.get(worker_id)

    def at(self, server: Server) -> Worker | None:
        found = [self._workers[worker_id] for worker_id in self._servers.get(server, ())]
        return min(found, key=_place, default=None)

    def put(self, worker: Worker) -> None:
        """It holds from now on."""
        known, place = self._workers.get(worker.id), _place(worker)
        if known is not None:
            self._is_ordered = self._is_ordered and _place(known) == place
            self._count_out(known)
        else:
            self._is_ordered = self._is_ordered and place >= self._last
            self._last = place
        self._workers[worker.id] = worker
        self._servers.setdefault(_server(worker), {})[worker.id] = None
        self.tenants[worker.tenant] += 1
        self.names[worker.tenant] += len(worker.jobs or ())

    def pop(self, worker_id: str) -> Worker | None:
        """It does not hold any more."""
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            self._count_out(worker)
        return worker

    def _count_out(self, worker: Worker) -> None:
        there = self._servers[_server(worker)]
        del there[worker.id]
        if not there:
            del self._servers[_server(worker)]
        self.tenants[worker.tenant] -= 1
        self.names[worker.tenant] -= len(worker.jobs or ())


def _place(worker: Worker) -> tuple[int, str]:
    return worker.registered_at_ms, worker.id


def _server(worker: Worker) -> Server:
    return worker.tenant, worker.url, worker.name, worker.style
