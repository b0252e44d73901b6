"""Clients that ask for much and leave: what is done for them ends with them, and the daemon is as it was."""

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2

from tests.directories import short_directory
from tests.live.harness import Daemon, wait_for
from tests.stalls import unstalled

JOBS = 3_000
LIST = b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
THREADS = 12
STAY_S = 0.004  # of each client: the daemon has begun
ATTACK_S = 2.0
GROWN_MAX_BYTES = 60 << 20  # of a daemon with hundreds of lists under way; with all of them it was 500 MiB and more
SOME = 16  # descriptors more or less that a daemon may have, whatever it does


class Watched:
    """What a process has, by its id."""

    def __init__(self, daemon: Daemon) -> None:
        self._proc = Path(f"/proc/{daemon.child.pid}")

    def descriptors(self) -> int:
        return len(os.listdir(self._proc / "fd"))

    def bytes(self) -> int:
        return int((self._proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def attack(port: int, until_s: float) -> None:
    while time.monotonic() < until_s:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(LIST)
            time.sleep(STAY_S)  # what is looked at is a daemon that works for somebody who has gone


def at_once(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_lists_end_with_their_clients() -> None:
    with short_directory() as base, Daemon(base / "data", guarded=True) as daemon:
        rows = [{"name": "mail", "argument": {"to": "a" * 200}} for _ in range(JOBS)]
        assert httpx2.post(f"{daemon.url}/v1/jobs", json=rows, timeout=30).is_success
        wait_for(
            lambda: [row["waiting"] for row in daemon.get("/v1/types").json()["types"]] == [JOBS],
            "not all are in the store",
        )
        daemon.get("/v1/jobs?limit=1000")
        watched, port = Watched(daemon), int(daemon.bind.rpartition(":")[2])
        descriptors, size = watched.descriptors(), watched.bytes()
        until_s = time.monotonic() + ATTACK_S
        with unstalled(daemon.steps):
            at_once(lambda: attack(port, until_s))
        wait_for(lambda: watched.descriptors() <= descriptors + SOME, "descriptors are left behind")
        assert watched.bytes() - size < GROWN_MAX_BYTES
