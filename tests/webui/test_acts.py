"""Every act of the UI, by clicks in a real Chromium: on a phone in the dark with scripts, in light without any."""

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, Route, expect

from jqd.client import Client
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from jqd.webui.values import link
from tests.live.harness import ingested
from tests.webui.chromium import PHONE, Chromium, faults
from tests.webui.conftest import NOBODY, Guarded, Site

TYPE = "act <b>"  # nobody takes its jobs
TAG = "acts"  # of jobs that are cancelled at the end, whatever became of the act
MANY = 2_100  # more than one call looks at where it searches texts: some 2,000


class Made:
    """Makes what an act is done to; each method answers the address of its page."""

    _numbers = count()

    def __init__(self, client: Client, *, scripts: bool) -> None:
        self.client, self.scripts = client, scripts
        self.name = f"act {next(self._numbers)} <i>"

    def job(self, jobtype: str = TYPE, *, state: str = "scheduled") -> str:
        delay = None if state == "failed" else "1d"
        job_id = self.client.push(jobtype, 1, delay=delay, max_retry=0)
        ingested(self.client, job_id)
        if state == "cancelled":
            self.client.cancel(job_id)
            self.client.get(job_id, wait=20)
        elif state == "failed":
            self.client.wait([job_id], timeout=60)
        return link("/job", id=job_id)

    def flow(self) -> str:
        first = self.client.push(TYPE, 1, delay="1d")
        ingested(self.client, self.client.push(TYPE, 2, after=[first]))
        return link("/flow", id=first)

    def failed_flow(self) -> str:
        first = self.client.push("fail", 1, max_retry=0, group=self.name)
        second = self.client.push(TYPE, 2, after=[first])
        self.client.wait([first, second], timeout=60)
        return link("/flow", id=first)

    def group(self) -> str:
        for _ in range(2):
            ingested(self.client, self.client.push(TYPE, 1, delay="1d", group=self.name))
        return link("/group", name=self.name)

    def failed_group(self) -> str:
        self.failed_flow()
        return link("/group", name=self.name)

    def many(self) -> str:
        ids = self.client.push_many([{"name": self.name, "delay": "1d", "tags": [TAG]} for _ in range(MANY)])
        for job_id in (ids[0], ids[-1]):
            ingested(self.client, job_id)
        which = {"name": self.name, "search": self.name, "before": "2100-01-01T00:00:00Z"}
        return link("/bulk", act="cancel", state="scheduled", **which)

    def schedule(self, *, is_paused: bool = False) -> str:
        self.client.set_schedule(self.name, {"name": TYPE}, every=7_200)
        if is_paused:
            self.client.pause_schedule(self.name)
        return link("/schedule", name=self.name)

    def constraint(self) -> str:
        self.client.set_constraint(self.name, f"job.name == '{self.name}'", concurrency=1)
        return link("/constraint", name=self.name)

    def type(self, *, is_paused: bool = False) -> str:
        self.job(self.name)
        if is_paused:
            self.client.pause_type(self.name)
        return link("/type", name=self.name)

    def tenants(self, *, is_paused: bool = False) -> str:
        self.job()
        if is_paused:
            self.client.pause_all()
        return "/tenants"

    def daemons(self, *, is_drained: bool = False) -> str:
        if is_drained:
            self.client.drain()
        return "/daemons"

    def worker(self) -> str:
        said = {"name": self.name, "url": "http://127.0.0.1:9/", "jobs": ["nobody-pushes-this"], "max_jobs": 1}
        worker_id = self.client.ask("/v1/workers", method="POST", body=said)["worker_id"]
        return link("/worker/confirm", id=worker_id)

    def handler(self) -> str:
        self.client.set_handler(self.name, "http://127.0.0.1:9/", {})
        return link("/handler", name=self.name)

    def token(self) -> str:
        made = self.client.create_token("viewer", note=self.name)
        return link("/token/confirm", id=made["token_id"])

    def new(self, path: str) -> str:
        return path


Drive = Callable[[Page, Made], None]


