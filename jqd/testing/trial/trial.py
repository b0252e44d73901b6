"""Runs an app without a daemon in a test: `with app.testing("fake") as t:`.

    fake      a push only stores the job; `t.run_all()` or `t.advance(…)` run jobs
    inline    a push runs all jobs that are due before it returns, as if workers took no time

Time passes only by `t.advance`, and while the test waits for a job: `ref.result(wait="30s")`. Jobs with a date, and
retries after their back-off, run when the time of the trial reaches them.
"""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args
from urllib.parse import parse_qsl, urlencode

import anyio.to_thread
import msgspec

from jqd.client import Client, JobInfo, NotFound
from jqd.client.transport import Request, Response
from jqd.domain.backoff import Backoff
from jqd.domain.dates import date_of
from jqd.domain.job import Held
from jqd.domain.media import PROBLEM
from jqd.domain.units import Duration, duration_s
from jqd.runner.protocols.protocol import Refused
from jqd.testing.trial.attempt import Worker
from jqd.testing.trial.edge import TrialDaemon
from jqd.worker.context import at_work
from jqd.worker.job import Job

if TYPE_CHECKING:
    from jqd.worker.app import App

Mode = Literal["inline", "fake"]
URL = "http://localhost"  # never used: no request leaves the process
RUNS_MAX = 10_000  # attempts in one call: beyond it a job probably pushes itself for ever
BACKOFF = Backoff(jitter=0.0)  # a daemon's default, without jitter
ROOMS = (
    "/v1/jobs",
    "/v1/groups",
    "/v1/errors",
    "/v1/types",
    "/v1/stats",
    "/readyz",
    "/livez",
)  # paths that can be requested here


