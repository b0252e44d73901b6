"""The store behind three real Sentinels: its master dies, or only sleeps, and a copy takes its place under load."""

from pathlib import Path

from tests.store.ensemble import linked, wait_until, watched
from tests.store.traffic import traffic


def test_a_master_dies_and_its_heir_falls_asleep_under_load(tmp_path: Path) -> None:
    with watched() as servers, traffic(servers.url, tmp_path) as now:
        first, second = servers.master, servers.copy
        first.kill()
        wait_until(lambda: b"master" in second.role())
        now.wait_running()
        first.start()
        wait_until(lambda: linked(first))  # the sentinels made it a copy
        wait_until(lambda: servers.know_copy(first))
        second.pause()
        wait_until(lambda: b"master" in first.role())
        now.wait_running()
        second.go_on()  # it believes to be master still, until a sentinel tells it
        now.wait_running()
        now.expect_nothing_lost()
