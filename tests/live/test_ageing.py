"""A job that waited for periods goes before better ones that came then; a daemon whose jobs age otherwise says so."""

import json
import time
from pathlib import Path

import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Process, wait_for
from tests.valkey import valkey

PERIOD_S, LATE = 1, 2  # steps that the job is worse by than those that come later
ENV = {**QUICK, "JQD_RUNNER__CONNECTIONS_MAX": "1", "JQD_SCHEDULER__AGEING_S": f"{PERIOD_S}s"}


@pytest.mark.long
def test_who_waited_goes_first_and_another_period_is_told(tmp_path: Path) -> None:
    with (
        valkey() as server,
        short_directory() as base,
        Daemon(base / "d", "--store", server.url, env=ENV) as daemon,
        Client(daemon.url) as client,
    ):
        (old,) = client.push_many([{"name": "slow", "argument": 0, "priority": LATE}])
        began_s = time.monotonic()
        with Daemon(base / "e", "--store", server.url, env={**ENV, "JQD_SCHEDULER__AGEING_S": "0"}):
            wait_for(lambda: "(not at all)" in daemon.get("/readyz").text, "it does not say that another one differs")
        wait_for(lambda: time.monotonic() > began_s + (LATE + 1) * PERIOD_S, "time stands still")
        new = client.push_many([{"name": name, "argument": 0} for name in ("slow", "noop", "slow")])
        wait_for(lambda: daemon.get("/v1/stats").json()["store"]["waiting"] == len(new) + 1, "they do not arrive")
        words = ["worker", "tests.live.recorder:app", "--daemon", daemon.url, "--concurrency", "1"]
        with Process(words, tmp_path / "log", {"JQD_TEST_BOOK": str(tmp_path / "book")}):
            client.wait([old, *new], timeout=30)
        begun = [json.loads(line) for line in (tmp_path / "book").read_text().splitlines()]
        assert begun[0]["job_id"] == old
