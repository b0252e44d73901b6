"""Forms whose faults stand at the field and at the character: by hand, and at a real daemon by plain HTTP."""

import html
import re
from urllib.parse import urlencode

import httpx2
import pytest
from markupsafe import escape

from jqd.client import Client, Invalid, ItemError
from jqd.webui.forms import faults_of, number_of, seconds_of
from tests.directories import short_directory
from tests.live.harness import Daemon
from tests.webui.conftest import NASTY, ODD, Site, UiProcess


@pytest.mark.parametrize(
    ("text", "detail", "line", "column"),
    [
        ("job.nme == 1", "no field, at character 5", "job.nme == 1", 4),
        ("a &&\n\tb ||", "Syntax error, at character 11", " b ||", 5),
        ("*/5 * * 99 *", "character 9 of '*/5 * * 99 *'", "*/5 * * 99 *", 8),
        ("x" * 200 + "!", "at character 201", "x" * 60 + "!", 60),
        ("a", "at character 99", "a", 1),
    ],
)
def test_a_caret_stands_below_the_character(text: str, detail: str, line: str, column: int) -> None:
    error = Invalid("", status=422, errors=[ItemError(detail, pointer="/match")])
    fault = faults_of(error, {"/match": "match"}, {"match": text})["match"]
    assert fault.line == line
    assert fault.caret == " " * column + "^"


def test_faults_of_one_field_stand_together_and_those_of_none_above_the_form() -> None:
    errors = [ItemError("one", pointer="/a"), ItemError("two", pointer="/a"), ItemError("three", pointer="/z")]
    faults = faults_of(Invalid("", status=422, errors=errors), {"/a": "a"}, {})
    assert faults["a"].text == "one; two"
    assert faults[""].text == "three"
    assert faults_of(Invalid("odd", status=422), {}, {})[""].text == "odd"


def test_what_is_no_number_is_left_to_the_api() -> None:
    assert [number_of(each) for each in ("7", "-1", "0.5", "x", "1e9", "9" * 30)] == [7, -1, 0.5, "x", "1e9", "9" * 30]
    assert [seconds_of(each) for each in ("90", "5m", "soon", "nan")] == [90, 300, "soon", "nan"]


def marked(page: str) -> tuple[str, str]:
    """The line of the first fault, and the caret below it."""
    found = re.search(r'<pre class="caret"[^>]*>(.*?)\n(.*?)</pre>', page, re.DOTALL)
    assert found is not None, page
    return html.unescape(found[1]), found[2]


def test_a_constraint_is_tried_set_changed_and_deleted(site: Site) -> None:
    name = f"mine {ODD}"
    form = {"form_token": site.form_token(), "name": name, "match": 'job.name == "nobody" &&\r\n job.nme == 1'}
    form |= {"limit": "0", "per": "1m", "key": "job.argument.", "on_error": "hold", "pause": "no"}
    assert 'id="fault-limit"' in site.post("/constraint/set", form).text
    answer = site.post("/constraint/set", form | {"limit": "5"})
    assert answer.status_code == 422
    assert marked(answer.text) == (" job.nme == 1", " " * 5 + "^")
    assert 'id="fault-key"' in answer.text
    assert str(escape(name)) in answer.text

    form |= {"match": 'job.name == "echo" && "held" in job.tags', "limit": "7", "key": ""}
    tried = site.post("/constraint/set", form | {"trial": "1"})
    assert tried.status_code == 200
    assert "Nothing is set yet" in tried.text
    with Client(site.daemon) as client:
        assert name not in [row["name"] for row in client.constraints()]
        assert site.post("/constraint/set", form).status_code == 303
        assert site.post("/constraint/set", form).status_code == 409, "a new one does not replace another"
        assert client.constraint(name)["rate"] == {"limit": 7, "per_s": 60.0, "burst": 0}
        changed = {"known": "1", "limit": "", "concurrency": "3", "pause": "until", "until": "2100-01-01T00:00:00Z"}
        assert site.post("/constraint/set", form | changed).status_code == 303
        row = client.constraint(name)
        assert (row["rate"], row["concurrency"], row["paused"]) == (None, 3, True)
        assert site.post("/constraint/set", form | changed | {"until": "soon"}).status_code == 422
        assert site.post("/constraint/delete", {**form, "name": name}).headers["location"] == "/constraints?done=delete"
        assert name not in [row["name"] for row in client.constraints()]
    assert site.post("/constraint/set", form | {"name": ""}).status_code == 422
    assert site.post("/constraint/delete", {**form, "name": NASTY}).status_code == 404
    assert site.get("/constraint?name=nobody").status_code == 404


