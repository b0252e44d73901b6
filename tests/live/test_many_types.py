"""A tenant of very many jobtypes leaves the operator's commands as they are, at either door."""

import os
import subprocess
import sys

import httpx2

from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, wait_for
from tests.valkey import valkey

NAMES = 1_500  # more than a page of them


def jqd(daemon: Daemon, *words: str) -> str:
    told = subprocess.run(
        [sys.executable, "-m", "jqd", *words],
        env={**os.environ, "JQD_URL": daemon.url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_a_tenant_of_very_many_jobtypes_is_listed() -> None:
    with (
        short_directory() as base,
        valkey("--appendfsync", "always") as store,
        Daemon(base / "d", "--store", store.url, env=QUICK) as daemon,
    ):
        wait_for(lambda: '"through":true' in daemon.get("/v1/daemons").text, "it runs no jobs")
        names = [f"aaa{number:04}" for number in range(NAMES)]
        for start in range(0, NAMES, 500):
            jobs = [{"name": name} for name in names[start : start + 500]]
            told = httpx2.post(f"{daemon.url}/v1/jobs", json=jobs, headers={"jqd-tenant": "beta"}, timeout=30)
            assert told.status_code == 201, told.text
        wait_for(lambda: daemon.get("/v1/stats").json()["store"]["waiting"] == NAMES, "they are not in the store")
        assert [line for line in jqd(daemon, "status").splitlines() if line.endswith("runs jobs")]
        for tenant in ((), ("--tenant", "beta")):
            lines = jqd(daemon, "types", "-o", "jsonl", *tenant).splitlines()
            assert len(lines) == NAMES
