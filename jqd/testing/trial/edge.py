"""A daemon in memory, for one test: the real API and services on a `FakeStore`, without disk and workers.

Journaled records are applied at once, and the test itself claims and ends jobs. There are no background tasks and no
leases to renew, so nothing happens unless a method is called. Time is a `ManualClock`. The daemon runs in a trio loop
in a thread of its own; other threads call its methods.
"""

import queue
import random
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import unquote

import msgspec
import trio

from jqd.api import Api, ApiConfig, ApiContext, Authenticator
from jqd.chaining.flows import Flows
from jqd.chaining.follow import follow
from jqd.chaining.release import release
from jqd.domain.backoff import Backoff
from jqd.domain.clock import SystemClock
from jqd.domain.job import Held, Wanted
from jqd.domain.job_spec import TypeOptions
from jqd.domain.jobid import IdSource
from jqd.domain.record import Lane, decode_cancels, decode_jobs, decode_outcomes, decode_rules, encode_outcomes
from jqd.domain.results import RESULT_BYTES_MAX
from jqd.features import HOOKS
from jqd.http import Request, RequestHead, Response
from jqd.routes import ROUTES
from jqd.runner import Running, WorkerRegistry
from jqd.runner.outcome import Report, end_attempt
from jqd.service import JobSpec, Services
from jqd.service.edit import AT_ONCE_S
from jqd.service.outcome_checks import wrong
from jqd.service.settings import save
from jqd.store import Owner
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from jqd.worker.job import Job

T = TypeVar("T")

NUMBER = 1  # of the journal
JOURNAL_ID = f"{NUMBER:010x}" + "0" * 22
NAME = "testing"  # of this daemon, and of the worker that jobs seem to run at
ANSWER_S = 30.0  # for any call: many times what a thousand jobs take; longer is an internal error
OUTBOX_BYTES = 4 << 20  # more than one entry has
PROMOTED_MAX = 1_000  # jobs whose dates have come, in one call


