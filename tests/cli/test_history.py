"""`jqd history` and `jqd tenants`, drawn from written answers and asked of a real daemon."""

import json
from typing import Any

import pytest

from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.cli.history import COLUMNS, spark, squeezed
from tests.cli.scripted import Script, script

__all__ = ["script"]

ZERO = dict.fromkeys(("pushed", "started", "succeeded", "failed", "dead", "retried", "cancelled"), 0)
BOUNDS = {"wait_bounds": [0.1, 1.0], "run_bounds": [0.1, 1.0]}


def step(minute: int, **more: Any) -> dict[str, Any]:
    return {"at": f"2027-01-15T08:{minute:02}:00.000Z", **ZERO, "wait": [0, 0, 0], "run": [0, 0, 0], **more}


def told(**more: Any) -> dict[str, Any]:
    steps = [step(0), step(1, pushed=8, wait=[6, 2, 0], run=[0, 1, 7]), step(2, pushed=1_000, failed=1, dead=2)]
    return {"step_minutes": 1, "since": None, "steps": steps, **BOUNDS, "types": [], "unread": 0, **more}


def test_bars_show_little_as_little_and_nothing_as_nothing() -> None:
    assert spark([0, 1, 50, 100]) == "·▁▅█"
    assert spark([0, 0]) == "··"
    assert spark([]) == ""
    assert sum(squeezed(range(480))) == sum(range(480))
    assert len(squeezed([1] * 480)) == COLUMNS


def test_what_happened_stands_in_a_line_each(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/history", 200, told(since="2027-01-15T08:01:00.000Z", unread=2))
    assert run(["history", "mail", "--last", "30m"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "since 2027-01-15 08:00 UTC, 1 min a bar; nothing is known from before 2027-01-15 08:01; 2 rows of a later "
        "release are left out",
        "pushed    1,008  ·▁█",
        "started       0  ···",
        "succeeded     0  ···",
        "retried       0  ···",
        "failed        3  ··█",
        "cancelled     0  ···",
        "8 first attempts waited: 50% within 0.1 s, 95% within 1 s",
        "8 attempts ran: 50% above 1 s, 95% above 1 s",
    ]
    assert script.asked[0][2] == {"name": "mail", "minutes": "30"}


def test_each_jobtype_has_a_line(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    types = [
        {"name": f"t{n}", "pushed": [0, 0, n], "started": [0, 0, 0], "ended": [0, 1, 2], "failed": [0, 0, n % 2]}
        for n in range(40, 2, -1)
    ]
    script.on("GET", "/v1/history", 200, told(types=[*types[:1], {**types[1], "name": "", "tenant": "a"}, *types[2:]]))
    assert run(["history", "--types"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["NAME", "TENANT", "PUSHED", "ENDED", "FAILED", "ENDED"]
    assert lines[2].split() == ["t40", "40", "3", "0", "·▅█"]
    assert lines[3].split() == ["(others)", "a", "39", "3", "1", "·▅█"]
    assert lines[-1] == "and 8 more, of which there were fewer: -o json has them"


@pytest.mark.parametrize(("last", "says"), [("30s", "a minute is the least"), ("60", "has no unit")])
def test_a_span_that_cannot_be_meant(last: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["history", "--last", last]) == Exit.USAGE
    assert says in capsys.readouterr().err


def test_tenants_are_listed_with_what_holds_them_up(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    states = dict.fromkeys(("scheduled", "running", "retrying", "succeeded", "failed", "cancelled", "blocked"), 0)
    calm = {"tenant": "", "types": 2, "waiting": 3, **states, "oldest_at": None, "quota": None}
    calm |= {"put_off": 0, "paused_types": 0, "paused_at": None}
    held = {**calm, "tenant": "acme", "quota": {"rate": 5.0, "dead": 100}, "put_off": 4, "paused_types": 1}
    held |= {"paused_at": "2027-01-15T08:00:00.000Z", "oldest_at": "2027-01-15T08:00:00.000Z"}
    script.on("GET", "/v1/tenants", 200, {"tenants": [calm, held], "cursor": ""})
    assert run(["tenants"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["(none)", "2", "3"]
    assert "rate 5, dead 100  paused since 2027-01-15T08:00:00.000Z; 1 types paused; followers of 4 parents" in second


def test_a_daemon_tells_both(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["push", "echo", "1", "--wait", "--url", url]) == 0
    capsys.readouterr()
    assert run(["tenants", "--url", url]) == 0
    assert "(none)" in capsys.readouterr().out
    assert run(["history", "--url", url]) == 0
    assert "pushed" in capsys.readouterr().out
    assert run(["history", "--last", "2d", "--types", "-o", "json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out)["step_minutes"] == 10
