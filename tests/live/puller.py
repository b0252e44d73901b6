"""A worker that asks for its jobs, as a user would write one: it knows nothing but the calls."""

from typing import Any, Self

import httpx2

WAIT_S = 20.0  # no answer comes near


class Puller:
    """Registered at one daemon; asks whichever it is told to."""

    def __init__(self, home: str, /, *jobs: str, max_jobs: int = 10, **fields: Any) -> None:
        self.url = home
        self.http = httpx2.Client(timeout=WAIT_S + 10)
        self.card = {"name": "puller", "jobs": list(jobs), "max_jobs": max_jobs, **fields}
        self.worker_id = self.register(home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def register(self, url: str) -> str:
        """Register, once more perhaps; the worker's id."""
        told = self.call("POST", "/v1/workers", self.card, url=url)
        assert told.status_code == 201, told.text
        worker_id: str = told.json()["worker_id"]
        self.card["worker_id"] = worker_id
        return worker_id

    def call(self, method: str, path: str, body: Any = None, *, url: str = "") -> httpx2.Response:
        """One call, in JSON."""
        return self.http.request(method, (url or self.url) + path, json=body)

    def lease(self, max_jobs: int = 10, *, wait: float = WAIT_S, url: str = "", **fields: Any) -> dict[str, Any]:
        """What a poll brings."""
        asked = {"worker_id": self.worker_id, "max_jobs": max_jobs, "wait": wait, **fields}
        told = self.call("POST", "/v1/leases", asked, url=url)
        assert told.status_code == 200, told.text
        return told.json()  # type: ignore[no-any-return]

    def report(self, lease_id: str, *outcomes: dict[str, Any], url: str = "") -> list[int]:
        """The status of each."""
        told = self.call("POST", "/v1/outcomes", [{"lease_id": lease_id, **one} for one in outcomes], url=url)
        assert told.status_code == 200, told.text
        return [one["status"] for one in told.json()["outcomes"]]

    def beat(self, job_id: str, lease_id: str, *, url: str = "", **fields: Any) -> httpx2.Response:
        """A sign of life."""
        return self.call("POST", f"/v1/jobs/{job_id}/heartbeat", {"lease_id": lease_id, **fields}, url=url)

    def job(self, job_id: str, *, url: str = "", wait: float = 0) -> dict[str, Any]:
        """As `GET` tells it."""
        return self.call("GET", f"/v1/jobs/{job_id}?wait={wait}", url=url).json()  # type: ignore[no-any-return]
