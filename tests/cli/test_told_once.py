"""What people read of a job: each thing once. Programs get all of it."""

import json
from typing import Any

import pytest

from jqd.cli import run
from tests.cli.scripted import JOB, Script
from tests.cli.scripted import script as script  # the fixture

LONG = "no such address " * 20
TRACE = f"Traceback (most recent call last):\n  …\nValueError: {LONG}"


def attempt(number: int, said: str) -> dict[str, Any]:
    return {"attempt": number, "status": 500, "error": f"ValueError: {said}", "message": said and TRACE}


def test_a_long_error_stands_there_once(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    history = [attempt(1, LONG), {**attempt(2, "x"), "message": "x"}, attempt(3, LONG)]
    script.on("GET", "/v1/jobs/a", 200, {**JOB, "error": f"ValueError: {LONG}", "message": TRACE, "history": history})
    assert run(["get", "a"]) == 0
    told = capsys.readouterr().out
    assert told.count(LONG.strip()) == 2, "of the job, and of the attempt before: of the last one it is the job's"
    assert "ValueError: x" in told, "another error stays"
    assert "attempt 3  status 500\n" in told
    assert run(["get", "a", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["history"][2] == attempt(3, LONG)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        (b"\xff", '{"$bytes": "/w=="}'),
        ({"raw": b"\xff"}, '{"raw": {"$bytes": "/w=="}}'),
        (float("nan"), '{"$msgpack": "y3/4AAAAAAAA"}'),
        ({1: 2}, '{"$msgpack": "gQEC"}'),
    ],
)
def test_people_read_a_value_in_the_form_that_pushes_it_again(
    argument: object, shown: str, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was converted twice: with the form that was printed, a job pushed again got the form and not the value."""
    script.on("GET", "/v1/jobs/a", 200, {**JOB, "argument": argument, "result": argument})
    assert run(["get", "a"]) == 0
    told = capsys.readouterr().out
    assert f"argument     {shown}\n" in told, told
    assert f"result       {shown}\n" in told, told


def test_of_a_job_that_runs_again_the_attempt_says_how_it_ended(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = "NO_HEARTBEAT: nothing was heard for 15 s of the worker that held this job"
    lost = {"attempt": 1, "status": 504, "reason": "timeout", "error": None, "message": silent}
    script.on("GET", "/v1/jobs/a", 200, {**JOB, "state": "running", "message": silent, "history": [lost]})
    assert run(["get", "a"]) == 0
    told = capsys.readouterr().out
    assert told.count(silent) == 1
    assert f"attempt 1  status 504  reason timeout  message {silent}\n" in told


@pytest.mark.parametrize(("words", "code"), [([], 0), (["--token", "wrong"], 2)])
def test_status_needs_no_token_for_what_everybody_may_know(
    words: list[str], code: int, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    """So the image's health check works where tokens are required. A token that is wrong is said."""
    script.on("GET", "/readyz", 200, {"push": {"ready": True}, "run": {"ready": True}, "warnings": []})
    for path in ("stats", "types", "workers"):
        script.on("GET", f"/v1/{path}", 401, {"detail": "a token is needed"})
    assert (run(["status", *words, "-o", "json"]) == 0) is (code == 0)
    told = capsys.readouterr()
    if code == 0:
        assert json.loads(told.out)["ready"] is True
    else:
        assert "a token is needed" in told.err
