"""Histories written by hand, to be judged by the checker."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.chaos.check import check

WALL_S = 1_000_000.0  # the wall clock at second 0 of the monotonic one


LEASE_S = 2.0


class Story:
    """Writes a history by hand. Two daemons (`d0` and `d1` by their own names), workers `worker-0` and `worker-1`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._counts = 0
        self.add("config", 0.0, lease_s=LEASE_S, renew_s=0.5, timeout_s=10.0, max_retry=3, heal_s=30.0)
        self.add("clock", 0.0, wall_ms=WALL_S * 1000)
        for i in range(2):
            self.add("daemon_is", 0.0, name=f"daemon-{i}", sysid=f"d{i}")

    def add(self, e: str, t: float, **fields: Any) -> None:
        self.events.append({"e": e, "t": t, **fields})

    def log(self, event: str, t: float, job: str, **fields: Any) -> None:
        ts = datetime.fromtimestamp(WALL_S + t, UTC).isoformat(timespec="milliseconds")
        self.events.append({"ts": ts, "event": event, "job_id": job, "jobtype": "plain", **fields})

    def push(self, n: int, t: float, answer: str = "push_ok", **fields: Any) -> str:
        """Push one job; its id sorts by `n`."""
        job = {"n": n, "sha": f"s{n}", "name": "plain", "plan": "ok", "delay_s": 0, "priority": 0} | fields
        self._counts += 1
        self.add("push_invoke", t, push=self._counts, daemon="daemon-0", jobs=[job])
        self.add(answer, t + 0.01, push=self._counts, **({"ids": [f"j{n:04}"]} if answer == "push_ok" else {}))
        if answer == "push_ok":
            self.log("ingested", t + 0.02, f"j{n:04}", daemon="d0")
        return f"j{n:04}"

    def claim(self, job: str, t: float, daemon: str = "d0", attempt: int = 1) -> int:
        """Claimed at `t`; answers the fence."""
        fence = round((WALL_S + t) * 1e6)
        self.log("started", t, job, daemon=daemon, attempt=attempt, fence=fence, worker="w")
        return fence

    def run(self, job: str, t: float, s: float | None = 0.1, *, daemon: str = "d0", worker: str = "worker-0",
            attempt: int = 1, outcome: str = "ok", n: int | None = None, **fields: Any) -> None:  # fmt: skip
        """A start, and an end after `s` seconds unless that is None."""
        self._counts += 1
        n = int(job[1:]) if n is None else n
        told = {"sha": f"s{n}", "name": "plain"} | fields
        where = {"worker": worker, "daemon": daemon, "attempt": attempt}
        self.add("exec_start", t, job=job, n=n, exec=self._counts, **told, **where)
        if s is not None:
            self.add("exec_end", t + s, exec=self._counts, outcome=outcome)

    def settle(self, job: str, t: float, fence: int, fate: str = "succeeded", daemon: str = "d0", **told: Any) -> None:
        self.log("ended", t, job, daemon=daemon, fence=fence, fate=fate, status=200, **told)

    def fault(self, t0: float, t1: float, kind: str, target: str) -> None:
        self._counts += 1
        for t, on in ((t0, "start"), (t1, "stop")):
            self.add("nemesis", t, id=self._counts, on=on, kind=kind, target=target)

    def well(self, n: int, t: float, state: str = "succeeded", **fields: Any) -> str:
        """A job's whole life without any trouble."""
        job = self.push(n, t, **fields)
        fence = self.claim(job, t + 0.1)
        self.run(job, t + 0.11)
        self.settle(job, t + 0.3, fence)
        self.add("final", 90.0, job=job, state=state)
        return job

    def twice(self, again_t: float, *, settled_t: float | None = None, daemon: str = "d1", **told: Any) -> None:
        """Job 2 is started at 10.11 by d0 and, under another claim, at `again_t`."""
        job = self.push(2, 10.0)
        fence = self.claim(job, 10.1)
        self.run(job, 10.11)
        if settled_t is not None:
            self.settle(job, settled_t, fence, **told)
        fence = self.claim(job, again_t - 0.01, daemon)
        self.run(job, again_t, daemon=daemon, worker="worker-1")
        self.settle(job, again_t + 0.2, fence, daemon=daemon)
        self.add("final", 90.0, job=job, state="succeeded")

    def end(self, jobs: int, t: float = 80.0, **census: int) -> None:
        self.add("healed", 70.0)
        self.add("drained", t)
        self.add("census", 90.0, **({"ended": jobs, "dead": 0, "ready": 0, "later": 0, "held": 0} | census))


def found(plant: Callable[[Story], None], jobs: int = 2, **census: int) -> set[str]:
    """The rules that a history breaks: one job that is well, and what `plant` adds."""
    story = Story()
    story.well(1, 1.0)
    plant(story)
    if not any(e.get("e") == "healed" for e in story.events):
        story.end(jobs, **census)
    return set(check(story.events).violations)