class Act(NamedTuple):
    begin: Callable[[Made], str]
    """Makes what it is done to; answers the address of the page with its button."""
    drive: Drive
    said: str = ".done"
    """What the page then has."""


def click(*labels: str) -> Drive:
    """Click one button after the other, each on the page that the one before led to. A * stands for more."""

    def drive(page: Page, made: Made) -> None:
        for label in labels:
            name = re.compile("^" + re.escape(label).replace(r"\*", ".*") + "$")
            page.get_by_role("button", name=name).first.click()

    return drive


def fill(button: str, **fields: str) -> Drive:
    """Type into the fields that begin with these labels (`_` for a space), then click."""

    def drive(page: Page, made: Made) -> None:
        for label, text in fields.items():
            found = page.get_by_label(re.compile("^" + label.replace("_", " ")))
            found.and_(page.locator("input, textarea")).fill(text.format(name=made.name))
        click(button)(page, made)

    return drive


def mend(page: Page, made: Made) -> None:
    page.get_by_text("Mend the argument and retry").click()
    fill("Retry with this argument", Argument="2")(page, made)


def count_on(page: Page, made: Made) -> None:
    """Each answer has looked at some; on a busy machine at few."""
    again(page, "Go on counting")


def again(page: Page, label: str) -> None:
    """Without scripts: press this as long as there is one."""
    more = page.get_by_role("button", name=label, exact=True)
    while more.count():
        with page.expect_navigation():
            more.click()


def stop_early(page: Page, made: Made) -> None:
    """The second piece is held up until it was stopped."""
    pieces = 0

    def hold(route: Route) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 1:
            route.continue_()

    page.route("**/bulk/piece", hold)
    if not made.scripts:
        count_on(page, made)
    click("Cancel these *", "Stop")(page, made)
    page.unroute("**/bulk/piece")


def go_on(page: Page, made: Made) -> None:
    """With scripts it counts and goes on by itself."""
    if made.scripts:
        click("Cancel these *")(page, made)
    else:
        click("Cancel all, without counting them")(page, made)
        again(page, "Go on")


def unregister(page: Page, made: Made) -> None:
    page.goto(page.url.partition("/worker/")[0] + "/workers")
    row = page.locator("tr", has_text=made.name).filter(has=page.get_by_role("button")).first
    while not row.count():  # what pages share may be a second old, and this one does not renew itself without scripts
        page.reload()
    row.get_by_role("button", name="Unregister").click()
    click("Unregister")(page, made)


ACTS = {
    "/job/cancel": Act(Made.job, click("Cancel …", "Cancel")),
    "/job/delete": Act(lambda made: made.job(state="cancelled"), click("Delete …", "Delete")),
    "/job/retry": Act(lambda made: made.job(state="cancelled"), click("Retry")),
    "/job/run-now": Act(Made.job, click("Run now")),
    "/job/priority": Act(Made.job, fill("Change", Priority="7")),
    "/job/mend": Act(lambda made: made.job("fail", state="failed"), mend),
    "/flow/cancel": Act(Made.flow, click("Cancel …", "Cancel these 2")),
    "/flow/retry": Act(Made.failed_flow, click("Retry …", "Retry th*")),
    "/group/close": Act(Made.group, click("Close …", "Close")),
    "/group/cancel": Act(Made.group, click("Cancel …", "Cancel these 2")),
    "/group/retry": Act(Made.failed_group, click("Retry …", "Retry th*")),
    "/bulk/count": Act(Made.many, count_on, "#bulk button:text('Cancel these')"),
    "/bulk/stop": Act(Made.many, stop_early, "#bulk button:text('Go on')"),
    "/bulk/piece": Act(Made.many, go_on),
    "/schedule/set": Act(lambda made: made.new("/schedule"), fill("Set", Name="{name}", Jobtype="echo", Or_every="2h")),
    "/schedule/run": Act(Made.schedule, click("Run now")),
    "/schedule/pause": Act(Made.schedule, click("Pause")),
    "/schedule/resume": Act(lambda made: made.schedule(is_paused=True), click("Resume")),
    "/schedule/delete": Act(Made.schedule, click("Delete …", "Delete")),
    "/constraint/set": Act(
        lambda made: made.new("/constraint"),
        fill("Set", Name="{name}", Jobs_that_it_limits="job.name == 'x'", So_many_may_run="3"),
    ),
    "/constraint/delete": Act(Made.constraint, click("Delete …", "Delete")),
    "/type/pause": Act(Made.type, fill("Pause", Reason="why not")),
    "/type/resume": Act(lambda made: made.type(is_paused=True), click("Resume")),
    "/tenants/pause": Act(Made.tenants, click("Pause")),
    "/tenants/resume": Act(lambda made: made.tenants(is_paused=True), click("Resume")),
    "/daemons/drain": Act(Made.daemons, click("Drain")),
    "/daemons/resume": Act(lambda made: made.daemons(is_drained=True), click("Resume")),
    "/worker/unregister": Act(Made.worker, unregister),
    "/token/create": Act(lambda made: made.new("/token"), fill("Create", Note="{name}", Ends_after="1h")),
    "/token/revoke": Act(Made.token, click("Revoke")),
    "/handler/delete": Act(Made.handler, click("Delete …", "Delete")),
}
"""By the path of its form."""
GUARDED = {"/login", "/logout"}
"""Those of a UI where people log in."""


