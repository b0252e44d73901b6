"""The code worker: registers for the handlers that are code, leases their jobs, and runs them in contexts.

    slot   lease jobs of a daemon ──▶ batches ──▶ contexts (`pool.py`) ──▶ report outcomes, until accepted ──▶ lease …

Each of `concurrency` slots (tasks) runs one batch at a time. A slot asks all daemons in turn.
"""

import os
import random
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex

import httpx2
import msgspec
import trio

from jqd import __version__
from jqd.client.environ import daemon_token
from jqd.client.trust import trusted_at
from jqd.code.batch import STOPPING, Batch, LeasedJob, refused
from jqd.code.catalogue import Catalogue
from jqd.code.config import CodeConfig
from jqd.code.context import NO_PROCESS, Broken
from jqd.code.launch import NotStarted
from jqd.code.pool import Pool
from jqd.domain.clock import SystemClock
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.domain.media import MSGPACK
from jqd.domain.tokens import MAY, Role
from jqd.worker.lease import Lease, NoLease, Outcome, ask
from jqd.worker.register import BACKOFF, OF_ROLE, TTL_PULL_S, Registration, Slots

OF_JOBS = "jobs: "  # beginning of a daemon's message about the jobs that an outcome asks for
AS_A_WHOLE = "; nothing of this outcome was taken"  # end of that message
STRUCK_MAX = 20  # `J:` lines removed from one outcome, one report each; beyond it all are removed
STRUCK_CHARS = 128  # of the jobtype in such a line: the longest possible
_PLACE = re.compile(rf"{OF_JOBS}jobs/([0-9]+)")


class CodeLease(Lease):
    """Jobs leased to this worker. If a daemon refuses one of the new jobs that an outcome asks for (its `J:` lines),
    the outcome is sent again without that line."""

    def __init__(
        self,
        lease_id: str,
        jobs: Sequence[LeasedJob],
        http: httpx2.AsyncClient,
        daemon: Callable[[], str],
        silence_s: float,
        on_no_answer: Callable[[], None],
    ) -> None:
        super().__init__(lease_id, [job.job_id for job in jobs], http, daemon, silence_s, on_no_answer, "code")
        self.jobs = list(jobs)
        self._struck: dict[str, int] = {}  # job id → number of its removed `J:` lines

    def _correct(self, outcome: Outcome, why: str) -> bool:
        """Remove the `J:` line (a new job) that the daemon refused from an outcome, so that the job still succeeds; if
        the daemon named none, or STRUCK_MAX were refused, remove all. Say so in the job's log. Returns False if the
        outcome has no such line."""
        if not outcome.jobs or not why.startswith(OF_JOBS):
            return False
        jobs, named = list(outcome.jobs), _PLACE.match(why)
        struck = self._struck[outcome.job_id] = self._struck.get(outcome.job_id, 0) + 1
        if named is not None and int(named[1]) < len(jobs) and struck < STRUCK_MAX:
            struck_jobs = f"J: {str(jobs.pop(int(named[1])).get('name', ''))[:STRUCK_CHARS]}"
        else:
            struck_jobs, jobs = f"{len(jobs)} J: lines", []
        self._log.warning("code.line_refused", job_id=outcome.job_id, line=struck_jobs, why=why)
        why = why.removeprefix(OF_JOBS).removesuffix(AS_A_WHOLE)
        line = f"jqd: no job was pushed for {struck_jobs!r}: {why}"
        outcome.jobs, outcome.log = jobs, f"{outcome.log}\n{line}".lstrip("\n")
        return True


REST_S = 1.0  # pause while a daemon is away or a handler cannot run
WARM_MAX = 100  # jobtypes that a poll may name
LEASE_JOBS_MAX = 100  # jobs of a lease, for handlers with batches
LEFT_S = 5.0  # at the end, for daemons to take the last outcomes; other jobs run again elsewhere
ME_S = 5.0  # timeout of a call: a small message to a daemon near by
_encode = msgspec.msgpack.Encoder().encode


class _Me(msgspec.Struct):
    role: Role
    tenant: str = ""
    scopes: tuple[str, ...] = ()


class _Leased(msgspec.Struct):
    lease_id: str | None
    jobs: list[LeasedJob]


_decode_me = msgspec.msgpack.Decoder(_Me).decode
_decode_leased = msgspec.msgpack.Decoder(_Leased).decode


