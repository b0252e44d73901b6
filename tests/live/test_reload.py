"""A daemon whose settings change while it runs: SIGHUP, back-pressure that comes and goes, a URL from a file."""

import os
import signal
from pathlib import Path

import httpx2

from tests.directories import short_directory
from tests.live.harness import Daemon, wait_for
from tests.live.puller import Puller
from tests.valkey import valkey


class Changing(Daemon):
    """With a file of settings that can be said anew."""

    def __init__(self, base: Path, file: Path, env: dict[str, str]) -> None:
        self.file = file
        super().__init__(base / "d", "--config", str(file), env=env)

    def say(self, text: str, event: str) -> None:
        """Other settings; returns when the log has one more such line."""
        before = self.log.read_text().count(f'"{event}"')
        self.file.write_text(text)
        os.kill(self.child.pid, signal.SIGHUP)
        wait_for(lambda: self.log.read_text().count(f'"{event}"') > before, f"no {event}")

    def warnings(self) -> list[str]:
        told: list[str] = self.get("/readyz").json()["warnings"]
        return told

    def push(self, argument: str = "") -> httpx2.Response:
        return httpx2.post(f"{self.url}/v1/jobs", json={"name": "a", "argument": argument}, timeout=10)


def test_settings_change_while_a_daemon_runs_and_pressure_comes_and_goes() -> None:
    with valkey() as server, short_directory() as base:
        secret, file = base / "secret", base / "jqd.toml"
        secret.write_text(f"{server.url}\n")
        file.write_text("")
        with Changing(base, file, {"JQD_STORE__URL_FILE": str(secret)}) as daemon:
            assert daemon.push("x" * 100).status_code == 201
            daemon.say("[api]\njob_bytes_max = 60\n[retry]\nfirst_s = 2\n", "config.reloaded")
            assert daemon.push("x" * 100).status_code == 413
            assert "changed, and waiting for a restart: retry.first_s" in daemon.warnings()
            daemon.say("[api]\njob_bytes = 60\n", "config.not_reloaded")
            assert [told for told in daemon.warnings() if "did you mean 'api.job_bytes_max'" in told]
            assert daemon.push("x" * 100).status_code == 413, "what held before holds on"

            daemon.say("[pressure]\nwaiting_jobs_max = 3\n", "config.reloaded")
            for _ in range(2):
                assert daemon.push().status_code == 201
            wait_for(lambda: daemon.push().status_code == 429, "no pressure")
            refused = daemon.push()
            assert int(refused.headers["retry-after"]) >= 1
            assert " jobs wait (pressure.waiting_jobs_max = 3)" in refused.json()["detail"]
            assert [told for told in daemon.warnings() if "waiting_jobs_max" in told]
            assert daemon.get("/readyz/push").status_code == 200, "a balancer has nowhere better to go"
            with Puller(daemon.url, "a", max_jobs=1_000) as worker:
                lease = worker.lease(max_jobs=1_000)
                outcomes = [{"job_id": job["job_id"], "type": "success"} for job in lease["jobs"]]
                assert worker.beat(outcomes[0]["job_id"], lease["lease_id"]).status_code == 200
                assert set(worker.report(lease["lease_id"], *outcomes)) == {200}
            wait_for(lambda: daemon.push().status_code == 201, "it does not end")
            assert daemon.get("/v1/stats").json()["pressure"]["waiting_jobs"]["reached"] is False

            daemon.say('[pressure]\njournal_bytes_max = "4KiB"\n', "config.reloaded")
            server.kill()
            wait_for(lambda: daemon.push("x" * 1_000).status_code == 429, "no pressure while the store is away")
            assert "bytes of the journal are not in the store yet" in daemon.push().json()["detail"]
            server.start()
            wait_for(lambda: daemon.push().status_code == 201, "it does not end when the store is back")
            assert daemon.stop() == 0
