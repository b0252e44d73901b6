"""The workers known here: who they are, what they take, until when they are believed in.

A worker registered with a `ttl` must repeat itself in time, as one that may vanish does. One without stays, also over
a restart of the daemon (a JSON file, replaced atomically), until it unregisters or was unreachable for 5 minutes.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from jqd.runner.kept import Kept, write_whole
from jqd.runner.reach import Reach, Standing, standing_of
from jqd.words.clock import Clock
from jqd.words.errors import ConfigError, WorkerRefused
from jqd.words.job import NAME_LENGTH_MAX, PRIORITY_MAX, PRIORITY_MIN
from jqd.words.log import get_logger

UNREACHABLE_S = 300.0  # longer than a restart or a deploy takes; whoever is away longer registers again
WORKERS_MAX = 10_000  # far above any fleet; bounds memory against a worker that registers anew in a loop
JOBS_MAX = 100_000  # at once by one worker
BATCH_MAX = 10_000  # jobs in one POST
JOBTYPES_MAX = 1_000  # named by one worker; who takes more takes any
NAMES_MAX = 100_000  # jobtypes named by all workers together: each look for work goes through them, 0.3 s for so many
TTL_S_MAX = 86_400.0  # a day: a longer ttl notices nothing
URL_LENGTH_MAX = 2_048
FORMAT_VERSION = 1

Protocol = Literal["native", "lightjq"]

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_PATH = re.compile(r"[!$%&'()*+,./0-9:;=@A-Z_a-z~-]*")


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One registration."""

    id: str
    name: str
    url: str | None
    """Where batches are posted; None for a worker that pulls."""
    jobs: tuple[str, ...] | None
    """The jobtypes it takes; None: any."""
    max_jobs: int
    """Jobs at work at once."""
    batch: int | None
    """Jobs it likes in one POST; None: at most `max_jobs`."""
    priority_min: int
    priority_max: int
    ttl_s: float | None
    protocol: Protocol
    registered_at_ms: int
    standing: Standing = Standing.LOOPBACK
    """Of whoever registered it: how near the address may be that its URL leads to. None in old files: from here."""

    def takes(self, jobtype: str, priority: int) -> bool:
        """Whether a job of this type and priority is for this worker."""
        return (self.jobs is None or jobtype in self.jobs) and self.priority_min <= priority <= self.priority_max


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

        `reach`: what may be named by whom; None: as without any setting.

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

    def register(
        self,
        *,
        name: str,
        url: str | None = None,
        jobs: Sequence[str] | None = None,
        max_jobs: int = 1,
        batch: int | None = None,
        priority_min: int = PRIORITY_MIN,
        priority_max: int = PRIORITY_MAX,
        ttl_s: float | None = None,
        protocol: Protocol = "native",
        worker_id: str | None = None,
        peer: str | None = None,
    ) -> Worker:
        """Take a registration, or its repetition under the same `worker_id`. Raises WorkerRefused, naming the field.

        A worker that starts again and registers the same name and URL without its id gets the id it had: one server
        is one worker, however often it was restarted. `peer`: the address it came from; None: from this machine.
        """
        _check(name, url, jobs, max_jobs, batch, priority_min, priority_max, ttl_s, protocol, worker_id)
        standing = standing_of(peer)
        if url is not None:
            _refuse_unless(url, self._reach.judge_host(host_of(url), standing))
        self._expire()
        known = self._workers.get(worker_id) if worker_id else self._same_server(name, url, protocol)
        self._refuse_more(known, jobs)
        worker = Worker(
            id=known.id if known else worker_id or secrets.token_hex(8),
            name=name,
            url=url,
            jobs=None if jobs is None else tuple(dict.fromkeys(jobs)),
            max_jobs=max_jobs,
            batch=batch,
            priority_min=priority_min,
            priority_max=priority_max,
            ttl_s=ttl_s,
            protocol=protocol,
            registered_at_ms=known.registered_at_ms if known else self._clock.wall_ms(),
            standing=standing,
        )
        self._workers[worker.id] = worker
        self._seen_at_s[worker.id] = self._clock.mono_s()
        self._unreachable_since_s.pop(worker.id, None)
        if worker != known:
            self._log.info("workers.registered", worker=worker.id, name=name, url=url, max_jobs=max_jobs)
            if ttl_s is None or (known is not None and known.ttl_s is None):
                self._kept.touch()
        for watcher in self._watchers:
            watcher()
        return worker

    async def judge(self, url: str | None, peer: str | None) -> None:
        """Look a URL's name up. Raises WorkerRefused for one that must not be reached for somebody at `peer`."""
        if url is not None:
            check_url(url)
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
        """Raises WorkerRefused where there would be too many workers, or jobtypes of all of them."""
        if known is None and len(self._workers) >= WORKERS_MAX:
            raise WorkerRefused(f"{WORKERS_MAX} workers are registered already; unregister some", field="worker_id")
        others = sum(len(w.jobs or ()) for w in self._workers.values() if w is not known)
        had = len(known.jobs or ()) if known else 0  # who only says again what it said stays, whatever there is
        if others + len(jobs or ()) > NAMES_MAX and len(jobs or ()) > had:
            why = f"all workers together name at most {NAMES_MAX} jobtypes, the others have {others} of them already"
            raise WorkerRefused(f'{why}; unregister some, or say "*" for every one', field="jobs")

    def _same_server(self, name: str, url: str | None, protocol: Protocol) -> Worker | None:
        if url is None:
            return None
        same = (w for w in self._workers.values() if w.url == url and w.name == name and w.protocol == protocol)
        return next(same, None)

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
            for worker in file.workers:
                _check_worker(worker)
        except (msgspec.MsgspecError, WorkerRefused, RecursionError) as error:
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


