"""Commands about constraints, at a daemon whose answers are written down."""

import json
from typing import Any

import pytest

from jqd.cli import run
from jqd.cli.app import app
from tests.cli.scripted import Script, script

__all__ = ["script"]

ROW: dict[str, Any] = {
    "name": "slow",
    "match": "true",
    "rate": {"limit": 10, "per_s": 60.0, "burst": 5},
    "concurrency": 3,
    "paused": True,
    "paused_until": None,
    "cost": None,
    "key": "job.argument.customer",
    "on_error": "hold",
    "changed_at": "2026-01-01T00:00:00.000Z",
    "failed": 2,
    "error": "no such key",
}
PATH = "/v1/constraints/slow"


def test_a_constraint_is_set_shown_listed_and_deleted(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("PUT", PATH, 201, ROW)
    script.on("GET", PATH, 200, ROW)
    script.on(
        "GET",
        "/v1/constraints",
        200,
        {"constraints": [ROW, {**ROW, "name": "b", "tenant": "acme", "rate": None, "paused": False}]},
    )
    script.on("DELETE", PATH, 204)
    words = ["constraints", "set", "slow", "true", "--rate", "10/m", "--burst", "5", "--pause", "ever"]
    assert run([*words, "--key", "job.argument.customer"]) == 0
    rate = {"limit": 10, "per_s": 60, "burst": 5}
    said = {"match": "true", "rate": rate, "pause": True, "key": "job.argument.customer"}
    assert script.asked == [("PUT", PATH, said)]
    assert "rate          10 in 1 min, 5 more at once\n" in (told := capsys.readouterr().out)
    assert "paused        true\n" in told
    assert run(["constraints", "get", "slow"]) == run(["constraints"]) == run(["constraints", "ls"]) == 0
    told = capsys.readouterr().out
    assert "10 in 1 min, 5 more at once; 3 at once; paused" in told
    assert [line.split()[:2] for line in told.splitlines() if line[:2] in ("NA", "b ")][:2] == [
        ["NAME", "TENANT"],
        ["b", "acme"],
    ]
    assert "no such key" in told
    assert run(["constraints", "rm", "slow"]) == 0
    assert run(["-o", "json", "constraints", "get", "slow"]) == 0


def test_a_trial_asks_and_says_nothing(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"looked_at": 5, "matched": 3, "failed": 1, "error": "no such key", "keys": 1, "delayed": 3}
    told["warning"] = "it may meet jobs in 2 partitions"
    nothing = {"looked_at": 0, "matched": 0, "failed": 0, "error": None, "keys": 0, "delayed": 0, "warning": None}
    script.on("PUT", PATH, 200, told)
    script.on("PUT", PATH, 200, nothing)
    words = ["constraints", "dry-run", "slow", "true", "--concurrency", "1"]
    assert run(words) == 0
    ((method, path, said),) = script.asked
    assert (method, path, said["match"]) == ("PUT", PATH, "true")
    shown = capsys.readouterr()
    assert shown.out == "slow matches 3 of 5 waiting jobs under 1 key; 3 would not start at once\n"
    assert shown.err == "jqd: it could not be asked of 1 job: no such key\njqd: it may meet jobs in 2 partitions\n"
    assert run(words) == run(["-o", "json", *words]) == 0
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == "slow matches 0 of 0 waiting jobs; 0 would not start at once"
    assert json.loads(rest) == nothing


def test_words_that_mean_nothing_are_refused() -> None:
    for wrong in (["--rate", "10"], ["--rate", "x/s"], ["--burst", "3"], ["--rate", "1/day"]):
        assert run(["constraints", "set", "slow", "true", *wrong]) == 2


GIVEN = {
    "--rate": "10/m",
    "--burst": "5",
    "--concurrency": "3",
    "--pause": "2030-01-31T12:00:00Z",
    "--key": "job.argument.customer",
    "--cost": "job.argument.pages",
    "--on-error": "pass",
}


def options(command: str) -> set[str]:
    """Of a command of this group, by what the parser knows."""
    return {name for each in app["constraints"][command].assemble_argument_collection() for name in each.names}


def test_a_trial_takes_each_option_of_set(script: Script) -> None:
    """Which is what docs/use/SCHEDULING.md says. It took neither --pause nor --on-error."""
    trial = {"looked_at": 0, "matched": 0, "failed": 0, "error": None, "keys": 0, "delayed": 0, "warning": None}
    script.on("PUT", PATH, 201, ROW)
    script.on("PUT", PATH, 200, trial)
    assert options("set") - options("dry-run") == {"--dry-run"}
    assert options("dry-run") <= options("set")
    of_all = {"*", "--output", "-o", "--url", "--token", "--tenant"}
    assert options("dry-run") - of_all == {*GIVEN, "--exact", "NAME", "MATCH"}, "each is given below"
    words = ["slow", "true", "--exact", *(word for pair in GIVEN.items() for word in pair)]
    assert run(["constraints", "set", *words]) == run(["constraints", "dry-run", *words]) == 0
    said, tried = (told for _, _, told in script.asked)
    assert tried == said
    assert said["rate"]["burst"] == 5
    assert {name for name, value in said.items() if value is not None} == {
        *("match", "rate", "concurrency", "pause", "key", "cost", "on_error", "exact")
    }
