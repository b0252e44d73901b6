"""Lists of jobs and of errors: what they ask, and what they print."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from jqd.cli import run
from jqd.domain.visible import quoted
from tests.cli.scripted import JOB, Script, out, script

__all__ = ["script"]


def test_jobs_are_listed_a_line_each(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {**JOB, "state": "waiting", "finished_at": None, "message": None}
    script.on("GET", "/v1/jobs", 200, {"jobs": [JOB, waiting], "cursor": ""})
    assert run(["jobs", "--state", "failed", "--name", "mail", "--tag", "red", "--limit", "7"]) == 0
    heading, first, second = out(capsys).splitlines()
    assert heading.split() == ["ID", "STATE", "AT", "(UTC)", "ATTEMPTS", "NAME", "MESSAGE"]
    assert re.sub(r" {2,}", "|", re.sub(r"in \d+ d( \d+ h)?", "-", first)) == (
        "order/7|failed|2027-01-15 08:00:09|-|3|mail|ValueError: no such address"
    )
    assert re.sub(r" {2,}", "|", re.sub(r"in \d+ d( \d+ h)?", "-", second)) == (
        "order/7|waiting|2027-01-15 08:00:00|-|3|mail"
    )
    assert script.asked == [("GET", "/v1/jobs", {"state": "failed", "name": "mail", "tag": "red", "limit": "7"})]


def test_of_a_stack_the_line_with_the_error_is_listed(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    stack = "TypeError: x is not a function\n    at f (a.js:1:2)\n    at process.processTicksAndRejections (node:95:5)"
    script.on("GET", "/v1/jobs", 200, {"jobs": [{**JOB, "message": stack}], "cursor": ""})
    assert run(["jobs"]) == 0
    assert out(capsys).splitlines()[1].endswith("TypeError: x is not a function")


def test_jobs_are_asked_for_by_error_and_age(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/jobs", 200, {"jobs": [JOB], "cursor": ""})
    assert run(["jobs", "--error", "address", "--newer", "2h", "--older", "1h", "-o", "jsonl"]) == 0
    ((_, _, asked),) = script.asked
    assert asked["error"] == "address"
    assert float(asked["before"]) - float(asked["since"]) == pytest.approx(3_600, abs=5)
    assert "argument" not in json.loads(out(capsys)), "a list does not tell it"


def test_lines_of_jobs_are_printed_as_they_come_before_an_error(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.on("GET", "/v1/jobs", 200, {"jobs": [JOB], "cursor": "next"})
    script.on("GET", "/v1/jobs", 500, {"detail": "a part of the store is away"})
    assert run(["jobs", "--limit", "1000", "-o", "jsonl"]) == 1
    told = capsys.readouterr()
    assert [json.loads(line)["job_id"] for line in told.out.splitlines()] == [JOB["job_id"]]
    assert "a part of the store is away" in told.err


def test_errors_are_told_with_what_to_do(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "mail", "error": "it's \x1b[2J", "count": 2, "since": "2027-01-15T08:00:00.000Z", "job_id": "a b"}
    other = {**row, "error": "y", "count": 3, "latest": "2027-01-16T08:00:00.000Z"}
    script.on("GET", "/v1/errors", 200, {"errors": [{**row, "latest": row["since"]}], "others": 0, "cursor": "next"})
    script.on("GET", "/v1/errors", 200, {"errors": [other, {**other, **row}], "others": 9, "cursor": ""})
    assert run(["errors", "--name", "mail"]) == 0
    told = capsys.readouterr()
    text = told.out.strip()
    assert "9 more jobs, with rarer errors" in told.err
    assert text.index("4 × mail: it's \\x1b[2J") < text.index("3 × mail: y")
    assert "\n  2027-01-15 08:00:00 to 2027-01-16 08:00:00 UTC\n  example  jqd get 'a b'\n" in text
    assert "  retry    jqd retry --all --name=mail --error-is=y\n" in text
    assert "--error-is=$'it\\'s \\x1b[2J'" in text
    assert "  delete   jqd delete --all --name=mail --error-is=y --dry-run" in text
    assert [asked.get("cursor") for _, _, asked in script.asked] == [None, "next"]


def test_an_error_that_no_command_can_name_is_named_by_its_pattern(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "mail", "error": "no \0 here", "pattern": "no … here", "count": 2, "job_id": "a"}
    dates = {"since": "2027-01-15T08:00:00.000Z", "latest": "2027-01-15T08:00:00.000Z"}
    script.on("GET", "/v1/errors", 200, {"errors": [row | dates], "others": 0, "cursor": ""})
    assert run(["errors"]) == 0
    assert "  retry    jqd retry --all --name=mail --error-like='no … here'\n" in out(capsys)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_list_that_takes_several_answers_says_on_a_terminal_how_far_it_looked(
    script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    script.on("GET", "/v1/jobs", 200, {"jobs": [], "cursor": "a", "looked": 7_000, "of": 9_000})
    script.on("GET", "/v1/jobs", 200, {"jobs": [], "cursor": "b", "looked": 1_500, "of": 9_000})
    script.on("GET", "/v1/jobs", 200, {"jobs": [JOB], "cursor": ""})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert run(["jobs", "--tag", "rare"]) == 0
    told = capsys.readouterr()
    assert JOB["job_id"] in told.out
    assert ("looked at 7000 of 9000 jobs\r" in told.err, "looked at 8500 of 9000" in told.err) == (is_terminal,) * 2
    assert told.err.endswith("\x1b[2K\r" if is_terminal else "")


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_a_reason_that_several_answers_tell_is_one(
    script: Script, capsys: pytest.CaptureFixture[str], is_newest_first: bool
) -> None:
    early = {"name": "mail", "pattern": "no user \u2026", "count": 2, "since": "2027-01-14T08:00:00.000Z"}
    early |= {"error": "no user 7", "latest": "2027-01-15T08:00:00.000Z", "job_id": "old", "last_hour": 0}
    early["texts"] = [{"error": "no user 7", "count": 1}, {"error": "no user 6", "count": 1}]
    late = {**early, "error": "no user 9", "count": 3, "latest": "2027-01-16T08:00:00.000Z", "job_id": "new"}
    late |= {"since": "2027-01-15T08:00:00.000Z", "last_hour": 1, "texts": [{"error": "no user 6", "count": 3}]}
    found = [late, early] if is_newest_first else [early, late]
    script.on("GET", "/v1/errors", 200, {"errors": found[:1], "others": 0, "cursor": "next"})
    script.on("GET", "/v1/errors", 200, {"errors": found[1:], "others": 0, "cursor": ""})
    assert run(["errors", "-o", "json"]) == 0
    (row,) = json.loads(out(capsys))
    texts = [{"error": "no user 6", "count": 4}, {"error": "no user 7", "count": 1}]
    assert row == {**late, "count": 5, "since": early["since"], "texts": texts}


def test_errors_of_tenants_are_told_apart_and_their_commands_reach_no_other(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "mail", "error": "y", "count": 2, "since": None, "latest": None, "job_id": "a"}
    rows = [{**row, "tenant": "acme"}, {**row, "count": 1}]
    script.on("GET", "/v1/errors", 200, {"errors": rows, "others": 0, "cursor": ""})
    assert run(["errors"]) == 0
    ours, theirs = (text for text in out(capsys).split("1 × mail: y"))
    assert "2 × mail of tenant acme: y" in ours
    assert "  example  jqd get --tenant=acme a\n" in ours
    assert "  retry    jqd retry --all --tenant=acme --name=mail --error-is=y\n" in ours
    assert "  delete   jqd delete --all --tenant='' --name=mail --error-is=y --dry-run" in theirs


def test_what_is_printed_to_be_copied_means_the_same_to_a_shell() -> None:
    odd = ["plain", "it's $HOME `x` \\", "a\x1b[2J\t'q'\\n", "\u202eback\x9b \u00e9 \U0001f600", "-x", "*", "", "e\n2"]
    told = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {' '.join(map(quoted, odd))}"], capture_output=True, check=True, timeout=10
    )
    assert told.stdout.decode().split("\0")[:-1] == odd
    assert all(quoted(text).isprintable() for text in odd), "it does nothing to the terminal it is shown in"


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_jobs_are_listed_for_programs(output: str, script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/jobs", 200, {"jobs": [JOB], "cursor": ""})
    assert run(["jobs", "-o", output]) == 0
    text = out(capsys)
    (job,) = json.loads(text) if output == "json" else [json.loads(line) for line in text.splitlines()]
    assert (job["job_id"], job["id"], job["attempts"]) == ("order/7", JOB["id"], 3)


def test_no_job_is_no_line(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/jobs", 200, {"jobs": [], "cursor": ""})
    assert run(["jobs"]) == 0
    assert out(capsys) == ""


def test_whether_a_daemon_lives_is_not_known_while_the_store_is_away(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"daemon": name, "living": lives} for name, lives in (("d1", True), ("d2", None), ("d3", False))]
    script.on("GET", "/v1/daemons", 200, {"daemons": rows})
    assert run(["daemons"]) == 0
    lines = [line.split() for line in out(capsys).splitlines()[1:4]]
    assert [line[1:-3] for line in lines] == [["yes"], ["not", "known"], ["no"]]


@pytest.mark.parametrize(
    ("command", "row"),
    [("types", {"name": "mail", "waiting": 3, "handler": None}), ("daemons", {"daemon": "d1", "this": True})],
)
def test_rows_are_shown(command: str, row: dict[str, Any], script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", f"/v1/{command}", 200, {command: [row]})
    assert run([command, "-o", "json"]) == 0
    assert json.loads(out(capsys)) == [row]
    assert run([command]) == 0
    assert next(iter(row.values())) in out(capsys)


def test_an_id_that_begins_as_an_option_does_is_none_in_a_printed_command(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "--url=x", "error": "-y", "count": 1, "since": None, "latest": None, "job_id": "--url=127.0.0.1:9"}
    script.on("GET", "/v1/errors", 200, {"errors": [row], "others": 0, "cursor": ""})
    assert run(["errors"]) == 0
    told = out(capsys)
    assert "  example  jqd get -- --url=127.0.0.1:9" in told
    assert "  retry    jqd retry --all --name=--url=x --error-is=-y" in told
