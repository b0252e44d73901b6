"""The registered workers: what each takes, and whether it is alive.

A registration is a setting (`domain/settings.py`): saved at one daemon, it reaches all. A registration with a `ttl` is
valid while its worker gives some daemon a sign of life in time. One without is valid until the worker leaves, or until
no daemon could reach it for 5 minutes. Daemons exchange signs of life, and each judges silence by its own clock.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from jqd.domain.clock import Clock
from jqd.domain.flow import CALLBACK
from jqd.domain.job import why_no_place
from jqd.domain.job_spec import TypeOptions
from jqd.domain.settings import NIL, Setting, SettingTable
from jqd.domain.shares import Share
from jqd.domain.tenant import annotate, tenant_of
from jqd.runner.callbacks import CALLBACKS, callback_worker
from jqd.runner.endpoint import host_of, server_of
from jqd.runner.handler import Handler, Version, code_for, id_of, workers_of
from jqd.runner.presence import Presence
from jqd.runner.ssrf import AddressPolicy, SsrfGuard, machine, policy_of
from jqd.runner.worker import Worker, WorkerSpec, jobs_of, new_id, refused

KIND, HANDLER = "worker", "handler"  # kinds of settings
WORKERS = Share("workers", 10_000)  # far above any fleet; bounds memory against a worker that registers anew in a loop
NAMES = Share("jobtypes that workers name", 100_000)  # each search for work goes through them: 0.3 s for so many
PULL_SILENT_S = 7 * 86_400.0  # a pull worker that is silent for a week is removed; if it lives, a 404 makes it register
DISOWNED_S = 3_600.0  # how long a worker whose token ended is shown; a daemon may learn of its token late
FORMER_MAX = 4  # number of earlier registrations kept for a worker: versions of a program that run at once

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Worker)
_handlers = msgspec.msgpack.Decoder(Handler)


class WorkerRegistry(Presence):
    def __init__(
        self,
        settings: SettingTable | None = None,
        *,
        clock: Clock,
        ssrf: SsrfGuard | None = None,
        callback_secret: str = "",
    ) -> None:
        """`settings`: where registrations are kept; None: only in this process.

        `ssrf`: which addresses a registration may name; None: the default policy.
        """
        super().__init__(clock)
        self.settings = settings or SettingTable()
        self._ssrf = ssrf or SsrfGuard()
        self._repeated_at_s: dict[str, float] = {}  # worker → when its present registration was last sent here
        self._former: dict[str, tuple[bytes, ...]] = {}  # worker → digests of its earlier registrations, latest last
        self._disowned_at_s: dict[str, float] = {}  # worker → when its token was first seen to have ended
        self._watchers: list[Callable[[], None]] = []
        self.leaving: dict[str, str] = {}
        """Worker → why this daemon unregistered it, until a setting records that for all daemons."""
        self._handlers: dict[str, Handler] = {}
        self.settings.read(KIND, _read)
        self.settings.read(HANDLER, _read_handler)
        self.settings.watch(KIND, self._ruled)
        self.settings.watch(HANDLER, self._handled)
        self._callback_secret = callback_secret
        self.settings.read(CALLBACKS, lambda setting: msgspec.msgpack.decode(setting.body, type=bool))
        self.settings.watch(CALLBACKS, self._called_back)

    # ------------------------------------------------------------ registering

    def check(
        self,
        spec: WorkerSpec,
        *,
        options: Mapping[str, TypeOptions] | None = None,
        peer: str | None = None,
        tenant: str = "",
    ) -> Worker:
        """Check a registration and return the worker to be stored; nothing is registered yet. Raises Invalid, which
        names the field.

        A registration without an id, but with the URL, name and style of a registered worker, is for that worker, which
        keeps its id. `peer`: the address that the registration came from; None: this machine."""
        standing = policy_of(peer)
        for field, names in (("worker_id", (spec.id,)), ("jobs", spec.jobs or ())):
            if CALLBACK in names:
                raise refused(field, f"{CALLBACK} is what jqd calls its own callbacks; choose another name")
            if why := next(filter(None, map(why_no_place, filter(None, names))), None):
                raise refused(field, f"{field} {why}")
        if spec.url is not None:
            _refuse_unless(spec.url, self._ssrf.judge_host(host_of(spec.url), standing))
        self._expire()
        if spec.id:
            known = self._workers.get(annotate(tenant, spec.id))
        else:
            known = self._workers.at((tenant, spec.url, spec.name, spec.style)) if spec.url is not None else None
        self._refuse_more(known, spec.jobs, tenant)
        fields = msgspec.structs.asdict(spec)
        fields["id"] = known.id if known else annotate(tenant, spec.id or new_id(spec))
        fields |= {
            "jobs": jobs_of(spec, tenant),
            "registered_at_ms": known.registered_at_ms if known else self._clock.wall_ms(),
            "standing": standing,
            "machine": machine(),
            "options": {annotate(tenant, name): of_type for name, of_type in (options or {}).items()},
            "tenant": tenant,
            "secrets": self._secrets(fields["id"], spec.url) if spec.secrets is None else spec.secrets,
        }
        return Worker(**fields)

    def is_registered(self, worker: Worker) -> bool:
        """Return whether a registration repeats the present one, or one that it replaced, so that it need not be saved.

        A repeat may come from a more distant caller or another machine: else two such callers would replace each
        other's registration for ever."""
        known = self._workers.get(worker.id)
        if known is None or known.standing < worker.standing:
            return False
        if known == msgspec.structs.replace(worker, standing=known.standing, machine=known.machine):
            self._repeated_at_s[worker.id] = self._clock.mono_s()
            return True
        return self._is_former(worker, known)

    def _secrets(self, worker_id: str, url: str | None) -> Sequence[str]:
        """Return the secrets for a registration that gives none: those of the worker's earlier registration, even an
        expired one. Empty if there was none, or if the URL leads to another server.

        A worker that verifies signatures would refuse unsigned requests, and its jobs would fail for good. But another
        server could pass on signed requests as if the daemon had sent them."""
        setting = self.settings.get(KIND, worker_id)
        known = _read(setting) if setting is not None and not setting.is_deleted else None
        is_same = known and known.url and url and server_of(known.url) == server_of(url)
        return known.secrets if known and is_same else ()

    def _is_former(self, worker: Worker, known: Worker) -> bool:
        """Return whether a registration is an earlier one of this worker, to be ignored while the present one is
        repeated.

        During a deploy an old program and its new version behind one URL both repeat their registrations, and each
        would undo the other's. So the newer registration stays until it was not repeated here for its `ttl`."""
        if worker.ttl_s is None or known.ttl_s is None or worker.options == known.options:
            return False
        silent_s = self._clock.mono_s() - self._repeated_at_s[worker.id]
        return silent_s <= known.ttl_s and _digest_of(worker) in self._former.get(worker.id, ())

    def register(self, spec: WorkerSpec, *, peer: str | None = None) -> Worker:
        """Register a worker in this process alone, without a journal. Raises Invalid."""
        worker = self.check(spec, peer=peer)
        if not self.is_registered(worker):
            bodies = {(KIND, worker.id): body_of(worker)}
            self.settings.take(self.settings.make(bodies, now_ms=self._clock.wall_ms(), origin=0))
        self.repeated(worker.id)
        return worker

    async def judge(self, url: str | None, peer: str | None) -> None:
        """Look up a URL's host. Raises Invalid if a caller at the address `peer` may not register that host."""
        if url is not None:
            _refuse_unless(url, await self._ssrf.judge_name(host_of(url), policy_of(peer)))

    def unregister(self, worker_id: str, why: str = "unregistered") -> bool:
        """Unregister a worker here at once, and soon at all daemons; its jobs in flight continue. Returns whether it
        was known."""
        self._expire()
        if self._versions.pop(worker_id, None) is None and not self._remove(worker_id, why):
            return False
        self.leaving[worker_id] = why
        return True

    def why_no_callback(self, url: str) -> str | None:
        """Return why no callback may go to a valid URL; None: none is known. It does not look up the host."""
        why = self._ssrf.judge_host(host_of(url), AddressPolicy.CALLBACK)
        return f"must not be reached from here: {why}" if why else None

    def farewells(self) -> dict[tuple[str, str], bytes]:
        """Return (kind, name) → body of the settings that unregister the workers in `leaving` at all daemons."""
        bodies, versions = dict[tuple[str, str], bytes](), set[str]()
        for name, handler in self._handlers.items() if self.leaving else ():
            ids = [id_of(name, version.number) for version in handler.versions]
            versions.update(ids)
            if not self.leaving.keys().isdisjoint(ids):
                pairs = zip(ids, handler.versions, strict=True)
                kept = (msgspec.structs.replace(v, out=self.leaving.get(own, v.out)) for own, v in pairs)
                bodies[HANDLER, name] = _encoder.encode(Handler(handler.last, tuple(kept)))
        return no_more([worker_id for worker_id in self.leaving if worker_id not in versions]) | bodies

    # ------------------------------------------------------------ reading

    def handler(self, name: str) -> Handler | None:
        """Return a handler, even a deleted one; None: there never was one."""
        return self._handlers.get(name)

    def code(self, jobtype: str) -> Version | None:
        """Return the version in code that runs jobs of this type; None: the type has no handler, or its handler is a
        URL."""
        name, _, number = jobtype.rpartition("@")
        plain, by_number = self._handlers.get(jobtype), self._handlers.get(name)
        found = code_for(plain) if plain is not None else None
        if found is None and by_number is not None and number.isdecimal():
            found = code_for(by_number, int(number))
        return found

    def handlers(self) -> dict[str, Handler]:
        return {name: handler for name, handler in sorted(self._handlers.items()) if handler.versions}

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called after each change of a registration or handler; it must not wait."""
        self._watchers.append(watcher)

    def _call_watchers(self) -> None:
        for watcher in self._watchers:
            watcher()

    def repeated(self, worker_id: str) -> None:
        """Note that a worker registered, or repeated its registration."""
        self.reached(worker_id)
        self._call_watchers()

    def forget_silent(self) -> None:
        """Unregister pull workers without a ttl that were silent for PULL_SILENT_S, and workers whose token ended
        DISOWNED_S ago."""
        now_s = self._clock.mono_s()
        for worker in [*self._workers]:
            pulls = worker.url is None and worker.ttl_s is None
            if pulls and now_s - self._signed_at_s.get(worker.id, now_s) > PULL_SILENT_S:
                self.unregister(worker.id, "silent")
        disowned = {
            worker.id: self._disowned_at_s.get(worker.id, now_s) for worker in self._workers if self.is_disowned(worker)
        }
        self._disowned_at_s = disowned
        for worker_id in [worker_id for worker_id, since_s in disowned.items() if now_s - since_s > DISOWNED_S]:
            self.unregister(worker_id, "its token ended")
        registered = {setting.name for setting in self.settings.all(KIND)}
        for notes in (self._seen_at_s, self._signed_at_s):
            for worker_id in notes.keys() - registered:
                del notes[worker_id]

    def silent(self) -> Iterator[tuple[float, Setting]]:
        """Yield (s, registration) for registrations whose ttl has run out; s: how many seconds ago."""
        now_s = self._now_s()
        for setting in self.settings.all(KIND):
            if setting.name not in self._workers and not setting.is_deleted:
                yield now_s - self._seen_at_s.setdefault(setting.name, now_s), setting

    # ------------------------------------------------------------ within

    def _back(self, worker_id: str) -> Worker | None:
        setting = self.settings.get(KIND, worker_id)
        if setting is not None and worker_id not in self.leaving:
            self._ruled(setting)
        return self._workers.get(worker_id)

    def _ruled(self, setting: Setting) -> None:
        self.leaving.pop(setting.name, None)
        if setting.is_deleted:
            self._remove(setting.name, "unregistered", setting.at_ms)
            self._seen_at_s.pop(setting.name, None)
            return
        worker = _read(setting)
        known = self._workers.get(worker.id)
        self._workers.put(worker)
        self._repeated_at_s[worker.id] = self._clock.mono_s()
        if known is not None and known.options != worker.options:
            before = [one for one in self._former.get(worker.id, ()) if one != _digest_of(worker)]
            self._former[worker.id] = (*before, _digest_of(known))[-FORMER_MAX:]
        if known is not None and known.secrets and not worker.secrets:
            self._log.warning("workers.unsigned", worker=worker.id, name=worker.name)  # at its own wish: see `_secrets`
        now_s = self._seen_at_s[worker.id] = self._now_s()
        self._lasting_s = min(self._lasting_s, now_s + (math.inf if worker.ttl_s is None else worker.ttl_s))
        self._note_age(worker.id, self._clock.wall_ms() - setting.at_ms)
        self._unreachable_s.pop(worker.id, None)
        who = {"worker": worker.id, "name": worker.name}
        self._log.info("workers.registered", **who, url=worker.url, max_jobs=worker.max_jobs)
        self._call_watchers()

    def _handled(self, setting: Setting) -> None:
        handler, versions = (Handler(0), []) if setting.is_deleted else _read_handler(setting)
        self._handlers[setting.name] = handler
        self._versions = {one.id: one for one in self._versions.values() if one.handler != setting.name}
        self._versions |= {one.id: one for one in versions}
        for version in handler.versions:
            self.leaving.pop(id_of(setting.name, version.number), None)
        self._log.info("workers.handler", name=setting.name, version=handler.last, versions=len(versions))
        self._call_watchers()

    def _called_back(self, setting: Setting) -> None:
        if setting.is_deleted:
            return
        self.own[setting.name] = callback_worker(tenant_of(setting.name), self._callback_secret)
        self._call_watchers()

    def _refuse_more(self, known: Worker | None, jobs: Sequence[str] | None, tenant: str) -> None:
        """Raise Invalid if there would be too many workers, or too many jobtypes of all workers together."""
        if known is None and (why := WORKERS.why_no_more(tenant, self._workers.tenants)):
            raise refused("worker_id", why)
        # A worker that repeats its registration stays, however many names there are.
        more = len(jobs or ()) - (len(known.jobs or ()) if known else 0)
        if more > 0 and (why := NAMES.why_no_more(tenant, self._workers.names, more)):
            raise refused("jobs", f'{why}, or say "*" for every one')

    def _remove(self, worker_id: str, why: str, at_ms: int | None = None) -> bool:
        for notes in (self._repeated_at_s, self._former):
            notes.pop(worker_id, None)
        return super()._remove(worker_id, why, at_ms)


def _read(setting: Setting) -> Worker:
    return _decoder.decode(setting.body)


def _read_handler(setting: Setting) -> tuple[Handler, list[Worker]]:
    handler = _handlers.decode(setting.body)
    return handler, workers_of(setting.name, handler)


def _digest_of(worker: Worker) -> bytes:
    """Return a digest of a registration, to recognise repetitions. It ignores `trouble`, `standing` and `machine`."""
    bare = msgspec.structs.replace(worker, trouble=None, standing=AddressPolicy.LOOPBACK, machine="")
    return hashlib.blake2b(_encoder.encode(bare), digest_size=16).digest()


def body_of(worker: Worker) -> bytes:
    return _encoder.encode(worker)


def no_more(worker_ids: Collection[str]) -> dict[tuple[str, str], bytes]:
    return {(KIND, worker_id): NIL for worker_id in worker_ids}


def _refuse_unless(url: str, why_not: str | None) -> None:
    if why_not is not None:
        raise refused("url", f"the worker URL {url[:200]!r} must not be reached from here: {why_not}")
