"""Commands over many jobs: what they ask, what they print, how they end."""

import json
import re
from typing import Any

import pytest

from jqd.cli import run
from jqd.client import Client
from tests.cli.scripted import JOB, Script, out, script

__all__ = ["script"]

ABSENT = "http://127.0.0.1:9"  # the discard port: nothing listens there


# ------------------------------------------------------------ one after another


@pytest.mark.parametrize("command", ["retry", "run-now"])
def test_a_job_is_acted_on_by_its_own_id(command: str, script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("POST", f"/v1/jobs/order%2F7/{command}", 200, {**JOB, "state": "waiting"})
    assert run([command, "order/7", "-o", "json"]) == 0
    assert json.loads(out(capsys)) == {"job_id": "order/7", command.replace("-", "_"): "waiting"}


def test_a_job_is_deleted(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("DELETE", "/v1/jobs/a", 204)
    assert run(["delete", "a", "-o", "json"]) == 0
    assert json.loads(out(capsys)) == {"job_id": "a", "delete": "deleted"}
    assert script.asked == [("DELETE", "/v1/jobs/a", {"purge": "1"})]


def test_of_several_the_bad_ones_stop_none(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    refused = [
        {"job_id": "b", "status": 404, "detail": "there is no such job"},
        {"job_id": "a", "status": 409, "detail": "job a is running"},
    ]
    script.on("POST", "/v1/jobs/retry", 200, {"matched": 1, "changed": 1, "cursor": "", "refused": refused})
    script.on("POST", "/v1/jobs/retry", 200, {"matched": 1, "changed": 1, "cursor": "", "refused": refused[1:]})
    assert run(["retry", "a", "b", "c", "-o", "jsonl"]) == 3
    rows = [json.loads(line) for line in out(capsys).splitlines()]
    assert [row["job_id"] for row in rows] == ["a", "b", "c"]
    assert [row["retry"] for row in rows] == ["job a is running", "there is no such job", "waiting"]
    assert run(["retry", "a", "c"]) == 1
    assert [body for _, _, body in script.asked] == [{"job_ids": ["a", "b", "c"]}, {"job_ids": ["a", "c"]}]


def test_a_job_is_mended_and_tried_anew(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("POST", "/v1/jobs/a/retry", 200, {**JOB, "state": "scheduled"})
    assert run(["retry", "a", "--argument", '{"to": "ann"}', "--priority", "-2", "--in", "1m", "-o", "json"]) == 0
    assert script.asked == [("POST", "/v1/jobs/a/retry", {"argument": {"to": "ann"}, "priority": -2, "delay": 60.0})]
    assert json.loads(out(capsys))["retry"] == "scheduled"


@pytest.mark.parametrize(("what", "told"), [("delete", "delete for good"), ("retry", "retry")])
def test_doing_it_to_all_that_failed_is_asked_about(
    what: str, told: str, script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = "2026-01-31T12:00:00Z"
    script.on("POST", f"/v1/jobs/{what}", 200, {"matched": 7, "changed": 0, "cursor": "", "at": at})
    words = [what, "--all", "--name", "mail", "-o", "json"]
    assert run(words) == 2
    assert f"this would {told} 7 jobs; say so with --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in (("n\n", 2), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        assert run(words) == code
    assert run([*words, "--yes"]) == run([*words, "--dry-run"]) == 0
    wanted = {"state": "failed", "name": "mail"}
    counted = {**wanted, "dry_run": True}
    bound = {**wanted, "before": at, "matched_max": 7}
    assert [body for _, _, body in script.asked] == [counted, counted, counted, bound, wanted, counted]


def test_workers_are_forgotten(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("DELETE", "/v1/workers/mail%403", 409, {"detail": "it is a version of a handler"})
    script.on("DELETE", "/v1/workers/w1", 204)
    assert run(["-o", "json", "workers", "rm", "w1"]) == 0
    assert json.loads(out(capsys)) == {"worker_id": "w1", "rm": "forgotten"}
    assert run(["workers", "rm", "mail@3", "w1"]) == 1
    assert run(["workers", "rm", "none"]) == 3


def test_jobtypes_are_paused_and_resumed(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mail", "a%2Fb"):
        for call in ("pause", "resume"):
            script.on("POST", f"/v1/types/{name}/{call}", 200, {"name": name, "paused_at": None, "note": f"odd {call}"})
    assert run(["types", "pause", "mail"]) == run(["-o", "json", "types", "resume", "mail", "a/b"]) == 0
    told, said = capsys.readouterr()
    assert said == "jqd: odd pause\njqd: odd resume\njqd: odd resume\n"
    assert told.startswith("name   mail\npause  paused\n")
    assert '{ "name": "a/b", "resume": "resumed" }' in " ".join(told.split())
    assert run(["types", "pause"]) == run(["types", "pause", "--all", "mail"]) == 2
    assert run(["types", "pause", "mail", "--reason", "smtp is down"]) == 0
    assert script.asked[-1] == ("POST", "/v1/types/mail/pause", {"reason": "smtp is down"})
    assert run(["types", "pause", "--all", "--reason", "x"]) == 2, "a tenant's pause has none"
    capsys.readouterr()
    at = "2030-01-01T00:00:00.000Z"
    script.on("POST", "/v1/types/pause", 200, {"tenant": "acme", "paused_at": at, "by": "T1", "note": None})
    script.on("POST", "/v1/types/resume", 200, {"tenant": "", "paused_at": None, "by": None, "note": "odd"})
    assert run(["types", "pause", "--all", "--tenant", "acme"]) == run(["types", "resume", "--all"]) == 0
    told, said = capsys.readouterr()
    assert told == f"all jobs of tenant 'acme': paused since {at}\nall jobs without a tenant: resumed\n"
    assert said == "jqd: odd\n"


@pytest.mark.parametrize(("status", "code"), [(404, 3), (409, 1)])
def test_a_single_bad_one_is_an_error(
    status: int, code: int, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.on("POST", "/v1/jobs/a/run-now", status, {"detail": "no"})
    assert run(["run-now", "a"]) == code
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"jqd: no ({status})\n")


def test_several_are_cancelled(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    for job_id, status in (("a", 204), ("b", 202), ("c", 409)):
        script.on("DELETE", f"/v1/jobs/{job_id}", status, {"detail": "it has ended"})
    assert run(["cancel", "a", "b", "-o", "jsonl"]) == 0
    assert [json.loads(line)["cancel"] for line in out(capsys).splitlines()] == ["cancelled", "recorded"]
    assert run(["cancel", "c", "-o", "json"]) == 1
    assert json.loads(out(capsys)) == {"job_id": "c", "cancel": "too late"}


@pytest.mark.parametrize(
    ("words", "path", "told"),
    [
        (["jobs", "--name", "mial"], "jobs", "no job is of that kind"),
        (["types"], "types", "there are no jobs"),
        (["workers"], "workers", "no worker is registered"),
    ],
)
def test_an_empty_list_says_so_to_people(
    words: list[str], path: str, told: str, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.on("GET", f"/v1/{path}", 200, {path: [], "cursor": ""})
    assert run(words) == run([*words, "-o", "jsonl"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.count(told)) == ("", 1)


def test_workers_are_listed_with_what_they_run(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"worker_id": "8f14", "name": "mailer", "url": "http://127.0.0.1:8000/", "jobs": ["mail"], "max_jobs": 8}
    script.on("GET", "/v1/workers", 200, {"workers": [row]})
    assert run(["workers", "-o", "json"]) == 0
    assert json.loads(out(capsys)) == [row]


def test_how_workers_are_stands_first_for_people(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"worker_id": "8f14", "name": "mailer", "url": "http://127.0.0.1:8000/", "jobs": ["mail"], "max_jobs": 8}
    ill = {**row, "state": "unreachable", "why": "cannot be reached since …: ECONNREFUSED", "in_flight": 3}
    pulls = {
        **row,
        "name": "pull.sh",
        "url": None,
        "jobs": list("abcdef"),
        "state": "ok",
        "last_seen_at": "2027-01-15T08:00:00Z",
    }
    script.on("GET", "/v1/workers", 200, {"workers": [ill, {**pulls, "in_flight": None}]})
    assert run(["workers"]) == 0
    heading, first, second = out(capsys).splitlines()
    assert heading.split() == ["ID", "NAME", "STATE", "TAKES", "RUNNING", "LAST", "SEEN", "URL", "WHY"]
    assert re.search(r"mailer +unreachable +mail +3/8 +http://127.0.0.1:8000/ +cannot be reached since …: ECONN", first)
    assert re.search(r"pull.sh +ok +a,b,c,d and 2 more +up to 8 +.* pulls", second)


def test_whoever_waits_hears_what_for(
    script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.cli.jobs.SILENT_S", 0)
    script.on("POST", "/v1/jobs", 201, {"job_id": "a", "ack": "fsync"})
    for more in ({"state": "waiting"}, {"state": "succeeded"}):
        script.on("GET", "/v1/jobs/a", 200, {**JOB, "job_id": "a", "message": None, **more})
    assert run(["push", "mail", "--tag", "red", "--tag", "blue", "--delay", "1s", "--wait", "-o", "json"]) == 0
    (pushed, *_) = script.asked
    assert (pushed[2]["tags"], pushed[2]["delay"]) == (["red", "blue"], 1.0)
    told = capsys.readouterr()
    assert json.loads(told.out)["state"] == "succeeded"
    assert "job a is waiting, not begun by any worker; `jqd why a` says what keeps it" in told.err


# ------------------------------------------------------------ many at once


@pytest.mark.parametrize(
    ("words", "path", "asked"),
    [
        (["retry", "--all", "--yes"], "retry", {"state": "failed"}),
        (
            ["retry", "--all", "--state", "cancelled", "--tag", "x", "--yes"],
            "retry",
            {"state": "cancelled", "tag": "x"},
        ),
        (["cancel", "--all", "--name", "mail", "--dry-run"], "cancel", {"name": "mail", "dry_run": True}),
        (
            ["cancel", "--all", "--error-is=-x", "--search", "4711", "--yes"],
            "cancel",
            {"error_is": "-x", "search": "4711"},
        ),
    ],
)
def test_all_of_a_kind_are_changed_piece_by_piece(
    words: list[str], path: str, asked: dict[str, Any], script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.on("POST", f"/v1/jobs/{path}", 200, {"matched": 10_000, "changed": 9_999, "cursor": "next"})
    script.on("POST", f"/v1/jobs/{path}", 200, {"matched": 5, "changed": 5, "cursor": ""})
    assert run([*words, "-o", "json"]) == 0
    assert json.loads(out(capsys)) == {"matched": 10_005, "changed": 10_004}
    assert [body for _, _, body in script.asked] == [asked, {**asked, "cursor": "next"}]


def test_what_is_old_is_cleaned_away(
    script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script.on("POST", "/v1/jobs/clean", 200, {"matched": 4, "changed": 4, "cursor": ""})
    given: list[Any] = []
    real = Client.clean

    def noted(client: Client, age: Any, **more: Any) -> Any:
        given.append(age)
        return real(client, age, **more)

    monkeypatch.setattr(Client, "clean", noted)
    assert run(["clean", "--older", "7d", "-o", "json"]) == 0
    assert json.loads(out(capsys)) == {"matched": 4, "changed": 4}
    assert given[0].days == 7
    (asked,) = script.asked
    assert asked[2].keys() == {"before"}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["retry"], "which jobs?"),
        (["cancel", "--name", "mail"], "--name goes with --all"),
        (["cancel", "a", "--all"], "name jobs, or give --all: not both"),
        (["retry", "a", "--state", "failed"], "name jobs, or give --all --state: not both"),
        (["run-now"], "which jobs?"),
        (["delete"], "which jobs?"),
        (["delete", ""], "empty"),
        (["delete", "--all", "--state", "waiting"], "only jobs that have ended are deleted"),
        (["retry", "a", "b", "--argument", "1"], "--argument is about one job; name it"),
        (["jobs", "--newer", "7"], "--newer 7 has no unit"),
        (["jobs", "--watch", "-o", "json"], "take -o jsonl"),
        (["top"], "top draws on a terminal"),
        (["workers", "rm"], "which workers?"),
        (["clean", "--older", "soon"], "--older soon is no duration"),
        (["clean", "--older", "7"], "--older 7 has no unit: 7d is days, 7h hours, 7m minutes, 7s seconds"),
        (["cancel", "--all"], "all of which? Give --state, --name, --tag or --error"),
        (["cancel", "--all", "--state", "failed"], "--state failed: it has ended"),
        (["retry", "--all", "--state", "waiting"], "--state waiting: only failed and cancelled"),
        (["jobs", "--limit", "0"], "--limit 0: list one job or more"),
    ],
)
def test_what_cannot_be_meant_is_said(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--url", ABSENT]) == 2
    told = capsys.readouterr()
    assert part in told.err
    assert told.out == ""


def test_a_daemon_that_is_away_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "--url", ABSENT]) == 4
    assert "no daemon answers" in capsys.readouterr().err


ROLES = "jqd: `jqd tokens create ROLE` makes one that may, with a master's token (docs/operate/SECURITY.md,"


@pytest.mark.parametrize(
    ("status", "code", "detail", "advice"),
    [
        (503, 4, "because", "jqd: `jqd status` says what is wrong, and what goes on meanwhile\n"),
        (503, 4, "job 'a' is being changed by somebody else; try again", ""),
        (401, 1, "because", "jqd: a token is taken from --token, JQD_TOKEN or the file that JQD_TOKEN_FILE names\n"),
        (403, 1, "this token is of the role viewer; the call is for operator", ROLES),
        (403, 1, "this token is for mail; not for jobs 'b'", ROLES),
        (403, 1, "JQD-Tenant: this token is of the tenant 'a' and speaks for no other; leave it out", ""),
        (403, 1, "this tenant was paused by who runs this jqd, and is resumed there", ""),
        (413, 1, "because", ""),
    ],
)
@pytest.mark.parametrize(
    ("words", "method", "path"),
    [
        (["daemons"], "GET", "/v1/daemons"),
        (["jobs"], "GET", "/v1/jobs"),
        (["errors"], "GET", "/v1/errors"),
        (["push", "mail"], "POST", "/v1/jobs"),
        (["workers"], "GET", "/v1/workers"),
        (["types"], "GET", "/v1/types"),
    ],
)
def test_what_to_do_about_a_refusal_is_said(
    script: Script,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    method: str,
    path: str,
    status: int,
    code: int,
    detail: str,
    advice: str,
) -> None:
    script.on(method, path, status, {"detail": detail})
    assert run(words) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"jqd: {detail} ({status})\n{advice}")
    assert len(told.err.splitlines()) == (2 if advice else 1)
