"""A daemon that stands still, is cut off, dies or leaves with jobs in its hand and the answer to a claim on its way.

Each patient has a worker of its own and one jobtype: a registration holds at all daemons, but `runner.worker_networks`
of each allows one address, on which its worker is. It gets jobs to run; then a claim goes to the store, and before
the answer arrives the daemon is struck. Meanwhile a worker that only another daemon may reach is registered for that
jobtype. When the patient wakes up, or reaches the store again, it must notice before it sends anything: the job of
that claim is not started by it, and what others did stays as it is.
"""

import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import msgspec
import pytest
import trio

from jqd.domain.job import State
from jqd.store import JobView, RedisStore, open_store
from tests.chaos.cluster import Cluster, History, in_thread
from tests.chaos.edge import Edge
from tests.chaos.history import load
from tests.directories import short_directory
from tests.live.harness import Daemon

LEASE_S = 1.2
TAKEN_OVER_S = LEASE_S + 2.0  # the promise: eligible again by then
# Small against the lease: a pause of half a lease must not look like a whole one.
LEASE = {"JQD_LEASE__LEASE_S": str(LEASE_S), "JQD_LEASE__RENEW_S": "0.2", "JQD_LEASE__MARGIN_S": "0.25"}
MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}
POLL_S = 0.02
WAIT_S = 60.0
IN_HAND = 4
LONG_MS = 800  # they end while their daemon stands still, and the answer waits for it
NOWHERE = "http://127.0.0.1:9"  # no daemon: the worker that takes over is registered by hand, and not before
WELL = "127.0.0.1"


@dataclass
class Patient:
    """One daemon, its way to the store, its worker (by the jobtype), and what was in its hand."""

    daemon: Daemon
    edge: Edge
    jobtype: str
    sysid: str
    running: list[str] = field(default_factory=list)
    claimed: str = ""


class Ward:
    """A store, patients `0 … n-1`, and one daemon (the last) that is well."""

    def __init__(
        self,
        cluster: Cluster,
        http: httpx2.AsyncClient,
        store: RedisStore,
        patients: list[Patient],
        well_id: str,
        relief: str,
    ) -> None:
        """`relief`: the URL of the worker that takes over."""
        self.cluster, self.http, self.store, self.patients = cluster, http, store, patients
        self.well_id, self.relief = well_id, relief

    @property
    def well(self) -> Daemon:
        """The daemon that takes over."""
        daemon = self.cluster.daemons[-1]
        assert daemon is not None
        return daemon

    def runs(self, job_id: str) -> list[dict[str, Any]]:
        """Every start of a job, in order: when, by which worker, sent by which daemon."""
        events = (e for e in load(self.cluster.history.directory) if e.get("e") == "exec_start" and e["job"] == job_id)
        return sorted(events, key=lambda e: float(e["t"]))

    async def push(self, patient: Patient, ms: int, count: int = 1) -> list[str]:
        """Jobs for its own jobtype, pushed to it."""
        argument = {"n": 0, "plan": "ok", "ms": ms}
        jobs = [{"name": patient.jobtype, "argument": argument, "timeout": 60} for _ in range(count)]
        answer = await self.http.post(f"{patient.daemon.url}/v1/jobs", content=_packed(jobs), headers=MSGPACK)
        ids: list[str] = answer.raise_for_status().json()["job_ids"]
        return ids

    async def fill(self, patient: Patient, ms: int = LONG_MS) -> None:
        """Jobs that its worker is at, and one whose claim was done while the answer is held up."""
        for job_id in await self.push(patient, 0):  # the first call of a function looks different
            await self.wait_ended([job_id])
        patient.running = await self.push(patient, ms, IN_HAND)
        while not all(self.runs(job_id) for job_id in patient.running):
            await trio.sleep(POLL_S)
        muted = patient.edge.mute_at("get_waiting_jobs")
        (patient.claimed,) = await self.push(patient, 0)
        await muted.wait()
        while (view := await self.view(patient.claimed)) is None or view.state is not State.RUNNING:
            await trio.sleep(POLL_S)

    async def offer(self, patient: Patient) -> str:
        """The daemon that is well gets a worker for this jobtype. Returns where that can be deleted."""
        url = self.well.url + "/v1/workers"
        card = {"name": patient.jobtype, "url": self.relief, "jobs": [patient.jobtype], "max_jobs": 32}
        answer = await self.http.post(url, content=_packed(card), headers=MSGPACK)
        return f"{url}/{answer.raise_for_status().json()['worker_id']}"

    async def view(self, job_id: str) -> JobView | None:
        """The job as the store has it; None before it came there."""
        view = await self.store.get_job(job_id)
        return view if isinstance(view, JobView) else None

    async def still_held(self, patient: Patient) -> list[str]:
        """What of it had not ended when it was struck: of that the claim is always one."""
        views = {job_id: await self.view(job_id) for job_id in (*patient.running, patient.claimed)}
        held = [job_id for job_id, view in views.items() if view is not None and view.state is State.RUNNING]
        assert patient.claimed in held, f"{patient.jobtype}: {views}"
        return held

    async def wait_ended(self, job_ids: list[str]) -> None:
        """All succeed."""
        for job_id in job_ids:
            with trio.fail_after(WAIT_S):
                while (view := await self.view(job_id)) is None or not view.state.is_final:
                    await trio.sleep(POLL_S)
            assert view.state is State.SUCCEEDED, f"{job_id}: {view}"

    def reaped(self) -> str:
        """What daemons say of those they declared dead."""
        logs = [daemon.log.read_text() for daemon in self.cluster.daemons if daemon is not None]
        return "".join(line for log in logs for line in log.splitlines() if "reap.jobs" in line)