class HomeDaemon:
    """A daemon at which the worker registers and leases jobs. While it is unavailable, another daemon of its store
    stands in for it."""

    def __init__(
        self, daemon: str, http: httpx2.AsyncClient, name: str, slots: Slots, worker_id: str, silence_s: float
    ) -> None:
        self._slots, self._source = slots, random.Random()
        self.registration = Registration(
            daemon, self._spec, slots, worker_id=worker_id, http=http, source=self._source, ttl_s=TTL_PULL_S
        )
        self.catalogue: Catalogue | None = None
        self.wrong = ""
        """Why this worker can never work; empty: it can."""
        self._http, self._name, self._worker_id, self._silence_s = http, name, worker_id, silence_s

    @property
    def is_open(self) -> bool:
        """Whether to ask this daemon for jobs: there are handlers in code for this worker, and the daemon is
        available."""
        return self.catalogue is not None and bool(self.catalogue.jobtypes) and not self.registration.is_away

    @property
    def daemon(self) -> str:
        return self.registration.daemon

    async def run(self, config: CodeConfig, stopping: trio.Event) -> None:
        """Keep the worker registered for the present handlers in code. If its token can never be used for that, set
        `wrong` and `stopping`."""
        me = await self._me()
        if me is not None and me.tenant and config.sandbox == "none":
            self.wrong = f"the token is of tenant {me.tenant!r}, whose code runs in a sandbox only: add --sandbox bwrap"
        if me is None or self.wrong:
            stopping.set()
            return
        catalogue = Catalogue(
            self._http, lambda: self.daemon, me.tenant, SystemClock(), self.registration.hurry, scopes=me.scopes
        )
        self.catalogue = catalogue
        async with trio.open_nursery() as nursery:
            nursery.start_soon(catalogue.run)
            while True:
                while not catalogue.jobtypes:
                    await catalogue.wait_changed()
                await self._stay_registered(catalogue)

    async def _stay_registered(self, catalogue: Catalogue) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.registration.run)
                while catalogue.jobtypes:
                    await catalogue.wait_changed()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self.registration.leave()

    def _spec(self) -> dict[str, object]:
        assert self.catalogue is not None
        spec: dict[str, object] = {"name": self._name, "ttl": TTL_PULL_S, "heartbeat": self._silence_s}
        spec["jobs"] = list(self.catalogue.jobtypes)
        return spec | ({"trouble": self.catalogue.trouble} if self.catalogue.trouble else {})

    async def _me(self) -> _Me | None:
        """Ask for role, tenant and scopes of the worker's token, until the daemon answers that it may work. Returns
        None, and sets `wrong`, if all daemons keep refusing the token, or giving it a role that may not."""
        log, before, failures = get_logger("code"), "", 0
        while True:
            try:
                with trio.fail_after(ME_S):
                    answer = await self._http.get(f"{self.daemon}/v1/me", headers={"accept": MSGPACK})
                if answer.status_code == 200:
                    me = _decode_me(answer.content)
                    if Role.WORKER in MAY[me.role]:
                        self.registration.accepted()
                        return me
                    why = f"{OF_ROLE}{me.role}"
                else:
                    why = f"answered {answer.status_code} to GET /v1/me"
            except (httpx2.HTTPError, msgspec.MsgspecError, trio.TooSlowError) as error:
                why = f"not reached: {error!r}"
            if why != before:
                log.warning("code.daemon_away", daemon=self.daemon, why=why)
            before = why
            self.registration.failed(why)
            if self._slots.refused.is_set():
                self.wrong = f"the daemon at {self.daemon} {why}: a code worker needs a token of the role worker"
                self.wrong += " (JQD_TOKEN)"
                return None
            failures += 1
            await trio.sleep(BACKOFF.delay_s(failures, self._source))

    def _taken(self, leased: _Leased, silence_s: float) -> CodeLease | None:
        if leased.lease_id is None:
            return None
        on_no_answer = self.registration.hurry
        return CodeLease(
            leased.lease_id, leased.jobs, self._http, lambda: self.registration.answering, silence_s, on_no_answer
        )

    async def lease(self, pool: Pool, config: CodeConfig) -> CodeLease | None:
        """Lease jobs of one jobtype. Returns None if no job is ready, or the daemon did not answer."""
        assert self.catalogue is not None
        known = [(name, found) for name in self.catalogue.jobtypes if (found := self.catalogue.find(name)) is not None]
        warm = pool.warm
        asked = {
            "worker_id": self._worker_id,
            "max_jobs": min(LEASE_JOBS_MAX, max((found.batch for _, found in known), default=1)),
            "heartbeat": config.silence_s,
            "warm": [name for name, found in known if found.key in warm][:WARM_MAX],
        }
        try:
            return self._taken(await ask(self._http, self.daemon, asked, _decode_leased), config.silence_s)
        except NoLease as error:
            get_logger("code").debug("code.no_lease", daemon=self.daemon, why=str(error))
        self.registration.hurry()  # register again: it may have forgotten this worker, or another daemon may answer
        await trio.sleep(REST_S)
        return None


