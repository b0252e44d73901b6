"""Workers of the chaos runs that keep jobs for themselves: one asks for them, one takes them with a 202.

Both report at whatever daemon answers, which is seldom the one that the jobs came from.
"""

import argparse
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import trio

from tests.chaos.worker import NAMES, RETRY_S, STEP, Book, as_told, step_of
from tests.harness.worker import Reply, Request, open_worker

SLOTS = 16
POLLS = 2
WAIT_S = 4.0
CALL_S = 8.0
PAUSE_S = 0.1  # before another daemon is asked
REPORT_S = 30.0  # longer than a lease lasts that nobody hears of


class Keeper:
    """One worker, known by its name to all daemons."""

    def __init__(self, name: str, book: Book, daemons: list[str], http: httpx2.AsyncClient) -> None:
        self._name, self._book, self._http = name, book, http
        self._daemons = daemons
        self._source = random.Random()

    async def register(self, **fields: Any) -> None:
        """Until some daemon has taken it; it tells the others."""
        card = {"name": self._name, "worker_id": self._name, "jobs": list(NAMES), "max_jobs": SLOTS, **fields}
        for url in self._turns():
            answer = await self._post(url + "/v1/workers", card)
            if answer is not None and answer.status_code == 201:
                return
            await trio.sleep(PAUSE_S)

    async def pull(self, nursery: trio.Nursery) -> None:
        """Ask one daemon after the other."""
        asked = {"worker_id": self._name, "max_jobs": SLOTS // POLLS, "wait": WAIT_S}
        for url in self._turns():
            answer = await self._post(url + "/v1/leases", asked)
            if answer is None or answer.status_code != 200:
                if answer is not None and answer.status_code == 404:
                    await self.register()
                await trio.sleep(PAUSE_S)
                continue
            lease = answer.json()
            for job in lease["jobs"]:
                nursery.start_soon(self.work, job, lease["lease_id"])

    async def work(self, job: dict[str, Any], lease_id: str) -> None:
        """Do what its argument says, and report it."""
        argument, attempt = job["argument"], job["attempt"]
        more: dict[str, Any] = {}
        if job["name"] == STEP:
            argument, more["got"] = step_of(argument)
        told = self._book.begin(job["job_id"], attempt, job["name"], argument, fence=int(lease_id), **more)
        await trio.sleep(argument["ms"] / 1000)
        outcome = as_told(argument, attempt)
        self._book.end(told, outcome)
        said: dict[str, Any] = {
            "job_id": job["job_id"],
            "lease_id": lease_id,
            "type": "success",
            "result": {"of": argument["n"], "by": told} if more else argument["n"],
        }
        if outcome == "ok" and more:
            said["jobs"] = argument.get("makes", [])
        if outcome != "ok":
            said |= {"type": "failure", "message": "as it was told to", "should_retry": outcome == "retry"}
            said |= {"retry_after": RETRY_S} if outcome == "retry" else {}
        with trio.move_on_after(REPORT_S):
            for url in self._turns():
                answer = await self._post(url + "/v1/outcomes", [said])
                if answer is not None and answer.status_code == 200:
                    (row,) = answer.json()["outcomes"]
                    if row["status"] < 500:
                        return
                await trio.sleep(PAUSE_S)

    def _turns(self) -> Iterator[str]:
        while True:
            yield from self._source.sample(self._daemons, len(self._daemons))

    async def _post(self, url: str, body: Any) -> httpx2.Response | None:
        try:
            return await self._http.post(url, json=body, timeout=CALL_S)
        except httpx2.HTTPError:
            return None  # nobody knows; the next one is asked, or the same again


async def keep(name: str, book: Path, daemons: list[str], *, pulls: bool) -> None:
    """Until told to stop."""
    async with httpx2.AsyncClient(limits=httpx2.Limits()) as http, trio.open_nursery() as nursery:
        keeper = Keeper(name, Book(book, name), daemons, http)

        async def script(request: Request, reply: Reply) -> None:
            await reply.send(202)
            for job in request.jobs() if request.method == "POST" else ():
                nursery.start_soon(keeper.work, job, request.headers["jqd-lease-id"])

        async def serve() -> None:
            async with open_worker(script) as worker:
                await keeper.register(url=worker.url)
                await trio.sleep_forever()

        async def ask() -> None:
            await keeper.register()
            for _ in range(POLLS):
                nursery.start_soon(keeper.pull, nursery)

        nursery.start_soon(ask if pulls else serve)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            await anext(signals)
        nursery.cancel_scope.cancel()


def main() -> None:
    """Run one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--book", type=Path, required=True)
    parser.add_argument("--daemon", action="append", required=True)
    parser.add_argument("--pull", action="store_true")
    told = parser.parse_args()

    async def run() -> None:
        await keep(told.name, told.book, told.daemon, pulls=told.pull)

    trio.run(run)


if __name__ == "__main__":
    main()