class Trial:
    """Runs an app without a daemon, for one `with` block of a test. Methods that begin with `a` are for async code,
    under asyncio or trio."""

    def __init__(self, app: "App", mode: Mode, *, raises: bool = False) -> None:
        """`raises`: an unexpected exception in a job's function is also raised by the call that ran the job. Raises
        ValueError for an unknown mode."""
        if mode not in get_args(Mode):
            raise ValueError(f'an app is tested "inline" or "fake", not {mode!r}')
        self.app, self.mode = app, mode
        self._raises = raises
        self._daemon = TrialDaemon(BACKOFF, app.jobs)
        self._worker = Worker(self._daemon.clock)
        self._transport = _InMemory(self)
        self.client = Client(URL, transport=self._transport, clock=self._daemon.clock)
        """Client of this trial, for code that pushes jobs by their names."""
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._daemon.open()
        self._open.callback(self._daemon.close)
        self._open.callback(self.client.close)
        self._open.enter_context(self.app.pushing_by(self.client))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def now(self) -> datetime:
        """The present time by this trial's clock, in UTC. At the start of the trial it is the real time."""
        return date_of(self._daemon.clock.wall_ms())

    def pushed(self, job: Job[..., Any, Any] | str | None = None) -> list[JobInfo]:
        """Return the present state of the pushed jobs, in order of their pushes. `job`: only jobs of this function or
        jobtype; None: all.

        `argument` is the map of a call's parameters: `[job.argument for job in t.pushed(send)] == [{"to": "ann"}]`.
        """
        name = job.name if isinstance(job, Job) else job
        infos = [self._look(job_id) for job_id in dict.fromkeys(self._daemon.pushed)]
        return [info for info in infos if info is not None and name in (None, info.name)]

    def run_all(self, *, until_done: bool = False) -> int:
        """Run all jobs that are due, and those that they push, until none is due. Returns the number of attempts.

        `until_done`: whether to advance the clock after that to the next job with a date, and so on, until no job waits
        for a date.
        """
        runs = self._run_due()
        while until_done and (due_s := self._daemon.next_due_s()) is not None:
            self._daemon.clock.advance(due_s)
            runs += self._run_due(runs)
        return runs

    def advance(self, by: Duration) -> int:
        """Let time pass, in seconds or like "5m". Runs all jobs that become due meanwhile, each at its date. Returns
        the number of attempts."""
        return self._pass(duration_s(by), lambda: False)

    async def arun_all(self, *, until_done: bool = False) -> int:
        """Run all jobs that are due, and those that they push, until none is due; for async code. `until_done`: also
        advance the clock to later jobs. Returns the number of attempts. Plain functions run in another thread than the
        caller's loop."""
        return await anyio.to_thread.run_sync(lambda: self.run_all(until_done=until_done))

    async def aadvance(self, by: Duration) -> int:
        """Let time pass, in seconds or like "5m", and run all jobs that become due meanwhile; for async code. Returns
        the number of attempts."""
        return await anyio.to_thread.run_sync(self.advance, by)

    # ------------------------------------------------------------ for the transport

    def served(self) -> None:
        """In mode "inline", run the jobs that are due, after a request of the client. After a request that a running
        job made, none is run. In mode "fake", do nothing."""
        if self.mode == "inline" and at_work.get() is None:
            self._run_due()

    def waited(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Let time pass while the client waits. In mode "inline" due jobs run meanwhile, and the wait ends when
        `is_over` returns True, after `seconds` at most. In mode "fake" no job runs, and all of `seconds` passes, or
        none if `is_over` returns True."""
        if self.mode == "inline":
            self._pass(seconds, is_over)
        elif not is_over():
            self._daemon.clock.advance(seconds)

    def ask(self, method: str, path: bytes, query: bytes, headers: dict[str, str], body: bytes) -> Response:
        """Send one request of the client to the daemon; return the response."""
        answer = self._daemon.answer(method, path, query, headers, body)
        return Response(answer.status, {name.lower(): value for name, value in answer.fields()}, answer.body)

    # ------------------------------------------------------------ running

    def _pass(self, seconds: float, is_over: Callable[[], bool]) -> int:
        clock = self._daemon.clock
        until_ms = clock.wall_ms() + round(seconds * 1000)
        runs = self._run_due()
        while not is_over():
            due_s, left_s = self._daemon.next_due_s(), (until_ms - clock.wall_ms()) / 1000
            if due_s is None or due_s > left_s:
                clock.advance(max(0.0, left_s))
                break
            clock.advance(due_s)
            runs += self._run_due(runs)
        return runs

    def _run_due(self, before: int = 0) -> int:
        runs = 0
        while (held := self._daemon.claim(self.app.jobs)) is not None:
            runs += 1
            if before + runs > RUNS_MAX:
                self._daemon.give_back(held)
                raise RuntimeError(
                    f"{RUNS_MAX} attempts were made in one call, and job {held.job.jobtype!r} waits: do jobs "
                    "push each other for ever?"
                )
            self._run(held)
        return runs

    def _run(self, held: Held) -> None:
        report, raised = self._worker.run(self.app.jobs[held.job.jobtype], held)
        if isinstance(report, Refused):
            self._daemon.give_back(held)
        else:
            self._daemon.end(held, report)
        if raised is not None and self._raises:
            raise raised

    def _look(self, job_id: str) -> JobInfo | None:
        try:
            return self.client.get(job_id)
        except NotFound:
            return None  # it was deleted


class _InMemory:
    """A `Transport` of the client that calls the trial instead of a network."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def send(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        if not path.startswith(ROOMS):
            return _not_here(path)
        asked = dict(parse_qsl(query, keep_blank_values=True))
        wait_s = float(asked.pop("wait", 0))
        method, body = request.method, request.body or b""

        def ask() -> Response:
            return self._trial.ask(method, path.encode(), urlencode(asked).encode(), request.headers, body)

        if wait_s:
            self._trial.waited(wait_s, lambda: _is_over(ask()))
        answer = ask()
        if method != "GET":
            self._trial.served()
        return answer

    def close(self) -> None:
        return


def _is_over(answer: Response) -> bool:
    body = msgspec.msgpack.decode(answer.body) if answer.is_success else {}
    return not answer.is_success or body.get("state") in ("succeeded", "failed", "cancelled")


def _not_here(path: str) -> Response:
    detail = f"{path} is nothing that app.testing has: it has jobs, no workers. A real daemon has it (jqd_daemon)"
    fields = {"type": "about:blank", "title": "Not Implemented", "status": 501, "detail": detail}
    return Response(501, {"content-type": PROBLEM}, msgspec.json.encode(fields))