class Slot:
    """A task that leases jobs and runs them, one batch after the other."""

    def __init__(
        self, number: int, config: CodeConfig, homes: Sequence[HomeDaemon], pool: Pool, stopping: trio.Event
    ) -> None:
        self._turn, self._config, self._homes, self._pool, self._stopping = number, config, homes, pool, stopping

    async def run(self) -> None:
        """Lease and run jobs until `stopping` is set. A request under way is not cut short then, because its answer may
        bring jobs."""
        while not self._stopping.is_set():
            self._turn += 1
            count = len(self._homes)
            homes = (self._homes[(self._turn + more) % count] for more in range(count))
            home = next((each for each in homes if each.is_open), None)
            if home is None:
                with trio.move_on_after(REST_S / 4):
                    await self._stopping.wait()
            elif (lease := await home.lease(self._pool, self._config)) is not None:
                await self._work(home, lease)

    async def _work(self, home: HomeDaemon, lease: CodeLease) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease.beat)
            nursery.start_soon(lease.report)
            is_fit = await self._run(home, lease)
            await lease.wait_taken()
            nursery.cancel_scope.cancel()
        if not is_fit:
            await trio.sleep(REST_S)

    async def _run(self, home: HomeDaemon, lease: CodeLease) -> bool:
        """Run the jobs of a lease, batch by batch. Returns False if jobs were given back because this worker cannot run
        them."""
        assert home.catalogue is not None
        jobtype = lease.jobs[0].name
        definition = home.catalogue.find(jobtype)
        if definition is None:
            return self._give_back(lease, lease.jobs, f"there is no handler {jobtype!r} in code any more")
        if home.catalogue.is_resting(definition):
            return self._give_back(lease, lease.jobs, "its handler is broken")
        waiting = list(lease.jobs)
        while waiting and not self._stopping.is_set():
            batch = Batch(definition, waiting[: definition.batch], lease.put, lease.unwanted)
            del waiting[: definition.batch]
            lease.stop, lease.printed = batch.stop, batch.printed
            try:
                await self._pool.run(batch)
                home.catalogue.mended(definition)
            except Broken as error:
                home.catalogue.broke(definition, error)
                return self._give_back(lease, [*batch.left, *waiting], "its handler is broken")
            except NotStarted as error:  # treat it as broken, so that workers of other machines take its jobs
                home.catalogue.broke(definition, Broken(str(error), NO_PROCESS))
                return self._give_back(lease, [*batch.left, *waiting], str(error))
            for place, job in enumerate(batch.left):
                lease.put(refused(job, STOPPING, begun=place == 0 or definition.lang == "sh"))
        self._give_back(lease, waiting, STOPPING)
        return True

    def _give_back(self, lease: CodeLease, jobs: Sequence[LeasedJob], why: str) -> bool:
        for job in jobs:
            lease.put(refused(job, why))
        return False


async def serve(config: CodeConfig, base: Path, *, stopping: trio.Event, now: trio.Event, adopts: bool) -> None:
    """Lease and run jobs until `stopping` is set. Then let running jobs end, until `now` is set or `config.drain_s` is
    over.

    `base`: directory for the home folders of contexts. `adopts`: whether this process adopts orphaned descendants of
    contexts, and so has to end them. Raises ConfigError if all daemons keep refusing the token, or its code has to run
    in a sandbox and does not.
    """
    name = config.name or f"code-{socket.gethostname()}-{os.getpid()}"
    token, worker_id = daemon_token(), token_hex(8)
    headers = {"user-agent": f"jqd-code/{__version__}"} | ({"authorization": f"Bearer {token}"} if token else {})
    shares = Slots(lambda: config.concurrency * LEASE_JOBS_MAX, LEASE_JOBS_MAX)
    async with httpx2.AsyncClient(headers=headers, trust_env=False, verify=trusted_at(config.daemons)) as http:
        homes = [
            HomeDaemon(daemon.rstrip("/"), http, name, shares, worker_id, config.silence_s) for daemon in config.daemons
        ]
        async with trio.open_nursery() as outer:
            pool = Pool(config, base, outer, adopts=adopts)
            outer.start_soon(pool.watch)
            async with trio.open_nursery() as nursery:
                for home in homes:
                    nursery.start_soon(home.run, config, stopping)
                get_logger("code").info("code.serving", name=name, concurrency=config.concurrency)
                nursery.start_soon(_drain, pool, nursery, stopping, now, config.drain_s)
                async with trio.open_nursery() as slots:
                    for number in range(config.concurrency):
                        slots.start_soon(Slot(number, config, homes, pool, stopping).run)
                nursery.cancel_scope.cancel()
            pool.stop()
            outer.cancel_scope.cancel()
    get_logger("code").info("code.stopped", name=name)
    if wrong := [home.wrong for home in homes if home.wrong]:
        raise ConfigError(wrong[0])


async def _drain(pool: Pool, nursery: trio.Nursery, stopping: trio.Event, now: trio.Event, drain_s: float) -> None:
    """Wait until `stopping` is set, and let running jobs end until `now` is set or `drain_s` is over. Then kill the
    jobs that still run; they are given back."""
    await stopping.wait()
    with trio.move_on_after(drain_s):
        await now.wait()
    pool.stop()
    await trio.sleep(LEFT_S)
    nursery.cancel_scope.cancel()