@asynccontextmanager
async def ward(directory: Path, patients: int, settings: dict[str, str]) -> AsyncIterator[Ward]:
    """Patients with a worker each, and a daemon that is well and has none yet."""
    history = History(directory)
    jobs = [f"hand-{i}" for i in range(patients)]
    with (
        closing(history),
        short_directory() as base,
        _ended(Cluster(base, history, Random(0), patients + 1, patients + 1)) as cluster,
    ):
        async with trio.open_nursery() as nursery, httpx2.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            for edge in cluster.edges:
                await nursery.start(edge.run)
            await in_thread(cluster.server.start)
            async with trio.open_nursery() as starting:
                for i in range(patients + 1):
                    reach = {"JQD_RUNNER__WORKER_NETWORKS": _own(i) if i < patients else WELL}
                    starting.start_soon(cluster.start_daemon, i, settings | reach)
            for i in range(patients):
                cluster.start_worker(i, [cluster.urls[i]], [jobs[i]], f"{_own(i)}:0")
            relief = f"{WELL}:{_free_port()}"
            cluster.start_worker(patients, [NOWHERE], jobs, relief)
            async with open_store(cluster.store) as store:
                await store.look(fresh=False)
                well_id = await _sysid(http, cluster.urls[-1])
                made = [await _patient(cluster, http, i) for i in range(patients)]
                yield Ward(cluster, http, store, made, well_id, f"http://{relief}/")
            nursery.cancel_scope.cancel()


async def _patient(cluster: Cluster, http: httpx2.AsyncClient, i: int) -> Patient:
    daemon = cluster.daemons[i]
    assert daemon is not None
    await in_thread(partial(daemon.wait_worker, f"hand-{i}"))
    return Patient(daemon, cluster.edges[i], f"hand-{i}", await _sysid(http, daemon.url))


def _own(i: int) -> str:
    """The address of a patient's worker."""
    return f"127.0.0.{i + 10}"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((WELL, 0))
        return int(listener.getsockname()[1])


async def _sysid(http: httpx2.AsyncClient, url: str) -> str:
    return str((await http.get(f"{url}/v1/stats", headers=MSGPACK)).json()["daemon"])


@pytest.mark.long
async def test_a_daemon_that_stood_still_or_was_cut_off_notices_before_it_sends_and_changes_nothing(
    tmp_path: Path,
) -> None:
    leases = (0.5, 1.1, 3.0, 20.0)
    async with ward(tmp_path, len(leases), LEASE) as all_:
        async with trio.open_nursery() as nursery:
            for patient, times in zip(all_.patients, leases, strict=True):
                nursery.start_soon(_suffer, all_, patient, times)
        assert not any(await all_.cluster.stop())


async def _suffer(all_: Ward, patient: Patient, leases: float) -> None:
    """Stand still for so long; those who are back soon are cut off from the store as long, meanwhile."""
    await _strike(all_, patient, leases, cut_off=False)
    assert (patient.sysid in all_.reaped()) == (leases > 1) or leases == 1.1  # then it may just come back in time
    if leases <= 3:
        await _strike(all_, patient, leases, cut_off=True)