def test_over_several_partitions_the_editor_says_what_a_constraint_lets_through() -> None:
    with (
        short_directory() as base,
        Daemon(base / "d", env={"JQD_STORE__PARTITIONS": "2"}) as daemon,
        UiProcess(base / "ui.log", "--url", daemon.url) as ui,
    ):
        site = Site(ui.url, daemon.url)
        token = site.get("/constraint").text.split('name="form_token" value="')[1].split('"')[0]
        form = {"form_token": token, "name": "few", "match": "true", "concurrency": "3", "pause": "no"}
        refused = site.post("/constraint/set", form | {"exact": "yes"})
        assert (refused.status_code, 'id="fault-exact"' in refused.text) == (422, True)
        assert "constraints set --exact --concurrency=3 few true" in refused.text
        together = "partitions counts by itself: together up to 2 times as much"
        assert together in site.post("/constraint/set", form | {"trial": "1"}).text
        assert site.post("/constraint/set", form).status_code == 303
        assert together in site.get("/constraint?name=few").text


def test_a_schedule_is_made_changed_run_paused_and_deleted(site: Site) -> None:
    name = f"mine {ODD}"
    form = {
        "form_token": site.form_token(),
        "name": name,
        "jobtype": "echo",
        "argument": '{"a": "<i>"}',
        "tags": "x y\nz",
    }
    form |= {"cron": "0 3 * 99 *", "tz": "UTC", "missed": "skip", "overlap": "queue", "jitter": "5m"}
    answer = site.post("/schedule/set", form)
    assert answer.status_code == 422
    assert marked(answer.text) == ("0 3 * 99 *", " " * 6 + "^")
    assert str(escape('{"a": "<i>"}')) in answer.text, "what was typed is not lost"
    for field, said in (("tz", "Nowhere"), ("every", "soon"), ("argument", "[1,"), ("jobtype", ""), ("until", "soon")):
        wrong = site.post("/schedule/set", form | {"cron": "0 3 * * *", field: said})
        assert wrong.status_code == 422
        assert f'id="fault-{field}"' in wrong.text, field
    assert site.post("/schedule/set", form | {"name": ""}).status_code == 422

    form |= {"cron": "0 3 1 1 *"}
    with Client(site.daemon) as client:
        assert site.post("/schedule/set", form).status_code == 303
        assert site.post("/schedule/set", form).status_code == 409, "a new one does not replace another"
        row = client.schedule(name)
        assert (row["job"]["argument"], row["job"]["tags"], row["jitter"]) == ({"a": "<i>"}, ["x y", "z"], 300)
        changed = {"known": "1", "cron": "", "every": "2h", "argument": "1"}
        assert site.post("/schedule/set", form | changed).headers["location"].endswith("done=set")
        assert (client.schedule(name)["every"], client.schedule(name)["job"]["argument"]) == (7200, 1)
        for act, done in (("run", "apart from its dates"), ("pause", "until it is resumed"), ("resume", "from now on")):
            answer = site.post(f"/schedule/{act}", form)
            assert done in site.get(answer.headers["location"]).text
            assert bool(client.schedule(name)["paused_at"]) is (act == "pause")
        assert "Leave it as it is" in site.get("/schedule/confirm?" + urlencode({"name": name})).text
        assert site.post("/schedule/delete", form).headers["location"] == "/schedules?done=delete"
        assert name not in [row["name"] for row in client.schedules()]
    assert site.post("/schedule/run", form).status_code == 404


def test_options_that_no_form_has_are_left_alone(site: Site) -> None:
    with Client(site.daemon) as client:
        before = client.schedule(ODD)
        form = {"form_token": site.form_token(), "known": "1", "name": ODD, "jobtype": "echo", "cron": before["cron"]}
        form |= {"tz": before["tz"], "missed": before["missed"], "overlap": before["overlap"], "tags": ""}
        wrong = site.post("/schedule/set", form | {"cron": "never"})
        assert "stays as it is" in wrong.text
        assert site.post("/schedule/set", form).status_code == 303
        after = client.schedule(ODD)
    assert after["job"] == before["job"] | {"tags": []}, "its argument was not sent: it was too long for the page"


def faults_on(page: str) -> set[str]:
    return set(re.findall(r'id="fault-([a-z_]+)"', page))


def test_all_fields_that_are_wrong_are_marked_at_once(site: Site) -> None:
    schedule = {"jobtype": "", "argument": "[1,", "tags": "fine " + "x" * 200, "cron": "0 3 * 99 *", "tz": "Nowhere"}
    schedule |= {"every": "soon", "jitter": "late", "until": "never", "missed": "once", "overlap": "queue"}
    constraint = {"match": "job.nme == 1", "limit": "many", "per": "often", "burst": "more", "concurrency": "x"}
    constraint |= {"until": "never", "key": "job.argument.", "cost": "1 +", "on_error": "hold", "pause": "until"}
    for kind, said, path in (("schedule", schedule, "/v1/schedules"), ("constraint", constraint, "/v1/constraints")):
        token = {"form_token": site.form_token()}
        answer = site.post(f"/{kind}/set", {**token, "name": "", **said})
        assert answer.status_code == 422
        assert faults_on(answer.text) == {"name", *said} - {"missed", "overlap", "on_error", "pause"}
        assert "unread" not in answer.text
        rows = httpx2.get(site.daemon + path, timeout=20).json()[path.rpartition("/")[2]]
        assert [row["name"] for row in rows if row["name"] in ("", "…")] == []


