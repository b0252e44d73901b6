"""The workers known here: who they are, what they take, and how long their registration holds.

A worker that registered with a `ttl` must register again in time. One without stays until it unregisters or was
unreachable for 5 minutes; a JSON file, replaced atomically, keeps it over a restart of the daemon.
"""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from jqd.runner.endpoint import host_of
from jqd.runner.kept import Kept, write_whole
from jqd.runner.reach import Reach, standing_of
from jqd.runner.worker import Card, Worker, refused
from jqd.words.clock import Clock
from jqd.words.errors import ConfigError, Invalid
from jqd.words.log import get_logger

UNREACHABLE_S = 300.0  # longer than a restart or a deploy takes; a worker that is away longer registers again
WORKERS_MAX = 10_000  # far above any fleet; bounds memory against a worker that registers anew in a loop
NAMES_MAX = 100_000  # jobtypes named by all workers together: each look for work goes through them, 0.3 s for so many
FORMAT_VERSION = 1


class _File(msgspec.Struct):
    version: int
    workers: list[Worker]


class Workers:
    """The registry. Expiry is by monotonic time and noticed when somebody looks."""

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Clock,
        write: Callable[[Path, bytes], None] = write_whole,
        reach: Reach | None = None,
    ) -> None:
        """`path`: where workers without ttl outlive the daemon, or None. `write`: to the disk, all or nothing.

        `reach`: which addresses a registration may name; None: as without any setting.

        Raises ConfigError on a newer file.
        """
        self._path = path
        self._kept = Kept(path, "workers", self._content, write)
        self.run = self._kept.run
        self.wait_saved = self._kept.wait_saved
        self._clock = clock
        self._reach = reach or Reach()
        self._log = get_logger("workers")
        self._workers: dict[str, Worker] = {}
        self._seen_at_s: dict[str, float] = {}
        self._unreachable_since_s: dict[str, float] = {}
        self._watchers: list[Callable[[], None]] = []
        self._load()

    @property
    def failing(self) -> str | None:
        """Why registrations would not survive a restart now; None when they would."""
        return self._kept.failing

    def register(self, card: Card, *, peer: str | None = None) -> Worker:
        """Take a registration, or its repetition under the same id. Raises Invalid, naming the field.

        A worker that starts again and registers the same name and URL without its id gets the id it had: one server
        is one worker, however often it was restarted. `peer`: the address it came from; None: from this machine.
        """
        standing = standing_of(peer)
        if card.url is not None:
            _refuse_unless(card.url, self._reach.judge_host(host_of(card.url), standing))
        self._expire()
        known = self._workers.get(card.id) if card.id else self._same_server(card)
        self._refuse_more(known, card.jobs)
        said = msgspec.structs.asdict(card)
        said["id"] = known.id if known else card.id or secrets.token_hex(8)
        said["jobs"] = None if card.jobs is None else tuple(dict.fromkeys(card.jobs))
        registered_at_ms = known.registered_at_ms if known else self._clock.wall_ms()
        worker = Worker(**said, registered_at_ms=registered_at_ms, standing=standing)
        self._workers[worker.id] = worker
        self._seen_at_s[worker.id] = self._clock.mono_s()
        self._unreachable_since_s.pop(worker.id, None)
        if worker != known:
            self._log.info("workers.registered", worker=worker.id, name=card.name, url=card.url, max_jobs=card.max_jobs)
            if card.ttl_s is None or (known is not None and known.ttl_s is None):
                self._kept.touch()
        for watcher in self._watchers:
            watcher()
        return worker

    async def judge(self, url: str | None, peer: str | None) -> None:
        """Look a URL's name up. Raises Invalid for one that must not be reached for somebody at `peer`."""
        if url is not None:
            _refuse_unless(url, await self._reach.judge_name(host_of(url), standing_of(peer)))

    def unregister(self, worker_id: str) -> bool:
        """Forget a worker. False when it was not known. What it has in hand is waited for all the same."""
        return self._remove(worker_id, "unregistered")

    def get(self, worker_id: str) -> Worker | None:
        """The worker of this id, None when unknown or expired."""
        self._expire()
        return self._workers.get(worker_id)

    def list(self) -> list[Worker]:
        """All workers, oldest registration first."""
        self._expire()
        return [*self._workers.values()]

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each registration; it must not wait."""
        self._watchers.append(watcher)

    def reached(self, worker_id: str) -> None:
        """The worker answered."""
        self._unreachable_since_s.pop(worker_id, None)

    def unreachable(self, worker_id: str) -> None:
        """The worker could not be reached, once more. After UNREACHABLE_S of that it is forgotten."""
        if worker_id in self._workers:
            now_s = self._clock.mono_s()
            if now_s - self._unreachable_since_s.setdefault(worker_id, now_s) >= UNREACHABLE_S:
                self._remove(worker_id, "unreachable")

    def _refuse_more(self, known: Worker | None, jobs: Sequence[str] | None) -> None:
        """Raises Invalid where there would be too many workers, or jobtypes of all of them."""
        if known is None and len(self._workers) >= WORKERS_MAX:
            raise refused("worker_id", f"{WORKERS_MAX} workers are registered already; unregister some")
        others = sum(len(w.jobs or ()) for w in self._workers.values() if w is not known)
        had = (
            len(known.jobs or ()) if known else 0
        )  # a worker that repeats its registration stays, however many names there are
        if others + len(jobs or ()) > NAMES_MAX and len(jobs or ()) > had:
            why = f"all workers together name at most {NAMES_MAX} jobtypes, the others have {others} of them already"
            raise refused("jobs", f'{why}; unregister some, or say "*" for every one')

    def _same_server(self, card: Card) -> Worker | None:
        if card.url is None:
            return None
        wanted = card.url, card.name, card.style
        return next((w for w in self._workers.values() if (w.url, w.name, w.style) == wanted), None)

    def _expire(self) -> None:
        now_s = self._clock.mono_s()
        overdue = [
            worker.id
            for worker in self._workers.values()
            if worker.ttl_s is not None and now_s - self._seen_at_s[worker.id] > worker.ttl_s
        ]
        for worker_id in overdue:
            self._remove(worker_id, "expired")

    def _remove(self, worker_id: str, why: str) -> bool:
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return False
        del self._seen_at_s[worker_id]
        self._unreachable_since_s.pop(worker_id, None)
        self._log.info("workers.removed", worker=worker_id, name=worker.name, why=why)
        if worker.ttl_s is None:
            self._kept.touch()
        return True

    def _load(self) -> None:
        if self._path is None or not self._path.exists():
            return
        data = self._path.read_bytes()
        try:
            file = msgspec.json.decode(data, type=_File)
            if file.version != FORMAT_VERSION:
                raise ConfigError(
                    f"{self._path} has format version {file.version}, this jqd reads {FORMAT_VERSION};"
                    " run the jqd that wrote it, or move the file away and register the workers again"
                )
        except (msgspec.MsgspecError, Invalid, RecursionError) as error:
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            self._log.error("workers.damaged", path=str(aside), error=str(error))
            return
        now_s = self._clock.mono_s()
        for worker in file.workers[:WORKERS_MAX]:
            self._workers[worker.id] = worker
            self._seen_at_s[worker.id] = now_s

    def _content(self) -> bytes:
        kept = [worker for worker in self._workers.values() if worker.ttl_s is None]
        # In C: with NAMES_MAX names the json of Python would hold up the loop for half a second at each registration.
        return msgspec.json.format(msgspec.json.encode(_File(FORMAT_VERSION, kept)), indent=1)


def _refuse_unless(url: str, why_not: str | None) -> None:
    if why_not is not None:
        raise refused("url", f"the worker URL {url[:200]!r} must not be reached from here: {why_not}")
