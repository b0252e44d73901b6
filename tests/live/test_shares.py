"""Two tenants who share one daemon that talks to one worker at a time: a backlog of thousands keeps nobody waiting, and
while both wait they begin by their weights. Told by the order of starts, which both workers note in one book."""

import json
import subprocess
import sys
from pathlib import Path

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Process, wait_for
from tests.valkey import valkey

BACKLOG, FEW, WATCHED = 2000, 10, 300
WEIGHT = 3
NOT_READY_MAX = BACKLOG // 5  # what begins between a push and its last job, on a machine that is busy: else it is all
ENV = {
    **QUICK,
    "JQD_HTTP__TOKENS": "required",
    "JQD_SCHEDULER__WEIGHTS": f"acme={WEIGHT}",
    "JQD_RUNNER__CONNECTIONS_MAX": "1",  # what the tenants compete for: their workers are their own
}


def token(base: Path, tenant: str, boss: str = "", url: str = "") -> str:
    words = ["tokens", "create", *(("worker", "--of", tenant) if tenant else ("master", "--data-dir", str(base)))]
    env = {"JQD_TOKEN": boss, "JQD_URL": url} if tenant else {}
    told = subprocess.run(
        [sys.executable, "-m", "jqd", *words], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return told.stdout.strip()


def worker(base: Path, daemon: Daemon, tenant: str, its_token: str) -> Process:
    words = ["worker", "tests.live.recorder:app", "--daemon", daemon.url, "--concurrency", "2"]
    env = {"JQD_TOKEN": its_token, "JQD_TEST_BOOK": str(base / "book")}
    return Process(words, base / f"{tenant}.log", env)


def started(book: Path) -> list[str]:
    """Ids, in the order in which they began."""
    entries = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    return [entry["job_id"] for entry in entries if entry["event"] == "start"]


def push(client: Client, count: int) -> list[str]:
    return client.push_many([{"name": "slow", "argument": 0.001}] * count)


def waiting(boss: Client) -> int:
    """How many jobs of the tenant that has the fewest."""
    waits: dict[str, int] = {row["tenant"]: row["waiting"] for row in boss.types()}
    return min(waits.get(tenant, 0) for tenant in ("acme", "zoo"))


def test_a_backlog_keeps_no_other_tenant_waiting_and_weights_say_who_begins_how_many() -> None:
    with valkey() as server, short_directory() as base, Daemon(base / "d", "--store", server.url, env=ENV) as daemon:
        boss, book = token(base / "d", ""), base / "book"
        acme, zoo = (token(base, tenant, boss, daemon.url) for tenant in ("acme", "zoo"))
        with (
            Client(daemon.url, token=acme) as of_acme,
            Client(daemon.url, token=zoo) as of_zoo,
            Client(daemon.url, token=boss) as of_boss,
            worker(base, daemon, "acme", acme),
            worker(base, daemon, "zoo", zoo),
        ):
            assert of_zoo.get(push(of_zoo, 1)[0], wait=30).state == "succeeded"
            push(of_acme, BACKLOG)
            wait_for(lambda: len(started(book)) > FEW, "the backlog does not begin")
            before = len(started(book))
            few = push(of_zoo, FEW)
            wait_for(lambda: set(few) <= set(started(book)), "those few wait for the backlog")
            last = max(started(book).index(job_id) for job_id in few)
            assert last - before < NOT_READY_MAX, f"{last - before} of the backlog began before the last of {FEW}"
            # Both backlogs stand whole before the first of them begins, however slow the machine: one that is run down
            # while the other is pushed has no share.
            wait_for(lambda: of_boss.drain()["in_flight"] == 0, "the daemon still begins jobs")
            begun, many = len(started(book)), set(push(of_zoo, BACKLOG))
            push(of_acme, BACKLOG)
            wait_for(lambda: waiting(of_boss) >= BACKLOG, "the backlogs are not in the store")
            of_boss.resume_daemon()
            wait_for(lambda: len(started(book)) >= begun + WATCHED, "not much begins")
            watched = started(book)[begun : begun + WATCHED]
            share = 1 - len(many & set(watched)) / WATCHED
            assert abs(share - WEIGHT / (WEIGHT + 1)) < 0.2, f"{share:.0%} of the starts are of weight {WEIGHT}"