def test_every_act_has_a_row_here() -> None:
    rules = create_app(UiConfig(urls=[NOBODY])).app.url_map.iter_rules()
    assert {rule.rule for rule in rules if "POST" in (rule.methods or ())} == set(ACTS) | GUARDED


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with Client(site.daemon) as client:
        yield client
        client.resume_all()  # where an act failed half-way
        client.resume_daemon()
        client.cancel_many(name=TYPE)
        client.cancel_many(tag=TAG)


def drive(url: str, path: str, act: Act, page: Page, made: Made) -> None:
    """Raises AssertionError unless the form was sent, and the page then says what it should, to everybody: with scripts
    axe looks at it."""
    posted: list[str] = []
    page.on("request", lambda asked: posted.append(asked.url) if asked.method == "POST" else None)
    page.goto(url + act.begin(made))
    act.drive(page, made)
    expect(page.locator(act.said).first, path).to_be_visible()
    assert url + path in posted, path
    assert not made.scripts or faults(page) == [], path


OFTEN = ("job",)  # acted out with each change: nearly each kind of form
WITHOUT = pytest.param(False, id="no_scripts", marks=pytest.mark.long)  # test_forms.py sends forms with each change


@pytest.mark.parametrize("scripts", [pytest.param(True, id="scripts"), WITHOUT])
@pytest.mark.parametrize(
    "room",
    [
        pytest.param(room, marks=[pytest.mark.long] * (room not in OFTEN))
        for room in sorted({path.split("/")[1] for path in ACTS})
    ],
)
def test_acts_do_what_they_say(site: Site, chromium: Chromium, client: Client, room: str, scripts: bool) -> None:
    def look(page: Page) -> None:
        if scripts:
            page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        for path, act in ACTS.items():
            if path.startswith(f"/{room}/") and not (scripts and path == "/bulk/count"):  # it goes on by itself
                drive(site.url, path, act, page, Made(client, scripts=scripts))

    chromium.run(look, strict=scripts, color_scheme="dark" if scripts else "light", java_script_enabled=scripts)


@pytest.mark.parametrize("scripts", [pytest.param(True, id="scripts"), WITHOUT])
def test_who_logs_in_and_out(guarded: Guarded, chromium: Chromium, scripts: bool) -> None:
    token = guarded.master.create_token("viewer")["token"]

    def look(page: Page) -> None:
        made = Made(guarded.master, scripts=scripts)
        drive(guarded.url, "/login", Act(lambda made: "/", fill("Log in", Token=token), ".me"), page, made)
        drive(guarded.url, "/logout", Act(lambda made: "/", click("Log out"), "form.login"), page, made)

    chromium.run(look, strict=scripts, java_script_enabled=scripts)
