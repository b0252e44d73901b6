"""Commands about jobs that have to do with others, at a real daemon."""

import json
from typing import Any

import pytest

from jqd.cli import run
from jqd.cli.common import Common
from jqd.cli.flows import tally
from jqd.client import Changed, Client, FlowJob
from jqd.client.flows import depths_of
from tests.live.harness import wait_for

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def _at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JQD_URL", url)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    ended, told = run(words), capsys.readouterr()
    assert ended == code, (words, told.err)
    return told.out if code == 0 else told.err


def pushed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return said(capsys, "push", *words).strip()


def listed(capsys: pytest.CaptureFixture[str], job_id: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(said(capsys, "flow", job_id, "-o", "json"))["jobs"]
    return jobs


def test_a_job_is_pushed_with_what_follows_it(capsys: pytest.CaptureFixture[str], url: str) -> None:
    job = '{"name": "echo", "argument": {"by": "then"}, "result_into": "sum"}'
    first = pushed(capsys, "add", "[1, 2]", "--then", "echo", "--then", job)
    with Client(url) as client:
        wait_for(lambda: len(client.flow(first).jobs) == 3, "both follow")
        found = [client.get(f"{first}.{place}", wait=WAIT_S).argument for place in range(2)]
    assert found == [3, {"by": "then", "sum": 3}]
    for text in ("{no", '["echo"]'):
        assert f"--then {text} is no job" in said(capsys, "push", "add", "[]", "--then", text, code=2)


def test_a_job_waits_for_others_and_its_flow_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (pushed(capsys, "add", f"[{n}]", "--keep-result", "--in", "1h") for n in (1, 2))
    child = pushed(capsys, "add", "--after", one, "--after", two, "--keep-result")
    last = pushed(capsys, "echo", "--after", child, "--one-result", "--keep-result")
    lines = said(capsys, "flow", two).splitlines()
    assert lines[0].split() == ["STEP", "ID", "STATE", "ATTEMPTS", "NAME", "AFTER", "WAITS", "FOR"]
    assert {tuple(line.split()[:2]) for line in lines[1:3]} == {("1", one), ("1", two)}
    assert lines[3].split() == ["2", child, "blocked", "0", "add", one, two, one, two]
    assert lines[4].split() == ["3", last, "blocked", "0", "echo", child, child]
    assert {job["job_id"]: job["state"] for job in listed(capsys, one)}[last] == "blocked"
    assert said(capsys, "run-now", one, two)
    assert said(capsys, "get", last, "--wait", "30s", "--result").strip() == "3"
    assert "there is no" in said(capsys, "flow", "nobody", code=3)


def test_what_failed_in_a_flow_is_tried_anew_and_the_rest_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    bad = pushed(capsys, "fail", "1", "--max-retry", "0")
    child = pushed(capsys, "echo", "--after", bad)
    policy = pushed(capsys, "echo", "--after", bad, "--on-parent-failure", "run", "--result-into", "all")
    assert "PARENT_FAILED" in said(capsys, "get", child, "--wait", "30s")
    assert '{"all": [null]}' in said(capsys, "get", policy, "--wait", "30s")
    gone = pushed(capsys, "echo", "--after", bad, "--on-parent-failure", "cancel")
    assert f"it was cancelled because parent {bad} did not succeed" in said(capsys, "get", gone, "--wait", "30s")
    assert f"cancelled for {bad}" in said(capsys, "flow", gone)
    assert f"(its parent {bad} did not succeed)" in said(capsys, "why", gone)
    assert said(capsys, "retry", bad, "--flow") == "3 jobs retried\n"
    said(capsys, "get", child, "--wait", "30s")
    late = pushed(capsys, "echo", "1", "--in", "1h")
    after = pushed(capsys, "echo", "--after", late)
    assert said(capsys, "cancel", after, "--flow", "--dry-run") == "2 jobs would be cancelled\n"
    told = json.loads(said(capsys, "cancel", after, "--flow", "-o", "json"))
    assert told == {"matched": 2, "changed": 2}
    assert {job["state"] for job in listed(capsys, late)} == {"cancelled"}
    assert tally(Changed(3, 3, whole=False), "cancelled", Common(), dry_run=False) == 0
    shown = capsys.readouterr()
    assert (shown.out, "ask again" in shown.err) == ("3 jobs cancelled\n", True)
    for words in (["cancel", "a", "b", "--flow"], ["retry", "--flow", "--all", "--name", "x"]):
        assert "--flow is about one job" in said(capsys, *words, code=2)
    assert "give one of them" in said(capsys, "retry", "a", "--flow", "--priority", "1", code=2)


def test_a_group_is_looked_at_closed_cancelled_and_tried_anew(capsys: pytest.CaptureFixture[str]) -> None:
    members = [pushed(capsys, "add", f"[{n}]", "--group", "cli", "--keep-result") for n in (1, 2)]
    waits = said(capsys, "groups", "close", "cli", "--then", '{"name": "add", "keep_result": true}').strip()
    assert said(capsys, "get", waits, "--wait", "30s", "--result").strip() == "3"
    told = json.loads(said(capsys, "groups", "get", "cli", "-o", "json"))
    assert (told["closed"], told["jobs"], told["progress"]) == (True, len(members), 1.0)
    assert told["then"] == {"job_id": waits, "state": "succeeded"}
    assert "counts" in said(capsys, "groups", "get", "cli")
    pushed(capsys, "echo", "1", "--group", "late", "--in", "1h")
    assert said(capsys, "groups", "close", "late") == "group late is closed\n"
    assert said(capsys, "groups", "cancel", "late", "--dry-run") == "1 job would be cancelled\n"
    assert said(capsys, "groups", "cancel", "late") == "1 job cancelled\n"
    assert said(capsys, "groups", "retry", "late") == "0 jobs retried\n"
    assert said(capsys, "groups", "get", "none", code=3)


def test_a_job_is_pushed_once_while_its_key_lives(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["echo", "1", "--unique", "cli", "--while", "waiting", "--debounce", "1h"]
    first = pushed(capsys, *words)
    assert pushed(capsys, *words) == first


def test_a_job_stands_below_all_that_it_waits_for() -> None:
    def job(job_id: str, parents: str, children: str) -> FlowJob:
        state = {"name": "x", "state": "waiting", "attempts": 0}
        return FlowJob(job_id=job_id, parents=list(parents), children=list(children), **state)  # type: ignore[arg-type]

    jobs = [job("a", "", "bd"), job("b", "a", "c"), job("c", "b", ""), job("d", "ac", "x")]
    assert depths_of(jobs) == {"a": 0, "b": 1, "c": 2, "d": 3}