async def _strike(all_: Ward, patient: Patient, leases: float, *, cut_off: bool) -> None:
    await all_.fill(patient)
    struck_t = time.monotonic()
    meanwhile: list[str] = []
    if cut_off:
        patient.edge.misbehave("hole")
        meanwhile = await all_.push(patient, 0)  # on its own disk: it needs no store for that
    else:
        os.kill(patient.daemon.child.pid, signal.SIGSTOP)
        patient.edge.mend()  # the answer to the claim lies in its socket
    jobs = await all_.still_held(patient)
    second = await all_.offer(patient)
    await trio.sleep(max(0.0, struck_t + leases * LEASE_S - time.monotonic()))
    before = {job_id: await all_.view(job_id) for job_id in jobs}
    back_t = time.monotonic()
    if cut_off:
        patient.edge.mend()
    else:
        os.kill(patient.daemon.child.pid, signal.SIGCONT)
    await all_.wait_ended(jobs)
    assert len(all_.runs(patient.claimed)) == 1, f"{leases} leases: {all_.runs(patient.claimed)}"
    for job_id in jobs:
        # Before that it may trust what it holds; or a little later, where it renews before anybody took its seat.
        if leases > 1 and (leases != 1.1 or patient.sysid in all_.reaped()):
            _check_sent_after(all_, patient, job_id, back_t)
        if leases * LEASE_S > TAKEN_OVER_S:
            taken = [run["t"] - struck_t for run in all_.runs(job_id) if run["daemon"] == all_.well_id]
            assert len(taken) == 1, f"{job_id} should run once elsewhere: {all_.runs(job_id)}"
            assert taken[0] < TAKEN_OVER_S, f"{job_id} lay for {taken[0]:.2f} s"
    for job_id, view in before.items():
        if view is not None and view.state.is_final:
            assert await all_.view(job_id) == view, f"{leases} leases: {job_id} had ended and was changed"
    (await all_.http.delete(second)).raise_for_status()
    # It is of use again: what was and is pushed to it runs.
    await all_.wait_ended([*meanwhile, *await all_.push(patient, 0)])


def _check_sent_after(all_: Ward, patient: Patient, job_id: str, back_t: float) -> None:
    """What it sends after it is back it has claimed after that: fences are microseconds of the store's clock."""
    late = [run for run in all_.runs(job_id) if run["daemon"] == patient.sysid and run["t"] > back_t]
    back_us = (time.time() - time.monotonic() + back_t) * 1e6
    claims = [e for e in load(all_.cluster.history.directory) if e.get("event") == "started" and e["job_id"] == job_id]
    fresh = [e for e in claims if e["daemon"] == patient.sysid and e["fence"] > back_us]
    assert len(late) <= len(fresh), f"{job_id} was sent after coming back at {back_t:.3f}: {late}, claimed: {claims}"


MISTAKE = """
from jqd.domain.lease import Trust
def renewed(self, sent_at_s):
    self._until_s = sent_at_s + 1000.0
Trust.renewed, Trust.lost = renewed, lambda self: None
"""


@pytest.mark.long
@pytest.mark.timeout(90)
async def test_a_daemon_that_trusts_its_lease_for_ever_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(MISTAKE)
    patience = {"JQD_STORE__TIMEOUT_S": "10"}  # or the answer to its claim may be too late for other reasons
    async with ward(tmp_path, 1, LEASE | patience | {"PYTHONPATH": str(planted)}) as all_:
        with pytest.raises(AssertionError, match=r"3\.0 leases: |was sent after coming back"):
            await _strike_again_and_again(all_)


async def _strike_again_and_again(all_: Ward) -> None:
    """Now and then a daemon learns that its seat is gone before it has sent anything."""
    for _ in range(4):
        await _strike(all_, all_.patients[0], 3.0, cut_off=False)


@pytest.mark.timeout(90)
async def test_a_dead_daemon_is_relieved_within_its_lease_and_a_leaving_one_at_once(tmp_path: Path) -> None:
    settings = LEASE | {"JQD_DRAIN_S": "5.5"}  # five of it are for settling and leaving
    async with ward(tmp_path, 2, settings) as all_:
        dead, leaving = all_.patients
        async with trio.open_nursery() as nursery:
            nursery.start_soon(all_.fill, dead)
            nursery.start_soon(all_.fill, leaving, 60_000)
        for patient in (dead, leaving):
            await all_.offer(patient)
        leaving.edge.mend()
        struck_t = time.monotonic()
        dead.daemon.child.kill()
        held = await all_.still_held(dead)
        leaving.daemon.child.send_signal(signal.SIGTERM)
        await all_.wait_ended([*held, leaving.claimed])
        with trio.fail_after(WAIT_S):
            while not all(len(all_.runs(job_id)) == 2 for job_id in leaving.running):
                await trio.sleep(POLL_S)
        for job_id in held:
            (taken,) = [run["t"] - struck_t for run in all_.runs(job_id) if run["daemon"] == all_.well_id]
            assert taken < TAKEN_OVER_S, f"{job_id} lay for {taken:.2f} s"
        assert len(all_.runs(dead.claimed)) == len(all_.runs(leaving.claimed)) == 1
        # Handed back, not found out: nobody had to declare it dead.
        assert dead.sysid in all_.reaped()
        assert leaving.sysid not in all_.reaped()
        assert await in_thread(leaving.daemon.stop) == 0


def _packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@contextmanager
def _ended(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.end()
