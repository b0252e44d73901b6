"""Back-pressure that comes and goes at a real daemon; and the URL of its store from a file."""

import httpx2

from tests.live.harness import Daemon, short_directory, wait_for
from tests.live.puller import Puller
from tests.valkey import valkey


def push(daemon: Daemon, argument: str = "") -> httpx2.Response:
    return httpx2.post(f"{daemon.url}/v1/jobs", json={"name": "a", "argument": argument}, timeout=10)


def test_pressure_of_jobs_that_wait_comes_and_goes() -> None:
    with valkey() as server, short_directory() as base:
        secret = base / "secret"
        secret.write_text(f"{server.url}\n")
        env = {"JQD_STORE__URL_FILE": str(secret), "JQD_PRESSURE__WAITING_JOBS_MAX": "3"}
        with Daemon(base / "d", env=env) as daemon:
            for _ in range(3):
                assert push(daemon).status_code == 201
            wait_for(lambda: push(daemon).status_code == 429, "no pressure")
            refused = push(daemon)
            assert int(refused.headers["retry-after"]) >= 1
            assert " jobs wait (pressure.waiting_jobs_max = 3)" in refused.json()["detail"]
            assert [told for told in daemon.get("/readyz").json()["warnings"] if "waiting_jobs_max" in told]
            assert daemon.get("/readyz/push").status_code == 200, "a balancer has nowhere better to go"
            with Puller(daemon.url, "a", max_jobs=1_000) as worker:
                lease = worker.lease(max_jobs=1_000)
                outcomes = [{"job_id": job["job_id"], "type": "success"} for job in lease["jobs"]]
                assert worker.beat(outcomes[0]["job_id"], lease["lease_id"]).status_code == 200
                assert set(worker.report(lease["lease_id"], *outcomes)) == {200}
            wait_for(lambda: push(daemon).status_code == 201, "it does not end")
            assert daemon.get("/v1/stats").json()["pressure"]["waiting_jobs"]["reached"] is False
            assert daemon.stop() == 0


def test_pressure_of_the_journal_ends_when_the_store_is_back() -> None:
    with valkey() as server, short_directory() as base:
        env = {"JQD_STORE__URL": server.url, "JQD_PRESSURE__JOURNAL_BYTES_MAX": "4KiB"}
        with Daemon(base / "d", env=env) as daemon:
            server.kill()
            wait_for(lambda: push(daemon, "x" * 1_000).status_code == 429, "no pressure while the store is away")
            assert "bytes of the journal are not in the store yet" in push(daemon).json()["detail"]
            server.start()
            wait_for(lambda: push(daemon).status_code == 201, "it does not end when the store is back")
            assert daemon.stop() == 0
