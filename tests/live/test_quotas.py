"""What a tenant's own workers and schedules add waits for its quota too: through kills of the daemon and an emptied
store nothing of it is lost, it is told where people look, others notice nothing, and it comes when there is room.
"""

from functools import partial
from pathlib import Path

import pytest

from jqd.client import Client, Unavailable
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Process, wait_for
from tests.valkey import emptied, valkey

FOLLOWERS, PARENTS = 20, 4
PROGRAM = f"""
import jqd

app = jqd.App()

@app.job
def leaf() -> None: ...

@app.job
def parent() -> None:
    for _ in range({FOLLOWERS}):
        jqd.current().push(leaf)
"""


def worker(daemon: Daemon, ours: Client, tenant: str, base: Path) -> Process:
    args = ["worker", "growing", "--jobs", "parent", "--daemon", daemon.url, "--bind", "127.0.0.1:0"]
    token = ours.create_token("worker", tenant=tenant)["token"]
    return Process(args, base / f"{tenant}.log", {"JQD_TOKEN": token}, cwd=base)


def leaves(client: Client) -> int:
    return sum(one.name == "leaf" for one in client.jobs(limit=500))


def put_off(client: Client) -> int:
    return sum(row["put_off"] for row in client.quotas())


def is_told(daemon: Daemon) -> bool:
    return "\njqd_shelves_tenants 1.0\n" in daemon.get("/metrics").text


def grows(daemon: Daemon, base: Path) -> int:
    """Let a tenant have what its quota is too small for; how often its schedule was fired."""
    with (
        Client(daemon.url, tenant="acme") as acme,
        Client(daemon.url, tenant="other") as other,
        Client(daemon.url) as ours,
        worker(daemon, ours, "acme", base) as theirs,
        worker(daemon, ours, "other", base) as others,
    ):
        ours.set_quota("acme", queued=2 * FOLLOWERS)
        acme.wait([acme.push("parent") for _ in range(PARENTS)], timeout=30)
        acme.set_schedule("tick", {"name": "leaf"}, every=1)
        wait_for(lambda: put_off(ours) >= PARENTS - 2, "nothing waits for the quota")
        wait_for(partial(is_told, daemon), "nobody is told")
        with pytest.raises(Unavailable, match="quota of tenant 'acme'"):
            acme.push("leaf")
        other.wait([other.push("parent")], timeout=30)
        wait_for(lambda: leaves(other) == FOLLOWERS, "another tenant waits, too")
        fired = int(acme.schedule("tick")["fired"])
        assert (leaves(acme) <= 2 * FOLLOWERS, theirs.stop(), others.stop()) == (True, 0, 0)
        return fired


def test_what_comes_by_itself_waits_for_a_quota_and_is_not_lost() -> None:
    with valkey() as server, short_directory() as base:
        (base / "growing.py").write_text(PROGRAM)
        with Daemon(base / "one", "--store", server.url, env=QUICK) as daemon:
            fired = grows(daemon, base)
            daemon.kill()
        emptied(server)
        with (
            Daemon(base / "one", "--store", server.url, env=QUICK) as daemon,
            Client(daemon.url, tenant="acme") as acme,
            Client(daemon.url) as ours,
        ):
            wait_for(lambda: put_off(ours) >= PARENTS - 2, "it is not told again")
            assert leaves(acme) <= 2 * FOLLOWERS
            ours.delete_quota("acme")
            wait_for(lambda: leaves(acme) > PARENTS * FOLLOWERS + fired, "it does not come when it may")
            wait_for(lambda: "\njqd_shelves_jobs 0.0\n" in daemon.get("/metrics").text, "it is still told")
            assert daemon.stop() == 0