class TrialDaemon:
    """A daemon in memory. Call `open` first and `close` last. Call all public methods from other threads than its
    own."""

    def __init__(self, backoff: Backoff, jobs: Mapping[str, Job[..., Any, Any]]) -> None:
        """`backoff`: delays between attempts of jobs that set none. `jobs`: the jobs of the app, to which a test may
        add some at any time."""
        self.clock = ManualClock(wall_ms=SystemClock().wall_ms())
        self.pushed: list[str] = []
        """Ids of all pushed jobs, in order of their pushes."""
        self._backoff, self._source = backoff, random.Random(1)
        self._jobs, self._declared = jobs, 0  # how many of them have their options registered
        self._running: dict[str, int] = {}
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[[], Awaitable[Any]]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start the thread of the daemon."""
        self._thread = threading.Thread(target=trio.run, args=(self._live,), name="jqd-testing", daemon=True)
        self._thread.start()
        self._ask(self._begin)

    def close(self) -> None:
        """End the thread of the daemon. Its data is lost."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(ANSWER_S)

    # ------------------------------------------------------------ what is asked, from any thread

    def answer(self, method: str, path: bytes, query: bytes, headers: Mapping[str, str], body: bytes) -> Response:
        """Handle one API request; return the response."""
        heading = RequestHead(method, unquote(path.decode()), path.decode(), query, headers)
        answer = self._ask(lambda: self._answer(heading, body))
        assert answer is not None, "nobody hangs up here"
        return answer

    def claim(self, names: Collection[str]) -> Held | None:
        """Claim the next job of the jobtypes `names`. It counts as running from then on. None: no such job is ready."""
        return self._ask(lambda: self._claim(names))

    def end(self, held: Held, report: Report) -> None:
        """Record the outcome of a claimed job's attempt."""
        self._ask(lambda: self._end(held, report))

    def give_back(self, held: Held) -> None:
        """Release a claimed job that was not started, so that it can be claimed again."""
        self._ask(lambda: self._give_back(held))

    def next_due_s(self) -> float | None:
        """Return the seconds until the next delayed job may run; None: no job is delayed."""
        return self._ask(self._next_due_s)

    # ------------------------------------------------------------ its own thread

    def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        future: Future[T] = Future()
        self._asked.put((future, call))
        return future.result(ANSWER_S)

    async def _live(self) -> None:
        """Carry out the calls that other threads make, one after another, so that no two change the same data at
        once."""
        while (asked := await trio.to_thread.run_sync(self._asked.get)) is not None:
            future, call = asked
            try:
                future.set_result(await call())
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
                future.set_exception(error)

    async def _begin(self) -> None:
        self._store = FakeStore(self.clock)
        self._journal = Journal(self.clock)
        self._positions = dict.fromkeys(Lane, 0)
        await self._store.look(fresh=True)
        await self._store.applied(JOURNAL_ID)
        self._owner: Owner = await self._store.reserve_sysid(NAME, True, through=True)
        config, workers = ApiConfig(), WorkerRegistry(None, clock=self.clock)
        # These fakes have only what the allowed requests need.
        journal, runner, control = (
            cast("Any", each) for each in (self._journal, FakeRunner(self._running), Control(self))
        )
        self._services = Services(config, journal, self._store, runner, workers, control, self.clock, HOOKS)
        self._flows = Flows(0, [self._store], control.settled, self._release, clock=self.clock, source=self._source)
        self._api = Api(ApiContext(config, self._services, Authenticator(self._services.tokens)), ROUTES)

    async def _declare(self) -> None:
        """Register the options that jobs declare, as the registration of a worker does, if the app has new jobs. They
        hold for pushes that leave them out."""
        if len(self._jobs) == self._declared:
            return
        jobs = tuple(self._jobs.values())
        self._declared = len(jobs)
        options = {job.name: msgspec.convert(job.declared, TypeOptions) for job in jobs}
        await save(self._services, lambda: self._services.options.bodies(options, NAME))
        await self.apply()

    async def _answer(self, heading: RequestHead, body: bytes) -> Response | None:
        await self._declare()
        answer = await self._api(Whole(heading, "127.0.0.1", body))
        if answer is not None and answer.stream is not None:
            pieces = [answer.body]

            async def write(piece: bytes) -> bool:
                pieces.append(piece)
                return True

            why = await answer.stream(write)
            assert why is None, why
            answer.body, answer.stream = b"".join(pieces), None
        await self._settle()
        return answer

    async def _settle(self) -> None:
        """Apply all journaled records, and release jobs that are blocked by parents, once these have ended. Repeat that
        until nothing is left to do."""
        await self.apply()
        while await self._flows.one_whole_round() == 0.0:
            await self.apply()

    async def _release(self, job_id: str, failed: str, mark: str) -> bool:
        done = await release(self._services, job_id, failed, mark)
        if failed:
            self.clock.advance(AT_ONCE_S)  # a job may be marked as failed only so long after its push
        return done

    async def apply(self) -> None:
        """Apply all journaled records to the store."""
        frames, self._journal.frames = self._journal.frames, []
        store = self._store
        for lane, body in frames:
            start = self._positions[lane]
            where = JOURNAL_ID, start, start + 1
            self._positions[lane] = start + 1
            match lane:
                case Lane.JOBS:
                    await store.apply_jobs(*where, decode_jobs(body))
                case Lane.CHANGES:
                    await store.apply_changes(*where, decode_jobs(body))
                case Lane.CANCELS:
                    await store.apply_cancels(*where, decode_cancels(body))
                case Lane.RULES:
                    await store.apply_settings(*where, settings := decode_rules(body))
                    self._services.workers.settings.take(settings)
                case Lane.OUTCOMES:
                    outcomes = await store.put_results(JOURNAL_ID, start, decode_outcomes(body))
                    await store.apply_outcomes(*where, outcomes)

    async def _claim(self, names: Collection[str]) -> Held | None:
        while (await self._store.promote(PROMOTED_MAX)).moved:
            await self._settle()  # a promoted job may have expired
        for waiting in await self._store.get_waiting_jobtypes([Wanted(name) for name in names], 1):
            best = waiting.priority
            for held in await self._store.get_waiting_jobs(
                self._owner, waiting.jobtype, 1, priority_min=best, priority_max=best, bytes_max=1
            ):
                self._running[held.job.id] = self.clock.wall_ms()
                return held
        return None

    async def _end(self, held: Held, report: Report) -> None:
        outcome = end_attempt(
            held,
            report,
            backoff=self._backoff,
            source=self._source,
            worker=NAME,
            started_at_ms=self._running.pop(held.job.id),
            finished_at_ms=self.clock.wall_ms(),
            result_bytes_max=RESULT_BYTES_MAX,
            wrong=partial(wrong, self._services.config, self._services.workers.why_no_callback),
        )
        self._journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome]))
        await self._settle()
        if outcome.follows:
            await self._declare()
            entries = (await self._store.get_outbox(1, OUTBOX_BYTES)).entries
            left = await follow(self._services, entries)
            assert not left.waits, "there is nothing here to wait for"
            assert not left.over, "nobody has a quota here"
            await self._store.drop_outbox(entries, children=left.children)
            await self._settle()

    async def _give_back(self, held: Held) -> None:
        del self._running[held.job.id]
        await self._store.release_jobs(self._owner, {held.job.id: held.fence})

    async def _next_due_s(self) -> float | None:
        due_ms = (await self._store.promote(PROMOTED_MAX)).next_due_ms
        return None if due_ms is None else due_ms / 1000


