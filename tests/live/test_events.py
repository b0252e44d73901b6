"""Who listens to a daemon: while jobs run, and when it is told to end."""

import json
import threading
import time
from pathlib import Path

import httpx2
import trio

from tests.directories import short_directory
from tests.live.harness import Daemon, Worker, wait_for

END_S = 24.0  # less than `drain_s`: a stop with nothing in flight, and listeners hold nobody up


class Ear(threading.Thread):
    """Listens until it is told no more."""

    def __init__(self, daemon: Daemon, query: str) -> None:
        super().__init__(daemon=True)
        self.url = f"{daemon.url}/v1/events?{query}"
        self.told: list[tuple[str, dict[str, object]]] = []
        self.whole = False
        self.start()

    def run(self) -> None:
        kind = ""
        with httpx2.stream("GET", self.url, timeout=30) as answer:
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                kind = value if field == "event" else kind
                if field == "data":
                    self.told.append((kind, json.loads(value)))
        self.whole = True

    def events(self) -> list[object]:
        return [data["event"] for kind, data in self.told if kind == "job"]


async def test_listeners_hear_of_their_jobs_and_hold_up_no_end() -> None:
    with short_directory() as base, Daemon(base / "d") as daemon:
        ours, others = Ear(daemon, "name=square&counters=0"), Ear(daemon, "name=nobody")
        with Worker(Path(base / "book"), daemon.url) as worker:
            await trio.to_thread.run_sync(daemon.wait_worker, "square")
            wait_for(lambda: bool(others.told), "no counters")
            pushed = httpx2.post(f"{daemon.url}/v1/jobs", json={"name": "square", "argument": {"n": 1}}, timeout=10)
            assert pushed.status_code == 201
            wait_for(lambda: "ended" in ours.events(), f"not told: {ours.told}")
            assert worker.stop() == 0
        assert ours.events() == ["entered", "ingested", "started", "ended"]
        assert {data["job_id"] for _, data in ours.told} == {pushed.json()["job_id"]}
        assert others.events() == []
        began_s = time.monotonic()
        assert await trio.to_thread.run_sync(daemon.stop) == 0
        assert time.monotonic() - began_s < END_S
        for ear in (ours, others):
            ear.join(END_S)
            assert ear.whole, "a stream that is ended by its daemon has an end"