@pytest.mark.parametrize("field", ["name", "argument"])
def test_what_the_page_itself_finds_wrong_sets_nothing(site: Site, field: str) -> None:
    said = {"name": "half wrong", "jobtype": "echo", "argument": "1", "every": "2h", "missed": "once"}
    said |= {"overlap": "queue", "form_token": site.form_token(), field: "" if field == "name" else "[1,"}
    answer = site.post("/schedule/set", said)
    assert (answer.status_code, faults_on(answer.text)) == (422, {field})
    with Client(site.daemon) as client:
        assert not {"half wrong", "…"} & {row["name"] for row in client.schedules()}


def test_what_a_form_does_not_send_is_said_and_not_passed_over(site: Site) -> None:
    said = {"name": "passed over", "match": "true", "concurrency": "1", "per": "1s", "on_error": "hold"}
    said |= {"form_token": site.form_token(), "pause": "no", "until": "2100-01-01T00:00:00Z", "burst": "3"}
    answer = site.post("/constraint/set", said)
    assert (answer.status_code, faults_on(answer.text)) == (422, {"until", "limit"})


def fields_of(page: str) -> dict[str, str]:
    """All that the form of an editor sends as it came."""
    (body,) = re.findall(r'<form method="post" action="/(?:schedule|constraint)/set".*?</form>', page, re.DOTALL)
    found = dict(re.findall(r'<input [^>]*name="([^"]*)" value="([^"]*)"', body))
    found |= re.findall(r'<textarea name="([^"]*)"[^>]*>\n(.*?)</textarea>', body, re.DOTALL)
    for name, options in re.findall(r'<select name="([^"]*)".*?>(.*?)</select>', body, re.DOTALL):
        found[name] = re.findall(r"<option selected>([^<]*)", options)[0]
    return {name: html.unescape(given) for name, given in found.items()}


def test_an_editor_that_is_sent_as_it_came_changes_nothing(site: Site) -> None:
    job = {"name": "echo", "argument": {"a": "<b>"}, "tags": ["a b", "c"], "priority": 3, "timeout": 77}
    with Client(site.daemon) as client:
        client.set_schedule("as it came", job, every=3600, jitter=60)
        client.set_constraint("as it came", "false", rate={"limit": 3, "per_s": 90}, key="job.name", on_error="pass")
        for what, look in (("schedule", client.schedule), ("constraint", client.constraint)):
            before = look("as it came")
            page = site.get(f"/{what}?name=as%20it%20came")
            assert f"GET /v1/{what}s/as%20it%20came" in page.text, "not a command that would set it anew"
            assert site.post(f"/{what}/set", fields_of(page.text)).status_code == 303
            after = look("as it came")
            assert after["revision"] > before["revision"]
            changing = dict.fromkeys(("revision", "changed_at", "next"))
            assert after | changing == before | changing
        client.delete_schedule("as it came")
        client.delete_constraint("as it came")


@pytest.mark.parametrize("what", ["schedule", "constraint"])
def test_who_edits_what_somebody_else_changed_meanwhile_is_told(site: Site, what: str) -> None:
    with Client(site.daemon) as client:
        client.set_schedule("race", {"name": "echo"}, every=3600)
        client.set_constraint("race", "false", concurrency=1)
        page = site.get(f"/{what}?name=race").text
        first, second = fields_of(page), fields_of(page)
        first |= {"jobtype": "other", "concurrency": "5"}
        second |= {"every": "7200", "limit": "7"}
        assert site.post(f"/{what}/set", first).status_code == 303
        refused = site.post(f"/{what}/set", second)
        assert refused.status_code == 409
        assert f"{what} &#39;race&#39; was changed at" in refused.text
        assert 'value="7' in refused.text, "what was typed is not lost"
        assert f'<a href="/{what}?name=race">As it is now</a>' in refused.text
        assert client.schedule("race")["every"] == 3600
        assert client.constraint("race")["rate"] is None
        seen = fields_of(site.get(f"/{what}?name=race").text)
        client.delete_schedule("race")
        client.delete_constraint("race")
        refused = site.post(f"/{what}/set", seen)
        assert (refused.status_code, "is not there any more" in refused.text) == (409, True)
        new = {name: given for name, given in seen.items() if name != "known"} | {"revision": "0"}
        assert site.post(f"/{what}/set", new).status_code == 303
        path = f"{site.daemon}/v1/{what}s/race?revision=0"
        body = {"every": 5, "job": {"name": "x"}} if what == "schedule" else {"match": "false", "concurrency": 1}
        there = httpx2.put(path, json=body)
        assert (there.status_code, "is there already" in there.text) == (409, True)
        client.delete_schedule("race") if what == "schedule" else client.delete_constraint("race")


def test_an_argument_that_is_too_long_is_refused_beside_the_form(site: Site) -> None:
    form = {"form_token": site.form_token(), "name": "long", "jobtype": "echo", "every": "1h", "tags": ""}
    refused = site.post("/schedule/set", form | {"argument": f'"{"x" * 1_100_000}"'})
    assert refused.status_code in (413, 422)
    assert 'action="/schedule/set"' in refused.text
