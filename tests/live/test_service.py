"""A daemon under a service manager, and the files that bring it there."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.directories import short_directory
from tests.live.harness import ROOT, START_S, Daemon

UNITS = sorted((ROOT / "deploy").glob("*.service"))


def test_a_service_manager_hears_that_it_is_ready_goes_on_and_stops() -> None:
    with short_directory() as base, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(base / "notify"))
        manager.settimeout(START_S)
        env = {"NOTIFY_SOCKET": str(base / "notify"), "WATCHDOG_USEC": "300000"}
        with Daemon(base / "d", env=env) as daemon:
            while not (heard := manager.recv(4096).decode()).startswith("READY=1"):
                assert heard.startswith("EXTEND_TIMEOUT_USEC=30000000\nSTATUS=")  # it goes on, and takes no jobs yet
            assert heard.startswith("READY=1\nSTATUS=takes jobs; ")
            for _ in range(2):
                while not manager.recv(4096).endswith(b"\nWATCHDOG=1"):
                    pass  # a busy machine may miss a beat
            assert daemon.stop() == 0
            while not (last := manager.recv(4096).decode()).startswith("STOPPING=1"):
                assert last.startswith("READY=1\nSTATUS=")
            assert "EXTEND_TIMEOUT_USEC=35000000" in last


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here to read them")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    jqd = Path(sys.executable).with_name("jqd")
    assert jqd.exists()
    names = []
    for unit in UNITS:
        name = unit.name.replace("@", "@shop")
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/jqd/bin/jqd", str(jqd)))
        names.append(str(tmp_path / name))
    told = subprocess.run(
        ["systemd-analyze", "verify", *names], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
