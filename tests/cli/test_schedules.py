"""Commands about schedules, at a daemon whose answers are written down."""

import json
import re
from typing import Any

import pytest

from jqd.cli import run
from tests.cli.scripted import Script, script

__all__ = ["script"]

ROW: dict[str, Any] = {
    "name": "nightly",
    "cron": "30 2 * * *",
    "every": None,
    "tz": "Europe/Berlin",
    "job": {"name": "report", "argument": None, "tags": []},
    "next": ["2099-03-29T01:00:00.000Z", "2099-03-30T00:30:00.000Z"],
    "last": None,
    "paused_at": None,
    "waits": None,
}
PATH = "/v1/schedules/nightly"


def test_set_sends_what_was_given_and_shows_the_next_dates(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("PUT", PATH, 201, ROW)
    words = ["schedules", "set", "nightly", "report", '{"kind": "daily"}', "--cron", "30 2 * * *"]
    assert run([*words, "--tz", "Europe/Berlin", "--jitter", "5m", "--missed", "all", "--timeout", "2h"]) == 0
    job = {"name": "report", "argument": {"kind": "daily"}, "timeout": 7_200}
    said = {"job": job, "cron": "30 2 * * *", "tz": "Europe/Berlin", "jitter": 300, "missed": "all"}
    assert script.asked == [("PUT", PATH, said)]
    assert capsys.readouterr().out.startswith("2099-03-29T01:00:00.000Z  in ")


def test_a_schedule_is_listed_paused_run_and_deleted(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    paused = {**ROW, "name": "other", "every": 90.0, "cron": None, "next": [], "paused_at": "2026-01-01T00:00:00.000Z"}
    late = {**ROW, "waits": "its last job has not ended", "last": {"date": "2020-01-01T00:00:00.000Z"}}
    for page in ({"schedules": [late], "cursor": "nightly"}, {"schedules": [paused], "cursor": ""}):
        script.on("GET", "/v1/schedules", 200, page)
    assert run(["schedules"]) == 0
    assert [asked.get("cursor") for _, _, asked in script.asked] == [None, "nightly"]
    told = capsys.readouterr().out
    assert run(["schedules", "ls"]) == 0
    assert re.split(" {2,}", told.splitlines()[1])[1:4] == ["30 2 * * *", "Europe/Berlin", "report"]
    assert "its last job has not ended" in told
    assert "every 1 min 30 s" in told
    script.on("POST", f"{PATH}/pause", 200, {**paused, "name": "nightly"})
    assert run(["schedules", "pause", "nightly"]) == 0
    told = capsys.readouterr().err
    assert "jqd: nightly is paused since 2026" in told
    assert "; `jqd schedules resume nightly` goes on" in told
    script.on("POST", f"{PATH}/resume", 200, ROW)
    script.on("GET", PATH, 200, late)
    assert run(["schedules", "resume", "nightly"]) == run(["schedules", "next", "nightly"]) == 0
    assert "nightly waits: its last job has not ended" in capsys.readouterr().err
    script.on("GET", "/v1/schedules/over", 200, {**ROW, "name": "over", "next": []})
    assert run(["schedules", "next", "over"]) == 0
    assert capsys.readouterr() == ("", "jqd: over has no date to come\n")
    script.on("POST", f"{PATH}/run-now", 201, {"job_id": "a"})
    assert run(["schedules", "run", "nightly"]) == run(["-o", "json", "schedules", "run-now", "nightly"]) == 0
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert (first, json.loads(rest)) == ("a", {"job_id": "a"})
    script.on("DELETE", PATH, 204)
    assert run(["schedules", "rm", "nightly"]) == 0
    assert run(["schedules", "rm", "none"]) == 3


def test_what_is_wrong_ends_with_its_reason(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("PUT", PATH, 422, {"detail": "character 1 of 'x': no", "errors": [{"pointer": "/cron", "detail": "no"}]})
    assert run(["schedules", "set", "nightly", "report", "--cron", "x * * * *"]) != 0
    assert "character 1 of 'x'" in capsys.readouterr().err
    for wrong in ([], ["--cron", "0 0 * * *", "--every", "5m"], ["--every", "soon"]):
        assert run(["schedules", "set", "nightly", "report", *wrong]) == 2
