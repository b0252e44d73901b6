"""One key, pushed again and again by many at once, at two daemons of which one is killed: one job, and one answer."""

import threading
from typing import Any

import httpx2
import pytest

from tests.live.harness import LEASE, START_S, Daemon, cluster, wait_for
from tests.stalls import unstalled

PUSHERS = 40
TRIES = 60  # of each: the daemon that is killed comes back within a few seconds
MANY = [{"name": "square", "argument": {"n": n}} for n in range(1, 6)]


class Pusher(threading.Thread):
    """Does what a careful client does: the same request again, anywhere, until it is answered."""

    def __init__(self, number: int, urls: list[str], body: Any) -> None:
        super().__init__(daemon=True)
        self.number, self.urls, self.body = number, urls, body
        self.told: list[tuple[int, Any]] = []

    def run(self) -> None:
        for attempt in range(TRIES):
            url = self.urls[(self.number + attempt) % len(self.urls)]
            try:
                answer = httpx2.post(
                    f"{url}/v1/jobs", json=self.body, headers={"idempotency-key": "storm"}, timeout=START_S
                )
            except httpx2.TransportError:
                threading.Event().wait(0.1)  # that daemon is away
                continue
            if answer.status_code in (200, 201):
                self.told.append((answer.status_code, answer.json()["job_ids"]))
                return
            assert answer.status_code in (409, 503), answer.text  # somebody else's, at the same time; or not now
            threading.Event().wait(0.1)


@pytest.mark.long
def test_a_key_is_one_request_whoever_sends_it_and_whatever_dies() -> None:
    with cluster(guarded=True) as here, unstalled(here.two.steps):
        here.one.wait_worker("square")
        pushers = [Pusher(number, [here.one.url, here.two.url], MANY) for number in range(PUSHERS)]
        for pusher in pushers[: PUSHERS // 2]:
            pusher.start()
        wait_for(lambda: any(pusher.told for pusher in pushers), "nobody is answered")
        here.one.kill()
        for pusher in pushers[PUSHERS // 2 :]:
            pusher.start()
        again = Daemon(here.base / "one", "--store", here.server.url, bind=here.one.bind, env=LEASE)
        with again:
            for pusher in pushers:
                pusher.join(START_S)
            told = [answer for pusher in pushers for answer in pusher.told]
            assert len(told) == PUSHERS, "each is answered"
            (ids,) = {tuple(ids) for _, ids in told}
            wait_for(lambda: len(here.worker.starts()) >= len(MANY), "not all have run")
            states = {again.get(f"/v1/jobs/{job_id}?wait=20").json()["state"] for job_id in ids}
            assert states == {"succeeded"}
            assert len(here.worker.starts()) == len(MANY), "no other job than these"