class Journal:
    """Stands in for the journal. Keeps records in memory until they are applied to the store, before the next
    request."""

    refusing: str | None = None
    refusing_full = False

    def __init__(self, clock: ManualClock) -> None:
        self.ids = IdSource(journal=NUMBER, salt=0, clock=clock)
        self.journal_id = f"{NUMBER:032x}"
        self.frames: list[tuple[Lane, bytes]] = []
        self.end = self.unsure_to = 0

    @property
    def written(self) -> int:
        return self.end  # all count as durable

    def write(self, lane: Lane, records: int, body: bytes) -> int:
        self.frames.append((lane, body))
        self.end += records
        return self.end

    async def wsync(self, position: int | None = None, *, since: int | None = None, shielded: bool = False) -> None:
        await trio.lowlevel.checkpoint()

    def read_point(self, lane: Lane, reader: int = 0) -> int:
        return self.end  # all are applied before the next request


class FakeRunner:
    """Stands in for the runner. Tells which jobs are running."""

    def __init__(self, running: Mapping[str, int]) -> None:
        self._running = running

    def of(self, job_id: str) -> "FakeRunner":
        return self  # there is only one partition

    def running(self, job_id: str) -> Running | None:
        """Return where and since when a job is running; None: it is not."""
        at_ms = self._running.get(job_id)
        return None if at_ms is None else Running(NAME, at_ms)

    def ended(self, job_id: str) -> None:
        """The store has all outcomes."""


class Control:
    """Stands in for the daemon with which the services talk. It is always ready, and the only daemon of its store."""

    def __init__(self, daemon: TrialDaemon) -> None:
        self._daemon = daemon

    def push_ready(self) -> None:
        """Pushes are taken."""

    run_ready = pressed = push_ready

    def warnings(self) -> Sequence[str]:
        return ()

    daemons = sharers = warnings

    def stats(self) -> Mapping[str, object]:
        """Return the fields of `GET /v1/stats` that come from the daemon and not from the store."""
        return {"daemon": NAME}

    def settled(self, where: Collection[int]) -> bool:
        return True  # this store loses nothing

    async def wait_caught_up(self, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool:
        await self._daemon.apply()
        return True

    async def wait_ingested(self, timeout_s: float) -> bool:
        await self._daemon.apply()
        return True

    def waiting_parents(self, tenant: str) -> int:
        return 0  # there are no quotas to wait for

    def waits_for_quota(self, tenant: str) -> bool:
        return False

    def quota_wait_warning(self, tenant: str) -> None:
        """There are no quotas."""

    def entered(self, job_ids: Sequence[str], jobs: Sequence[JobSpec], tenant: str = "") -> None:
        self._daemon.pushed += job_ids


class Whole(Request):
    """A request whose body is already in memory."""

    whole = True

    def read_nowait(self) -> bytes:
        return self.body
