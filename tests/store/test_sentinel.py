"""The store behind three real Sentinels: its master dies, or only sleeps, and a copy takes its place under load."""

from pathlib import Path

import pytest

from tests.store.ensemble import linked, wait_until, watched
from tests.store.traffic import traffic


def test_a_master_dies_and_its_copy_takes_its_place_under_load(tmp_path: Path) -> None:
    with watched() as servers, traffic(servers.url, tmp_path) as now:
        first, second = servers.master, servers.copy
        first.kill()
        wait_until(lambda: b"master" in second.role())
        now.wait_running()
        now.expect_nothing_lost()


@pytest.mark.long
def test_a_master_falls_asleep_under_load_and_wakes_up_believing_it_still_were(tmp_path: Path) -> None:
    with watched() as servers, traffic(servers.url, tmp_path) as now:
        first, second = servers.master, servers.copy
        first.pause()
        wait_until(lambda: b"master" in second.role())
        now.wait_running()
        first.go_on()
        now.wait_running()
        wait_until(lambda: linked(first))  # the sentinels told it, after some ten seconds
        now.wait_running()
        now.expect_nothing_lost()
