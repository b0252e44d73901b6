"""A real daemon with a worker, a real `jqd ui`, and a real Chromium: one of each for all tests here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from jqd.client import Client
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from tests.directories import short_directory
from tests.live.harness import Daemon, Process, ingested, wait_for
from tests.webui import nasty
from tests.webui.chromium import Chromium, found

NASTY = "<script>alert(1)</script>\"'&{{7*7}}/../ ü"
"""What must be text wherever it stands."""
NASTY_GROUP = NASTY.replace("/", "%2F")
"""The same for what stands in URLs of the API."""
ODD = "a/b <i>\"'&%2F#?"
"""The name of a schedule, a constraint and a handler here."""


class UiProcess(Process):
    """`jqd ui`, on any free port or where another was."""

    def __init__(self, log: Path, *args: str, env: dict[str, str] | None = None, bind: str = "127.0.0.1:0") -> None:
        super().__init__(["ui", "--bind", bind, *args], log, env)
        self.url = self.wait_line("ready at").split()[-1]


@dataclass
class Site:
    """Where the pages are, and jobs to look at, by what became of them."""

    url: str
    daemon: str
    jobs: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return httpx2.get(self.url + path, headers=headers, timeout=20)

    def post(self, path: str, form: dict[str, str], **headers: str) -> httpx2.Response:
        """As a page of ours would send it, but for `headers`."""
        return httpx2.post(self.url + path, data=form, headers={"origin": self.url, **headers}, timeout=20)

    def form_token(self) -> str:
        job_id = self.jobs["scheduled"]
        return self.get(f"/job?id={job_id}").text.split('name="form_token" value="')[1].split('"')[0]


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    with short_directory() as base, _after_one_that_died(base / "d") as daemon:
        args = ["worker", "jqd.worker.demo", "--daemon", daemon.url, "--name", "demo"]
        with (
            Process(args, base / "worker.log") as worker,
            UiProcess(base / "ui.log", "--url", daemon.url) as ui,
            Client(daemon.url) as client,
        ):
            daemon.wait_worker("echo")
            site = Site(ui.url, daemon.url, _some_jobs(client))
            _some_settings(client)
            yield site
            assert ui.stop() == 0
            assert (base / "ui.log").read_text() == ""
            worker.stop()
        assert daemon.stop() == 0


def _after_one_that_died(data_dir: Path) -> Daemon:
    """Start a daemon where one was killed: its page says so for a day."""
    with Daemon(data_dir) as died:
        wait_for(lambda: any(row["through"] for row in died.get("/v1/daemons").json()["daemons"]), "it has its seat")
        died.kill()
    return Daemon(data_dir)


def _some_jobs(client: Client) -> dict[str, str]:
    """Push some, and wait until they have come where they are to be."""
    jobs = {
        "succeeded": client.push("echo", {"said": NASTY}, keep_result=True, tags=[NASTY]),
        "failed": client.push("fail", NASTY, max_retry=0),
        "scheduled": client.push("echo", [1, 2**60], delay="1d"),
        "waiting": client.push(NASTY, {"a": 1}, tags=["slow"], group=NASTY_GROUP),
        "odd": client.push("echo", b"\x00\xff", job_id="../a/b?c=d&e#f\"'<i>%2F", delay="1d"),
    }
    jobs["blocked"] = client.push("echo", None, after=[jobs["scheduled"]])
    client.wait([jobs["succeeded"], jobs["failed"]], timeout=60)
    for state in ("scheduled", "waiting", "odd", "blocked"):
        ingested(client, jobs[state])
    return jobs


def _some_settings(client: Client) -> None:
    """Name what pages show beside jobs as a person may, and have a job wait for it."""
    job = {"name": "echo", "argument": NASTY, "tags": [NASTY.replace(" ", "_")], "max_retry": 3}
    client.set_schedule(ODD, job, cron="0 3 1 1 *", tz="Europe/Berlin")
    client.set_handler(ODD, "http://127.0.0.1:9/'%3Ci%3E&amp;", {"max_jobs": 2})
    client.set_constraint(ODD, 'job.name == "echo" && "held" in job.tags', pause=True, key="job.tags[0]")
    ingested(client, client.push("echo", 1, tags=["held"], job_id="held"))


@dataclass
class Guarded:
    """A UI in front of a daemon that asks for tokens."""

    url: str
    master: Client
    ui: UiProcess
    daemon: Daemon
    browsers: list[httpx2.Client] = field(default_factory=list)

    def log_in(self, token: str, onward: str = "/") -> httpx2.Client:
        """A browser that has sent the form of the login."""
        browser = httpx2.Client(base_url=self.url, headers={"origin": self.url}, timeout=20)
        self.browsers.append(browser)
        self.answer = browser.post("/login", data={"token": token, "next": onward})
        return browser

    def client(self, token: str) -> Client:
        return Client(self.daemon.url, token=token)


@pytest.fixture(scope="package")
def guarded() -> Iterator[Guarded]:
    with short_directory() as base:
        env = {"JQD_RUNNER__ALLOW_CODE": "true", "JQD_HTTP__TOKENS": "required", "JQD_API__MASTER_KEY": "m" * 32}
        with (
            Daemon(base / "d", env=env) as daemon,
            Client(daemon.url, token="m" * 32) as master,
            UiProcess(base / "ui.log", "--url", daemon.url) as ui,
        ):
            guarded = Guarded(ui.url, master, ui, daemon)
            yield guarded
            for browser in guarded.browsers:
                browser.close()
            assert ui.stop() == 0
            daemon.stop()


@dataclass
class Poisoned:
    """The guarded UI with jobs and workers that mean harm, and a browser that may look at all of it."""

    guarded: Guarded
    browser: httpx2.Client
    token: str
    jobs: dict[str, str]

    def pages(self) -> list[str]:
        """The addresses of all pages there are, with what harms in each of their filters, and for each job."""
        rules = create_app(UiConfig(urls=[NOBODY])).app.url_map.iter_rules()
        paths = sorted({rule.rule for rule in rules if "GET" in (rule.methods or ()) and "<" not in rule.rule})
        found = []
        for path in paths:
            evil = quote(nasty.EVIL, safe="")
            asked = ["", *(f"id={quote(job_id, safe='')}" for job_id in self.jobs.values())]
            asked += [f"{name}={evil}" for name in FILTERS]
            asked += ["&".join(f"{name}={evil}" for name in TOGETHER)]
            asked += [f"state=failed&name={evil}", f"act=delete&state=failed&name={evil}&before=2100-01-01T00:00:00Z"]
            asked += [f"id={quote(self.jobs['scheduled'], safe='')}&act=cancel"]
            found += [f"{path}?{query}".rstrip("?") for query in asked if path != "/live"]
        return found


FILTERS = ("state", "act", "cursor", "before", "id")
"""What pages take in their addresses, and may refuse."""
TOGETHER = (
    "name",
    "tag",
    "error",
    "reason",
    "tenant",
    "done",
    "why",
    "next",
    "prefix",
    "who",
    "token",
    "daemon",
    "key",
)
"""What they look for."""
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="package")
def poisoned(guarded: Guarded) -> Iterator[Poisoned]:
    token = guarded.master.create_token("operator", note=nasty.EVIL)["token"]
    env = {"JQD_TOKEN": guarded.master.create_token("worker")["token"]}
    args = ["worker", "tests.webui.nasty", "--daemon", guarded.daemon.url, "--name", "nasty"]
    with (
        Process(args, guarded.ui.log.with_name("nasty.log"), env) as worker,
        guarded.client(token) as client,
    ):
        jobs = nasty.fill(client)
        nasty.register(guarded.daemon.url, "m" * 32)
        yield Poisoned(guarded, guarded.log_in(token), token, jobs)
        worker.stop()


@pytest.fixture(scope="package")
def chromium() -> Iterator[Chromium]:
    path = found()
    if path is None:
        pytest.skip("there is no Chromium on this machine: install `chromium`")
    browser = Chromium(path)
    yield browser
    browser.close()


Push = Callable[..., str]


@pytest.fixture
def push(site: Site) -> Iterator[Push]:
    """Pushes a job of a test's own; answers its id once it is in the store."""
    with Client(site.daemon) as client:

        def one(name: str, argument: object = None, *, ended: bool = False, **options: object) -> str:
            job_id = client.push(name, argument, **options)  # type: ignore[arg-type]
            if ended:
                client.wait([job_id], timeout=60)
            else:
                ingested(client, job_id)
            return job_id

        yield one
