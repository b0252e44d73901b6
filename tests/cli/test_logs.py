"""`jqd logs`: what a job printed, and what it prints."""

import json

import pytest

from jqd.cli import run
from jqd.client import Client, JobEvent
from tests.cli.scripted import Script
from tests.cli.scripted import script as script  # the fixture

EVENTS = [
    JobEvent("state", {"state": "running", "attempts": 1, "message": None}),
    JobEvent("progress", {"done": 0.25, "message": "on it", "at": None}),
    JobEvent("log", {"lines": ["one\x1b[2J", "two"], "start": 9, "dropped": 9}),
    JobEvent("state", {"state": "failed", "attempts": 1, "message": "no"}),
    JobEvent("end", {"reason": "ended", "state": "failed", "reconnect": False}),
]


def test_the_log_of_a_job(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/jobs/a/log", 200, {"job_id": "a", "log": "one\ntwo"})
    assert run(["logs", "a"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert run(["logs", "a", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job_id": "a", "log": "one\ntwo"}


def test_of_a_job_that_printed_nothing_that_is_said(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/jobs/a/log", 200, {"job_id": "a", "log": ""})
    assert run(["logs", "a"]) == 0
    assert capsys.readouterr() == ("", "jqd: nothing is kept that job a printed\n")


def test_followed_its_end_is_the_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = list(EVENTS)
    monkeypatch.setattr(Client, "events", lambda *_: iter(told))
    assert run(["logs", "a", "-f"]) == 1
    out, err = capsys.readouterr()
    assert out == "one\\x1b[2J\ntwo\n"
    assert err.splitlines() == [
        "jqd: running, attempt 1",
        "jqd: 25% on it",
        "jqd: 9 bytes before this are not kept",
        "jqd: failed, attempt 1: no",
        "jqd: ended: failed",
    ]
    assert run(["logs", "a", "--follow", "-o", "jsonl"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["event"] for row in rows] == [event.kind for event in EVENTS]
    told[-1] = JobEvent("end", {"reason": "deleted", "reconnect": False})
    assert run(["logs", "a", "-f"]) == 3
