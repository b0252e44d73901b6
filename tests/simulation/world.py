"""A whole cluster in one loop: daemons, their disks and clocks, one store, workers, clients, and what harms them.

build ──▶ faulty time: pushes, cancels and faults as planned ──▶ heal all ──▶ drain until quiet ──▶ check
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import trio

from jqd.domain.flow import RESULTS_GONE
from jqd.domain.job import INTERRUPTED, Fate, Job, Outcome, State
from jqd.domain.jobid import partition_of
from jqd.domain.outcome_followers import followers_in
from jqd.journal import Journal
from jqd.loops import claims
from jqd.partition import Partition
from jqd.store import JobView
from tests.harness.recount import miscounted
from tests.simulation import aged
from tests.simulation.almanac import late
from tests.simulation.client import Clients
from tests.simulation.faults import Nemesis
from tests.simulation.limited import Limited
from tests.simulation.link import Link
from tests.simulation.loop import RunQueue
from tests.simulation.node import TIDY_S, Life, Node
from tests.simulation.plan import FAULTY_S, PATIENT, STILL_KINDS, UNREADABLE, Plan
from tests.simulation.pressed import Pressed
from tests.simulation.progress import Patience, Progress
from tests.simulation.registry import Registry
from tests.simulation.spent import lift
from tests.simulation.stage import Stage
from tests.simulation.work import number_of
from tests.simulation.worker import HOSTS
from tests.store.job_places import places_of

LOOK_S = 0.5  # between looks whether all is quiet
DRAIN_S = 90.0  # in which all must be quiet once nothing is broken any more: some thirty leases, and retries
QUIET_LOOKS = 2
FORGETS = 2  # with every other seed in which rules are said it is seen what is forgotten
SEASON_MS = 100 * 86_400_000  # longer than anything deleted is remembered
IDLE_S = 0.5  # the idle poll of dispatch: leases are shorter here than in service, and polls cost most of a run's time


class World(Stage):
    """One run of one plan."""

    def __init__(self, plan: Plan, queue: RunQueue, outside: trio.Nursery) -> None:
        super().__init__(plan, queue, outside)
        self.history.watch(self._runs)
        self.nemesis = Nemesis(self)
        self.registry = Registry(self.history, self.nodes)
        self.history.tell_start = Limited(self.history, self.registry.words, self.history.has_succeeded).started
        self._pressed = Pressed(self.history)
        self._source = random.Random(f"net {plan.seed}")

    async def run(self) -> None:
        """From the first start to the last check."""
        idle_s, claims.IDLE_S = claims.IDLE_S, IDLE_S
        try:
            for node in self.nodes:
                self.start(node)
            if self.plan.lends:
                self.workers.accept, self.workers.anew = self.holders.accept, self.holders.anew
                self.workers.slow_ends = self.holders.hasty
                self.holders.run()
            async with trio.open_nursery() as clients:
                clients.start_soon(Clients(self.plan, self.history, self.nodes).run)
                clients.start_soon(self.registry.run)
                clients.start_soon(lift, self.nodes)
                if self.plan.absent is not None:
                    clients.start_soon(Progress(self, self.plan.absent).watch)
                if UNREADABLE in self.plan.kinds <= PATIENT:
                    clients.start_soon(Patience(self).watch)
                await self.nemesis.run(clients)
                await trio.sleep_until(FAULTY_S)
                clients.cancel_scope.cancel()
            await self.nemesis.heal()
            with trio.move_on_after(DRAIN_S + self.plan.in_line_s):
                await self.registry.resume(lambda: any(map(self._is_still, self.nodes)))
            await self._drain()
        finally:
            claims.IDLE_S = idle_s
            for node in self.nodes:
                if node.life is not None and not node.life.dead:
                    node.kill()

    # ------------------------------------------------------------ processes

    def links(self, node: Node, life: Life) -> list[Link]:
        """The ways to the store for a new life."""
        return [self._link(node, life, number) for number in range(self.plan.partitions)]

    def _link(self, node: Node, life: Life, number: int) -> Link:
        name = "store" if self.plan.partitions == 1 else f"store {number}"
        client = self.stores[number].another_client()
        if self.plan.ages:
            aged.watch(client, self.history)
        return Link(
            client,
            source=self._source,
            weather=self.weathers[number],
            spawn=self.spawn,
            note=lambda *what: self.history.note(name, life.label, *what),
            moment=lambda name: self.moment(node, name),
            sending=lambda call, args: self._sending(life, number, call, args),
            told=lambda call, args, answer, sent: self._told(node, life, number, call, args, answer, sent),
            lag_s=lambda call: node.lag_s(number, call),
        )

    def _sending(self, life: Life, number: int, call: str, args: Any) -> tuple[float, set[str]] | None:
        """Of a claim: when it is asked for, and what is known there that forbids it."""
        if call != "get_waiting_jobs" or life.daemon is None:
            return None
        services, sysid = life.daemon.parts.services, life.daemon.control.sysid
        forbids = {"paused": args[1] in services.pauses.names, "drained": sysid in services.drains.names}
        return trio.current_time(), {what for what, is_so in forbids.items() if is_so}

    def _told(self, node: Node, life: Life, number: int, call: str, args: Any, answer: Any, sent: Any) -> None:
        """The store did a call."""
        self.holders.told(life.label, number, call, args, answer)
        match call:
            case "get_waiting_jobs":
                for held in answer[:1]:  # all of a claim have the same fence
                    self.history.claimed(number, held.fence)
                    if sent is not None:
                        self.registry.claimed(life, args[1], *sent)
                self.history.in_flight(held.job.id for held in answer)
            case "apply_jobs" | "apply_changes":
                for job in args[-1]:
                    self._applied(node, job)
            case "apply_outcomes":
                self.history.almanac.settled(args[-1])
                self.history.following.settled(args[-1])
                for job in chain.from_iterable(followers_in(args[-1]).values()):
                    self._applied(node, job)
                self.history.awaiting.settled(args[-1])
            case "reserve_names":
                self.history.kin.named(args[0], answer)
            case "apply_settings":
                self.history.almanac.told(node.name, args[-1])
            case "release_jobs":
                self._pressed.released(life.label, args[1])
            case "renew_sysid":
                self.history.renewed(node.name, number)

    def _applied(self, node: Node, job: Job) -> None:
        """A journal brought a job."""
        revision = job.change.revision if job.change is not None else 0
        self.history.applied(number_of(msgspec.msgpack.decode(job.argument)), job.expires_at_ms, revision)
        self.history.kin.applied(node.name, job)
        self.history.almanac.applied(node.name, job)
        self.history.following.applied(node.name, job)

    def moment(self, node: Node, name: str) -> bool:
        """A node came to a point where something may befall it."""
        return self.nemesis.moment(node, name)

    def broke(self, life: Life, error: BaseException) -> None:
        """A daemon ended by an error of its own."""
        self.history.wrong(f"crash: {life.label} ended by itself: {_text_of(error)}")

    def life_ended(self, node: Node, life: Life) -> None:
        """A process is over, killed or not."""
        self.history.note("over", life.label, "dead" if life.dead else "by itself")
        self.nemesis.life_ended(node, life)

    # ------------------------------------------------------------ what is told of jobs

    def asked(self, life: Life, host: str, job_ids: Sequence[str], refuses: bool) -> None:
        """A worker got a request of that life."""
        self._pressed.asked(life.label, host, job_ids)
        if refuses:
            self._pressed.refused(life.label, host, job_ids)

    def started(self, life: Life, job_id: str, number: int) -> None:
        """A worker has it from that life."""
        partition = self.part_of(life, job_id)
        if not partition.membership.trusts():
            self.history.wrong(f"doubt: job {number} started by {life.label}, which does not trust its lease")
        runner: Any = partition.runner
        entry = runner._in_flight.find(job_id)
        held = entry.held if entry else None
        fence, priority = (held.fence, held.job.priority) if held else (0, 0)
        self.history.started(life.label, fence, job_id, number, priority)
        self.history.numbered(number, fence, held.attempt if held else 0)
        self._check_company(life, job_id, number)

    def _check_company(self, life: Life, job_id: str, number: int) -> None:
        """A job that runs alone has the whole hand for itself, over all partitions, until the store has its end."""
        assert life.daemon is not None
        sysid = life.daemon.control.sysid
        in_flight = {each for partition in life.daemon.partitions for each in partition.runner.get_running_jobs()}
        for store in self.stores:
            suspect = places_of(store).runs_alone(sysid, self.clock.wall_ms())
            if suspect is None:
                continue
            company = sorted(in_flight - {suspect}) if suspect == job_id else [job_id]
            if company and suspect in in_flight:
                self.history.wrong(f"company: job {number} started by {life.label}: {suspect} is to run alone")

    def part_of(self, life: Life, job_id: str) -> Partition:
        """The part of that life which a job belongs to."""
        assert life.daemon is not None
        return life.daemon.partitions[partition_of(job_id, self.plan.partitions)]

    def ended(self, life: Life, outcome: Outcome) -> None:
        """That life heard how an attempt ended."""
        if life.dead or outcome.fate is Fate.ENTRUSTED:
            return
        for story in self.history.stories.values():
            if story.job_id == outcome.job_id:
                is_counted = outcome.reason != INTERRUPTED
                self.history.ended(life.label, story.number, outcome.fence, outcome.fate, is_counted=is_counted)
        for tale in self.history.tales.values():
            tale.ended(life.label, outcome.job_id, outcome.fence, outcome.fate)
        self.history.almanac.ended(life.label, outcome.job_id, outcome.fence, outcome.fate)
        self.history.following.ended(life.label, outcome.job_id, outcome.fence, outcome.fate)

    def silent(self, life: Life, outcome: Outcome) -> None:
        """That life found a worker silent, and says how its attempt ended."""
        if not life.dead:
            self.history.silent(outcome.job_id, outcome.fence, outcome.fate, life.label.partition(".")[0])

    def _runs(self, job_id: str, but: str) -> Iterator[str]:
        yield from self.holders.at_work(job_id, but)
        for node in self.nodes:
            life = node.life
            if life is None or life.dead or life.label == but or life.daemon is None:
                continue
            partition = self.part_of(life, job_id)
            runner: Any = partition.runner
            delivery = runner._shared.deliveries.get(job_id)
            if delivery is not None and delivery.sent_at_s is not None and partition.membership.trusts():
                yield life.label

    # ------------------------------------------------------------ the end

    async def _come_to_rest(self, restless: Callable[[], Awaitable[str | None]]) -> str | None:
        """What never came to rest, or None. Later looks may find what goes on for ever: copies of what others say."""
        deadline_s, quiet, why = trio.current_time() + DRAIN_S + self.plan.in_line_s, 0, None
        while quiet < QUIET_LOOKS and trio.current_time() < deadline_s and not self.history.violations:
            await trio.sleep(LOOK_S)
            why = await restless()
            quiet = quiet + 1 if why is None else 0
        return why

    async def _drain(self) -> None:
        restless = await self._come_to_rest(self._restless)
        if not self.history.violations:
            self.history.check_states(states := await self._states())
            await self.history.following.check(states, self.stores)
            await self._check_tales()
            if all(node.life is not None and node.life.daemon is not None for node in self.nodes):
                await self.registry.check(self.stores)
                await self.history.almanac.check(self.registry.words, self.stores)
            self._check_places()
            if restless is not None:
                self.history.wrong(f"stuck: {restless}")
        if not self.history.violations and self._may_forget():
            await self._see_what_is_forgotten()

    def _may_forget(self) -> bool:
        """Not where a disk may stand still to the end, nor a worker may ask for its jobs."""
        plan = self.plan
        return bool(plan.says) and not plan.lends and plan.kinds.isdisjoint(STILL_KINDS) and not plan.seed % FORGETS

    async def _see_what_is_forgotten(self) -> None:
        """A season later; then once more, when all began anew with an empty store. No job runs then: of one that ended
        so long ago journals that are away for a season may know nothing."""
        if (why := await self._come_to_rest(self._unkept)) is not None:  # or a frame of today is applied in a season
            self.history.wrong(f"stuck: {why}")
            return
        before = self.registry.known()
        self.workers.down.update(HOSTS)
        for clock in (self.clock, *(node.clock for node in self.nodes)):
            clock.wrong_ms += SEASON_MS
        await trio.sleep(3 * TIDY_S)
        await self.registry.check_later(self.stores, before, again=False)
        if self.history.violations:
            return
        for node in self.nodes:
            node.kill()
        for store in self.stores:
            store.wipe()
        for node in self.nodes:
            self.start(node)
        if (why := await self._come_to_rest(self._unlearned)) is not None:
            self.history.wrong(f"stuck: {why}")
            return
        await self.registry.check_later(self.stores, before, again=True)

    async def _unkept(self) -> str | None:
        for node in self.nodes:
            daemon = node.life.daemon if node.life else None
            if daemon is None or any(partition.settings_sync.learned for partition in daemon.partitions):
                return f"the journal of {node.name} lacks what others said"
        return await self._restless()

    async def _unlearned(self) -> str | None:
        ready = all(node.life and node.life.daemon and node.life.requests for node in self.nodes)
        return await self.registry.restless(self.stores) if ready else "not all are up"

    def _is_still(self, node: Node) -> bool:
        life = node.life
        return life is None or life.requests is None or life.daemon is None or self.is_frozen(life)

    async def _restless(self) -> str | None:
        """What is not at rest yet, or None."""
        for node in self.nodes:
            life = node.life
            if life is None or life.daemon is None or self._is_still(node):
                return f"{node.name} is not up"
            if counted := life.daemon.scheduler.running():
                return f"{life.label} counts {counted}"
            for partition in life.daemon.partitions:
                if restless := _restless_part(partition, life.daemon.journal):
                    return f"{life.label} {restless}"
        for store in self.stores:
            stats_now = await store.stats()
            if stats_now.running or stats_now.waiting or stats_now.scheduled:
                return f"the store has {stats_now}"
            if (await store.get_outbox(1, 1, age_s=0.0)).entries:
                return "jobs that follow others are not pushed yet"
            if await store.list_shelves(1):
                return "jobs that follow others wait for a quota"
        all_services = (node.life.daemon.parts.services for node in self.nodes if node.life and node.life.daemon)
        return next(late(all_services), None) or await self.registry.restless(self.stores)

    def _check_places(self) -> None:
        """Each partition has its own jobs, knows of no other, and has counted them."""
        for number, store in enumerate(self.stores):
            self._check_counts(number)
            for job_id in sorted(places_of(store).known()):
                if partition_of(job_id, len(self.stores)) != number:
                    self.history.wrong(f"stray: {job_id} is in partition {number} of the store, where it does not live")

    def _check_counts(self, number: int) -> None:
        store = self.stores[number]
        if (wrong := miscounted(store.server.keyspace, store.keys)) is not None:
            self.history.wrong(f"counts: of partition {number}, {wrong}")

    async def _states(self) -> dict[int, State | None]:
        clients = [store.another_client() for store in self.stores]
        states: dict[int, State | None] = {}
        for number, story in self.history.stories.items():
            if story.acked_at_s < float("inf"):
                view = await clients[partition_of(story.job_id, len(clients))].get_job(story.job_id)
                states[number] = view.state if isinstance(view, JobView) else None
                if isinstance(view, JobView) and view.outcome is not None:
                    story.reason = view.outcome.reason
                    story.results_gone = view.flow is not None and view.flow.failed == RESULTS_GONE
        return states

    async def _check_tales(self) -> None:
        for tale in self.history.tales.values():
            if not tale.words or not (tale.matter.name or tale.job_id):
                continue
            store = self.stores[tale.home]
            job_id = places_of(store).job_id_of(tale.matter.name) if tale.matter.name else tale.job_id
            view = await store.another_client().get_job(job_id) if job_id else None
            if isinstance(view, JobView):
                tale.job_id = job_id or ""
                crashed = view.outcome is not None and view.outcome.reason == "crash"
                tale.check_end(view.state, view.priority, crashed=crashed)
            else:
                tale.check_end(None, 0, crashed=False)


def _restless_part(partition: Partition, journal: Journal) -> str | None:
    where = f" (partition {partition.number})" if partition.number else ""
    if held := partition.runner.get_running_jobs():
        return f"still has {sorted(held)} in flight{where}"
    if partition.outcomes.pending:
        return f"has {partition.outcomes.pending} ends to tell{where}"
    for lane, ingest in partition.lanes.items():
        if ingest.position is None or max(ingest.position, journal.read_point(lane, partition.number)) < journal.end:
            return f"has not applied its {lane.name.lower()}{where}"
    hold_up = partition.membership.not_ready_reason()
    return None if hold_up is None else f"may not claim{where}: {hold_up}"


def _text_of(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
