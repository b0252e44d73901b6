"""Pictures of three pages for the README, of a daemon with real jobs: `python -m tests.webui.screenshots [SECONDS]`.

Jobs are pushed for so long that the last hour has some minutes in it.
"""

import random
import sys
import time
from pathlib import Path

from playwright.sync_api import Page

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, Process
from tests.webui.chromium import Chromium, found
from tests.webui.conftest import UiProcess

FOLDER = ROOT / "docs" / "operate" / "img"
SIZE = {"width": 1180, "height": 860}
BYTES_MAX = 150_000  # of a picture: the README is read on phones, too
PUSH_S = 200.0
PAUSE_S = 0.1


def push(client: Client, seconds: float) -> str:
    """Keep the example worker busy; return a job that is worth a look."""
    dice, until_s = random.Random(7), time.monotonic() + seconds
    while time.monotonic() < until_s:
        number = dice.randrange(1, 500)
        client.push("add", [number, number], tags=["invoices"])
        client.push("sleep", dice.random() / 2, priority=dice.randrange(9))
        if number % 7 == 0:
            client.push("fail", {"order": number, "to": f"person{number}@example.org"}, max_retry=0, tags=["mail"])
        if number % 11 == 0:
            client.push("flaky", {"order": number}, tags=["mail"])
        if number % 13 == 0:
            client.push("echo", {"order": number}, delay="2h")
        time.sleep(PAUSE_S)
    for number in range(3):
        client.push("resize-picture", {"picture": number}, tags=["shop"])
    job_id = client.push("fail", {"order": 4711, "to": "ada@example.org"}, max_retry=0, tags=["mail", "shop"])
    client.wait([job_id], timeout=60)
    return job_id


def main(seconds: float) -> int:
    """Exit code 0 when all pictures are there and small enough."""
    path = found()
    if path is None:
        sys.stderr.write("there is no Chromium on this machine: install `chromium`\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    browser = Chromium(path)
    with short_directory() as base, Daemon(base / "d") as daemon:
        args = ["worker", "jqd.worker.demo", "--daemon", daemon.url, "--name", "demo"]
        with (
            Process(args, base / "worker.log") as worker,
            UiProcess(base / "ui.log", "--url", daemon.url) as ui,
            Client(daemon.url) as client,
        ):
            daemon.wait_worker("echo")
            job_id = push(client, seconds)
            pages = {"now": "/", "job": f"/job?id={job_id}", "errors": "/errors"}

            def look(page: Page) -> None:
                page.set_viewport_size(SIZE)  # type: ignore[arg-type]
                for name, address in pages.items():
                    page.goto(ui.url + address)
                    page.wait_for_load_state("load")
                    if name == "job":  # its traceback names files of this machine
                        page.locator("#message + pre").evaluate(
                            "(shown, root) => { shown.textContent = shown.textContent.replaceAll(root, '/srv/shop') }",
                            str(ROOT),
                        )
                    if name == "now":
                        page.locator("#chart-counts canvas").wait_for()
                    page.screenshot(path=FOLDER / f"{name}.png", full_page=name == "now")

            browser.run(look)
            ui.stop()
            worker.stop()
        daemon.stop()
    browser.close()
    sizes = {each.name: each.stat().st_size for each in sorted(Path(FOLDER).glob("*.png"))}
    sys.stdout.write(f"{sizes}\n")
    return 0 if max(sizes.values()) <= BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else PUSH_S))
