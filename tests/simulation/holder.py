"""Workers that hold jobs by themselves: some ask for them, others were sent them and answered 202.

Each is a process of its own, which no daemon's death touches. It gives signs of life and reports through whichever
daemon is there, dies now and then, loses answers, and stops when it is told that its lease is over. What it holds is
known here as the store knows it: when a lease was last heard of.
"""

import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
import trio

from jqd.domain.errors import Conflict, JqdError, NotFound, TooLarge
from jqd.domain.job import NIL, Fate, Outcome
from jqd.domain.jobid import partition_of
from jqd.runner import Report
from jqd.runner.in_flight import Phase
from jqd.service import leases, outcomes
from jqd.service.find import look_up
from jqd.service.outcome_batch import OutcomeAnswer
from jqd.store import Entrusted, Hold, JobView
from tests.simulation.check import History
from tests.simulation.loop import start_in
from tests.simulation.node import Node
from tests.simulation.plan import LEASE, PULLED, PULLERS
from tests.simulation.work import number_of

HEARTBEATS_S = (1.0, 2.0)  # what they say: a lease of daemons is two seconds here
BEATS = 3  # in so many parts of the silence it is allowed a worker speaks
WAIT_S = 1.0  # of a poll
PATIENT = 0.5  # share of jobs that a hasty worker works at; the others it reports at once
AGAIN_S = 0.3  # between tries at daemons
PATIENCE_S = 0.5  # with a daemon that does not answer; another is asked then
GONE_S = 1.5  # a worker that died is back after that
LOSES = 0.05  # share of polls whose answer is lost, of which half are noticed
STATUS = {"ok": 200, "error": 500, "failed": 400}
FATES = {"ok": Fate.SUCCEEDED, "error": Fate.RETRY, "failed": Fate.FAILED}

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Held:
    """A job in a worker's own hand, as the worker knows it."""

    worker: str
    job_id: str
    number: int
    fence: int
    how: str
    after_s: float
    reports: bool = False
    """Its work is over."""
    names_lease: bool = True
    asks: bool = False
    """A daemon has its report, and did not answer yet."""


@dataclass(slots=True)
class Heard:
    """What the store knows of a lease."""

    at_s: float
    silence_s: float
    node: str
    """Whose journal tells of it."""


class Claim(NamedTuple):
    """Of a lease."""

    life: str
    """Of a daemon."""
    at_s: float


