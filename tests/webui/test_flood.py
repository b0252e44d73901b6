"""A UI that is flooded, then killed: pushes to the daemon go on, and it has a bounded number of connections."""

import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from jqd.client import Client, JqdClientError
from jqd.client.connections import CONNECTIONS_MAX
from tests.webui.conftest import Site, UiProcess

FLOOD_S = 4.0  # then the UI is killed, and pushes go on for one second more
FLOODERS = 16
PATHS = ("/", "/jobs", "/errors", "/jobs?state=failed", "/nothing", "/live", "/job?id=nobody")
SPARE = 4  # the stream of counters, and threads that are about to end


def connections(pid: int, url: str) -> int:
    """How many of a process lead to that daemon, by the kernel's tables."""
    port = urlsplit(url).port
    mine = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(each.readlink().name)
        except FileNotFoundError:
            continue  # it was closed just now
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(f"socket:[{row[9]}]" in mine and int(row[2].split(":")[1], 16) == port for row in rows)


def test_no_push_fails_while_the_ui_is_flooded_and_killed(site: Site, tmp_path: Path) -> None:
    done, pushed, asked, most = threading.Event(), [0], [0], [0]
    errors: list[JqdClientError] = []

    def flood(ui: UiProcess, number: int) -> None:
        with httpx2.Client(base_url=ui.url, timeout=2) as browser:
            while not done.is_set():
                try:
                    with browser.stream("GET", PATHS[(asked[0] + number) % len(PATHS)]) as answer:
                        next(answer.iter_bytes(), b"")  # and leave
                except httpx2.HTTPError:
                    done.wait(0.01)  # it was killed, or has too much to do
                asked[0] += 1

    def push() -> None:
        try:
            with Client(site.daemon) as client:
                while not done.is_set():
                    client.push("echo", pushed[0], delay="1d", tags=["flood"])
                    pushed[0] += 1
        except JqdClientError as error:
            errors.append(error)

    with UiProcess(tmp_path / "ui.log", "--url", site.daemon) as ui:
        threads = [threading.Thread(target=flood, args=(ui, number)) for number in range(FLOODERS)]
        threads.append(threading.Thread(target=push))
        for thread in threads:
            thread.start()
        until_s = time.monotonic() + FLOOD_S
        while time.monotonic() < until_s:
            most[0] = max(most[0], connections(ui.child.pid, site.daemon))
            done.wait(0.05)
        ui.kill()
        before = pushed[0]
        done.wait(1.0)
        done.set()
        for thread in threads:
            thread.join(timeout=20)
    with Client(site.daemon) as client:
        client.cancel_many(tag="flood")
        client.delete_many(tag="flood", state="cancelled")
    assert errors == []
    assert pushed[0] > before > 0
    assert asked[0] > FLOODERS
    assert 0 < most[0] <= CONNECTIONS_MAX + SPARE