def check_url(url: str) -> None:
    """Raises WorkerRefused unless `url` is http(s)://host[:port][/path] in plain ASCII."""

    def refuse(why: str) -> WorkerRefused:
        return WorkerRefused(f"the worker URL {url[:200]!r} {why}; give http(s)://host[:port][/path]", field="url")

    if len(url) > URL_LENGTH_MAX:
        raise refuse(f"has more than {URL_LENGTH_MAX} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refuse(f"cannot be read ({error})") from error
    if parts.scheme not in ("http", "https"):
        raise refuse("does not start with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise refuse("holds a user name or password, which would show in logs")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise refuse("has a query or fragment")
    host = parts.hostname or ""
    pattern = _IPV6 if "[" in parts.netloc else _HOST
    if not pattern.fullmatch(host):
        raise refuse("names no host" if not host else f"has a host that cannot be: {host[:100]!r}")
    if port == 0:
        raise refuse("has port 0")
    if not _PATH.fullmatch(parts.path) or url != url.strip() or any(c in url for c in "\t\r\n"):
        raise refuse("has characters in it that must be percent-encoded")


def host_of(url: str) -> str:
    """Of a URL that `check_url` found good."""
    return urlsplit(url).hostname or ""


def _refuse_unless(url: str, why_not: str | None) -> None:
    if why_not is not None:
        raise WorkerRefused(f"the worker URL {url[:200]!r} must not be reached from here: {why_not}", field="url")


def _check_worker(worker: Worker) -> None:
    _check(
        worker.name,
        worker.url,
        worker.jobs,
        worker.max_jobs,
        worker.batch,
        worker.priority_min,
        worker.priority_max,
        worker.ttl_s,
        worker.protocol,
        worker.id,
    )


def _check(
    name: str,
    url: str | None,
    jobs: Sequence[str] | None,
    max_jobs: int,
    batch: int | None,
    priority_min: int,
    priority_max: int,
    ttl_s: float | None,
    protocol: str,
    worker_id: str | None,
) -> None:
    """Raises WorkerRefused for the first field that is wrong."""
    _check_text("name", name)
    if worker_id is not None:
        _check_text("worker_id", worker_id)
    if url is not None:
        check_url(url)
    if jobs is not None:
        if isinstance(jobs, str) or not 1 <= len(jobs) <= JOBTYPES_MAX:
            raise WorkerRefused(f"jobs must be a list of 1 to {JOBTYPES_MAX} names", field="jobs")
        for jobtype in jobs:
            _check_text("jobs", jobtype)
    _check_range("max_jobs", max_jobs, 1, JOBS_MAX)
    if batch is not None:
        _check_range("batch", batch, 1, BATCH_MAX)
    _check_range("priority_min", priority_min, PRIORITY_MIN, PRIORITY_MAX)
    _check_range("priority_max", priority_max, priority_min, PRIORITY_MAX)
    if ttl_s is not None and not (isinstance(ttl_s, int | float) and 0 < ttl_s <= TTL_S_MAX):
        raise WorkerRefused(f"ttl must be above 0 and at most {TTL_S_MAX:.0f} seconds, not {ttl_s!r}", field="ttl")
    if protocol not in ("native", "lightjq"):
        raise WorkerRefused(f"protocol must be native or lightjq, not {protocol!r}", field="protocol")


def _check_text(field: str, value: Any) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_LENGTH_MAX or not value.isprintable():
        raise WorkerRefused(
            f"{field} must be 1 to {NAME_LENGTH_MAX} printable characters, not {value!r:.150}", field=field
        )


def _check_range(field: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise WorkerRefused(f"{field} must be a whole number from {least} to {most}, not {value!r:.50}", field=field)
