"""Gives jobs back to the store that nobody runs: jobs of dead daemons, and of a claim of ours whose answer was lost.

A daemon is dead when its heartbeat has not changed for the length of a lease, by *our* clock. Only time in which the
store answered counts.
"""

import math
import random
from collections.abc import Callable
from functools import partial

import trio

from jqd.domain.clock import Clock
from jqd.domain.lease import BeatAge, Heartbeats
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.runner.departures import Departures
from jqd.store import Member, Owner, Store

REAP_JOBS = 500  # jobs a call puts back: a function must stay below about 5 ms


class Reap:
    """Finds dead daemons by the heartbeats in each renewal's answer, and gives their jobs back to the store."""

    def __init__(
        self, *, store: Store, membership: Membership, clock: Clock, source: random.Random, departures: Departures
    ) -> None:
        self.backoff = LoopBackoff("reap", source=source)
        self._store, self._membership, self._clock, self.departures = store, membership, clock, departures
        self._heartbeats = Heartbeats(membership.config)
        self._dead: dict[str, Member] = {}
        self._others: dict[str, Member] = {}
        self._ages: dict[str, BeatAge] = {}  # dead daemon → the age of its heartbeat when it was found
        self._found = trio.Event()
        self.daemons = self.jobs = 0
        """How many daemons were reaped since the start, and how many of their jobs were given back."""
        self._log = get_logger("reap")

    def note_members(self, members: dict[str, Member]) -> None:
        """Find dead daemons by the heartbeats in a renewal's answer. A member without an epoch is dead at once."""
        others = {sysid: member for sysid, member in members.items() if sysid != self._membership.sysid}
        self._note_left(others)
        counters = {sysid: (member.counter, member.epoch) for sysid, member in others.items()}
        now_s = self._clock.mono_s()
        # Read before `observe`, which takes the loss of an epoch for a heartbeat.
        ages = {sysid: self._heartbeats.age(sysid, now_s) for sysid in others}
        dead = self._heartbeats.observe(counters, now_s)
        dead += [sysid for sysid, member in others.items() if member.epoch == 0]
        self._ages |= {sysid: ages[sysid] for sysid in dead if sysid not in self._dead}
        self._dead |= {sysid: others[sysid] for sysid in dead}
        if self._dead:
            self._found.set()

    def store_changed(self) -> None:
        """Forget all heartbeats and dead daemons, because the store was away, or another store answers."""
        self._heartbeats.forget()
        self._dead.clear()
        self._others = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await self._found.wait()
            self._found = trio.Event()
            while self._dead:
                sysid, member = next(iter(self._dead.items()))
                if await self.backoff.attempt(partial(self._reap, sysid, member)):
                    self._dead.pop(sysid, None)

    async def _reap(self, sysid: str, member: Member) -> None:
        total = 0
        while moved := await self._store.reap(sysid, member, REAP_JOBS):
            total += moved
        self.daemons, self.jobs = self.daemons + (total > 0), self.jobs + total
        self._log.warning("reap.jobs", sysid=sysid, epoch=member.epoch, count=total)
        self._depart(sysid, self._ages.pop(sysid, BeatAge(math.inf, math.inf)), total)

    def _note_left(self, others: dict[str, Member]) -> None:
        """Record the departure of daemons that left in good order: they are no longer members, and their heartbeats
        changed until lately. The departure of a silent daemon is recorded when it is reaped."""
        now_s = self._clock.mono_s()
        for sysid in self._others.keys() - others.keys() - self._dead.keys():
            age = self._heartbeats.age(sysid, now_s)
            if age.all_s < self._membership.config.lease_s / 2:
                self._depart(sysid, age, 0)
        self._others = others

    def _depart(self, sysid: str, age: BeatAge, jobs: int) -> None:
        died = age.watched_s >= self._membership.config.lease_s / 2
        last_seen_at_ms = self._clock.wall_ms() - round(age.all_s * 1000) if age.all_s < math.inf else 0
        self.departures.note("daemon", sysid, died=died, last_seen_at_ms=last_seen_at_ms, jobs=jobs)


async def reconcile(store: Store, running: Callable[[], dict[str, int]], owner: Owner) -> int:
    """Give back jobs that the store leased to us and that we do not run; return how many. `running`: returns the jobs
    that we run (id → fence). No claim may be running meanwhile. Raises StoreError.
    """
    before = running()
    held = await store.get_held(owner)
    ours = before | running()  # a job that is gone now is one whose end the store knows
    unknown = {job_id: fence for job_id, fence in held.items() if fence not in (ours.get(job_id), before.get(job_id))}
    if unknown:
        await store.release_jobs(owner, unknown)
        get_logger("reconcile").warning("reconcile.released", count=len(unknown))
    return len(unknown)