class Holders:
    """All of them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        history: History,
        source: random.Random,
        spawn: Callable[..., None],
        attempt: Callable[[int], tuple[str, float]],
        said: Callable[[int], dict[str, Any]],
        took: Callable[[str, object], None],
    ) -> None:
        """`attempt`: what a worker does with that job now; `said`: what its success says; `took`: told of arguments."""
        self._nodes, self._history, self._source, self._spawn = nodes, history, source, spawn
        self._attempt, self._what, self._took = attempt, said, took
        self._partitions = history.plan.partitions
        self._held: dict[str, dict[Held, None]] = {}
        self._heard: dict[tuple[int, int], Heard] = {}
        self._claimed: dict[tuple[int, int], Claim] = {}
        self._succeeded: dict[str, tuple[int, float]] = {}
        """In which lease, and when the store was told so."""
        self._given: set[tuple[int, int]] = set()
        """Leases of which a job was handed over by the life that is to answer the poll."""
        self._begun: set[tuple[int, int]] = set()
        """Leases of which a worker began a job."""
        self._scopes: dict[str, trio.CancelScope] = {}
        self.hasty = random.Random(f"hasty {history.plan.seed}") if history.plan.hasty else None

    def run(self) -> None:
        """Let those begin that ask for jobs."""
        for name in PULLERS:
            self._spawn(self._live, name)

    # ------------------------------------------------------------ what the store knows

    def told(self, life: str, partition: int, call: str, args: Any, answer: Any) -> None:
        """The store did a call for that life of a daemon."""
        match call:
            case "get_waiting_jobs":
                claim = Claim(life, trio.current_time())
                self._claimed.update(((partition, held.fence), claim) for held in answer)
            case "apply_outcomes" if answer is not None:  # else the store had them already, and says nothing of them
                self._settled(life, partition, args[-1], answer)
            case "release_entrusted":
                self._history.untried((job_id, fence) for job_id, fence in args[0] if job_id in answer)
            case "touch":
                seen: Sequence[Entrusted] = answer
                for (_, fence), one in zip(args[0], seen, strict=True):
                    heard = self._heard.get((partition, fence))
                    if one.hold is Hold.STANDS and one.worker and heard is not None:
                        heard.at_s = trio.current_time()

    def _settled(self, life: str, partition: int, outcomes: Sequence[Outcome], stale: Collection[int]) -> None:
        node = life.partition(".")[0]
        for each in (one for place, one in enumerate(outcomes) if place not in stale):
            lease = partition, each.fence
            if each.fate is Fate.SUCCEEDED:
                self._succeeded[each.job_id] = each.fence, trio.current_time()
            if each.fate is Fate.ENTRUSTED:
                self._lent(lease, Heard(trio.current_time(), each.delay_ms / 1000, node))
                if (claim := self._claimed.get(lease)) is not None and claim.life == life:
                    self._given.add(lease)
                if lease in self._given:  # a later life alone has no poll to answer; but jobs of one lease count alike
                    self._history.given(each.job_id, each.fence)
            elif lease in self._begun:
                self._history.reported(each.job_id, each.fence, each.fate, node)

    def _lent(self, lease: tuple[int, int], heard: Heard) -> None:
        """Retention tells of it again and again: a store that knows the lease takes that for no sign of life."""
        known = self._heard.get(lease)
        if known is None or any(known.at_s <= loss.at_s for loss in self._history.losses_of(lease[0])):
            self._heard[lease] = heard

    def at_work(self, job_id: str, but: str) -> Iterator[str]:
        """Names of those at work on it, and rightly so: their lease was heard of in time."""
        for name, all_held in self._held.items():
            if name != but:
                for held in all_held:
                    if held.job_id == job_id and not held.reports and self._in_time(held):
                        yield name

    def _in_time(self, held: Held) -> bool:
        """Whether its lease was heard of in time, and the store knows that."""
        home, now_s = partition_of(held.job_id, self._partitions), trio.current_time()
        heard = self._heard.get((home, held.fence))
        if heard is None or now_s >= heard.at_s + heard.silence_s - LEASE.margin_s:
            return False
        return not self._history.forgotten(home, heard.at_s, heard.node, now_s)

    # ------------------------------------------------------------ those that ask

    async def _live(self, name: str) -> None:
        lives = 0
        while True:
            lives += 1
            self._held[name] = {}
            with trio.CancelScope() as self._scopes[name]:
                while True:
                    await self._poll(name, f"{name}.{lives}")
            self._history.note("worker over", name)
            await trio.sleep(GONE_S)

    def _die(self, name: str) -> None:
        """It is gone with all that it holds."""
        self._held[name] = {}
        if (scope := self._scopes.get(name)) is not None:
            scope.cancel()

    async def _poll(self, name: str, label: str) -> None:
        node, source = self._source.choice(self._nodes), self._source
        jobs_max, heartbeat_s = source.randint(1, PULLED), source.choice(HEARTBEATS_S)
        lease = await ask(
            node,
            lambda services: leases.pull(services, name, jobs_max, WAIT_S, heartbeat_s),
            lost=self._give_up,
            patience_s=WAIT_S + PATIENCE_S,
        )
        if not isinstance(lease, leases.Lease) or not lease.jobs:
            await trio.sleep(0.0 if isinstance(lease, leases.Lease) else AGAIN_S)
            return
        is_lost = source.random() < LOSES
        if is_lost and source.random() < 0.5:
            await ask(node, lambda services: _noticed(services, lease))
            return
        async with trio.open_nursery() as hand:
            for each in lease.jobs:
                argument = msgspec.msgpack.decode(each.job.argument)
                number = number_of(argument)
                if (each.job.id, each.fence) not in self._history.claims_given:
                    what = f"{label} got {each.job.id} of {node.name}, and its hand-over was none, says the store"
                    self._history.wrong(f"unhanded: {what}")
                self._history.started(label, each.fence, each.job.id, number, each.job.priority)
                self._took(each.job.id, argument)
                self._history.numbered(number, each.fence, each.attempt)
                self._begun.add((partition_of(each.job.id, self._partitions), each.fence))
                if is_lost:
                    continue  # as far as anybody can tell it began them and died
                held = Held(name, each.job.id, number, each.fence, *self._attempt(number))
                self._held[name][held] = None
                hand.start_soon(self._see_through, held, lease.silence_s)

    def _give_up(self, services: Any, lease: Any) -> None:
        """Nobody waits for this answer any more: the daemon sees that its client has gone."""
        if isinstance(lease, leases.Lease) and lease.jobs:
            leases.lost(services, lease)

    # ------------------------------------------------------------ those that were sent them

    def accept(self, worker: str, fence: int, jobs: Sequence[tuple[str, int, str, float]]) -> None:
        """A worker answers 202: it has these (id, number, how and when each ends), and reports them later."""
        self._held.setdefault(worker, {})
        for job_id, number, how, after_s in jobs:
            self._begun.add((partition_of(job_id, self._partitions), fence))
            held = Held(worker, job_id, number, fence, how, after_s)
            if self.hasty is not None:
                held.names_lease = how == "refuse"  # LightJQ has no word for that
                held.after_s = after_s if self.hasty.random() < PATIENT else 0.0
            self._held[worker][held] = None
            self._spawn(self._see_through, held, LEASE.lease_s)

    def anew(self, worker: str, job_ids: Collection[str]) -> bool:
        """Whether a worker that names no lease may begin these. While it reports one it may not: that would be of both.

        What it has of them it drops, as a worker does that knows its jobs by their ids.
        """
        mine = self._held.get(worker, {}) if self.hasty is not None else {}
        known = [held for held in mine if held.job_id in job_ids]
        if any(held.asks for held in known):
            return False
        for held in known:
            del mine[held]
        return True

    # ------------------------------------------------------------ what they do

    async def _see_through(self, held: Held, silence_s: float) -> None:
        mine = self._held[held.worker]
        until_s = trio.current_time() + held.after_s
        while trio.current_time() < until_s and held in mine:
            await trio.sleep(min(silence_s / BEATS, max(0.0, until_s - trio.current_time())))
            if trio.current_time() < until_s and not await self._beat(held):
                mine.pop(held, None)
        if held not in mine:
            return
        match held.how:
            case "die":
                mine.clear()
                self._die(held.worker)
            case "silent":
                mine.pop(held)
            case how:
                held.reports = True
                await self._report(held, None if how == "refuse" else self._said(held))
                mine.pop(held, None)

    def _said(self, held: Held) -> Report:
        said = self._what(held.number)
        pack, status = msgspec.msgpack.encode, STATUS.get(held.how, 200)
        result = pack(said["result"]) if "result" in said and status == 200 else NIL
        return Report(status=status, follows=pack(said["jobs"]) if said["jobs"] else b"", result=result)

    async def _beat(self, held: Held) -> bool:
        """Whether it may go on."""
        node = self._source.choice(self._nodes)
        answer = await ask(node, lambda services: leases.beat(services, held.job_id, held.fence))
        return not isinstance(answer, (Conflict, NotFound))

    async def _report(self, held: Held, report: Report | None) -> None:
        """Until a daemon has taken it, or says that it does not count."""
        lease, worker = (held.fence, "") if held.names_lease else (0, held.worker)
        told, is_first = OutcomeAnswer(held.job_id, report, lease, worker), True
        while held in self._held[held.worker]:
            node = self._source.choice(self._nodes)
            held.asks = True
            answer = await ask(node, lambda services: outcomes.report(services, [told]))
            held.asks = False
            said = answer[0] if isinstance(answer, list) else answer
            if isinstance(answer, list) and said is None:
                if report is not None:
                    fate = FATES.get(held.how, Fate.SUCCEEDED)
                    self._history.reported(held.job_id, held.fence, fate, node.name, heard=True)
                    await self._look(held, node, fate)
                return
            if isinstance(said, (Conflict, NotFound, TooLarge)):
                if is_first and self._has(held):
                    self._history.wrong(f"early: {held.worker} has {held.job_id}, and {node.name} refused that: {said}")
                return
            is_first = False  # it may be taken, or known to be taken, though nobody said so
            await trio.sleep(AGAIN_S)

    async def _look(self, held: Held, node: Node, fate: Fate) -> None:
        """Whether the daemon that took the success of a job which nobody changes shows in this life that it ended."""
        life = node.life
        if held.number in self._history.of_content:
            return
        view = await ask(node, lambda services: look_up(services, held.job_id, 0.0))
        if fate is Fate.SUCCEEDED and isinstance(view, JobView) and node.life is life and not view.state.is_final:
            self._history.wrong(f"unshown: {node.name} took the success of {held.job_id}, and shows {view.state.value}")

    def _has(self, held: Held) -> bool:
        """Whether a job is surely in its worker's own hand, or on its way there from the daemon that sent it."""
        home = partition_of(held.job_id, self._partitions)
        lease, ended_s = self._succeeded.get(held.job_id, (held.fence, 0.0))
        if lease != held.fence and ended_s >= self._claimed[home, held.fence].at_s:
            return False  # the attempt before it succeeded after all: it has ended
        if self._was_cancelled_unheld(held, home):
            return False
        return self._in_time(held) or any(
            entry is not None
            and entry.held.fence == held.fence
            and (entry.phase is Phase.RUNNING or entry.is_entrusted)
            for entry in (node.in_flight(home, held.job_id) for node in self._nodes)
        )

    def _was_cancelled_unheld(self, held: Held, home: int) -> bool:
        """Whether it was cancelled when the store may not have known who holds it (seed 40065): so it ended."""
        story = self._history.stories.get(held.number)
        losses_s = [loss.at_s for loss in self._history.losses_of(home)]
        since_s = min((at_s for at_s in losses_s if at_s >= self._claimed[home, held.fence].at_s), default=math.inf)
        return story is not None and any(at_s >= since_s for at_s, _ in story.cancels)


async def _noticed(services: Any, lease: leases.Lease) -> None:
    leases.lost(services, lease)
    await trio.lowlevel.checkpoint()


async def ask(
    node: Node,
    call: Callable[[Any], Awaitable[T]],
    lost: Callable[[Any, Any], None] = lambda services, answer: None,
    patience_s: float = PATIENCE_S,
) -> T | JqdError | None:
    """What the service of that daemon says; None: it is not there, or goes away meanwhile."""
    life = node.life
    if life is None or life.dead or life.requests is None or life.stop.is_set():
        return None
    answered, answers, waits = trio.Event(), [], [True]
    services: Any = life.daemon.api.parts.services  # type: ignore[union-attr]
    scope = trio.CancelScope()

    async def serve() -> None:
        try:
            with scope:
                answer: Any = await call(services)
                if not waits and not life.dead:
                    lost(services, answer)
                answers.append(answer)
        except JqdError as error:
            answers.append(error)
        finally:
            answered.set()  # also when the process went away under it

    start_in(life.label, life.requests, serve)
    try:
        with trio.move_on_after(patience_s):
            await answered.wait()
    finally:
        waits.clear()
        if not answered.is_set():
            scope.cancel()
    return answers[0] if answers and not life.dead else None
