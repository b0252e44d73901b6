"""The command line against a real daemon: exit codes, outputs, what goes to stdout and what to stderr."""

import io
import json
import re
import shlex
from pathlib import Path

import pytest

from jqd.cli import run

ABSENT = "http://127.0.0.1:9"  # the discard port: nothing listens there


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.strip()


def test_a_job_is_pushed_and_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["push", "add", "[1, 2, 39]", "--keep-result", "--url", url]) == 0
    job_id = out(capsys)
    assert run(["get", job_id, "--wait", "20", "--url", url, "-o", "json"]) == 0
    job = json.loads(out(capsys))
    assert (job["job_id"], job["state"], job["result"]) == (job_id, "succeeded", 42)
    assert run(["get", job_id, "--url", url]) == 0
    assert "succeeded" in out(capsys)


def test_push_can_wait_and_its_code_says_how_it_ended(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["push", "echo", "just text", "--wait", "--url", url, "--output", "json"]) == 0
    assert json.loads(out(capsys))["result"] == "just text"
    assert run(["push", "fail", "--max-retry", "0", "--wait", "--url", url, "-o", "json"]) == 1
    assert json.loads(out(capsys))["state"] == "failed"


def test_push_can_print_the_result_alone_for_a_script(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for argument, printed in [("just text", "just text"), ('{"a": [1]}', '{"a": [1]}'), ("null", "null")]:
        assert run(["push", "echo", argument, "--result", "--url", url]) == 0
        assert out(capsys) == printed
    assert run(["push", "echo", "text", "--result", "--url", url, "-o", "json"]) == 0
    assert out(capsys) == '"text"'
    assert run(["push", "fail", "--max-retry", "1", "--backoff", "100ms", "--result", "--url", url]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert re.search(r"has no result, it is failed: .*told to fail", told.err, re.DOTALL)
    assert run(["push", "echo", "later", "--keep-result", "--url", url]) == 0
    assert run(["get", out(capsys), "--wait", "30s", "--result", "--url", url]) == 0
    assert out(capsys) == "later"
    assert run(["push", "nobody", "--url", url]) == 0
    assert run(["get", out(capsys), "--result", "--url", url]) == 5
    assert capsys.readouterr().out == ""
    assert run(["push", "add", "--lines", "-", "--result", "--url", url]) == 2
    assert "--wait prints all jobs" in capsys.readouterr().err
    assert run(["push", "echo", "--backoff", "1h,2h", "--wait", "--url", url, "-o", "json"]) == 0
    assert json.loads(out(capsys))["backoff"] == [3600.0, 7200.0]


def test_an_argument_comes_from_stdin_or_a_file(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "argument"
    file.write_text('{"a": [1]}')
    assert run(["push", "echo", f"@{file}", "--wait", "--url", url, "-o", "json"]) == 0
    assert json.loads(out(capsys))["result"] == {"a": [1]}
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin"))
    assert run(["push", "echo", "-", "--wait", "--url", url, "-o", "json"]) == 0
    assert json.loads(out(capsys))["result"] == "from stdin"
    assert run(["push", "echo", "-7", "--priority", "-5", "--wait", "--url", url, "-o", "json"]) == 0
    told = json.loads(out(capsys))
    assert (told["result"], told["priority"]) == (-7, -5)
    assert run(["push", "echo", "--wait", "--url", url, "-o", "json"]) == 0
    assert json.loads(out(capsys))["result"] is None


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_a_file_of_lines_is_a_job_per_line(
    output: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_text("".join(f"{n}\n\n" for n in range(2_345)))
    assert run(["push", "echo", "--lines", str(file), "--priority", "5", "--url", url, "-o", output]) == 0
    text = out(capsys)
    ids = json.loads(text)["job_ids"] if output == "json" else text.splitlines()
    assert len(set(ids)) == 2_345


def test_lines_can_be_waited_for(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines"
    file.write_text("[1, 1]\n[2, 2]\n")
    assert run(["push", "add", "--lines", str(file), "--wait", "--url", url, "-o", "jsonl"]) == 0
    assert [json.loads(line)["result"] for line in out(capsys).splitlines()] == [2, 4]


def test_lines_come_from_stdin_too(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n\n2"))
    assert run(["push", "echo", "--lines", "-", "--wait", "--url", url, "-o", "jsonl"]) == 0
    assert [json.loads(line)["result"] for line in out(capsys).splitlines()] == [1, 2]


def test_a_job_with_a_date_is_cancelled(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for date in (["--in", "1h"], ["--in", "90"], ["--run-at", "2099-01-01T00:00:00Z"]):
        assert run(["push", "echo", "late", *date, "--url", url]) == 0
        job_id = out(capsys)
        assert run(["get", job_id, "--wait", "0.2", "--url", url, "-o", "json"]) == 5
        assert json.loads(out(capsys))["state"] in ("scheduled", "waiting")
        assert run(["cancel", job_id, "--url", url, "-o", "json"]) == 0
        assert json.loads(out(capsys)) == {"job_id": job_id, "cancel": "cancelled"}
    assert run(["push", "echo", "1", "--wait", "--url", url, "-o", "json"]) == 0
    assert run(["cancel", json.loads(out(capsys))["job_id"], "--url", url]) == 1


def test_jobs_are_managed_by_their_own_ids(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--url", url, "-o", "json"]
    own = ["push", "echo", "one", "--id", "cli/7", "--in", "1h", "--keep-result"]
    assert run([*own, *to]) == run([*own, *to]) == 0, "the same again counts once"
    assert out(capsys).count("cli/7") == 2
    assert run(["push", "echo", "two", "--id", "cli/7", *to]) == 1
    assert "a push with replace takes its place (409): --replace does that" in capsys.readouterr().err
    assert run(["jobs", "--state", "scheduled", *to]) == 0
    assert [(job["job_id"], job["name"]) for job in json.loads(out(capsys))] == [("cli/7", "echo")]
    assert run(["push", "echo", "three", "--id", "cli/7", "--replace", "--in", "2h", "--keep-result", *to]) == 0
    capsys.readouterr()
    assert run(["run-now", "cli/7", *to]) == 0
    assert json.loads(out(capsys)) == {"job_id": "cli/7", "run_now": "waiting"}
    assert run(["get", "cli/7", "--wait", "20", *to]) == 0
    assert json.loads(out(capsys))["result"] == "three"
    assert run(["push", "fail", "--max-retry", "0", "--wait", *to]) == 1
    failed = json.loads(out(capsys))["job_id"]
    assert run(["retry", "--all", "--name", "fail", "--dry-run", *to]) == 0
    assert json.loads(out(capsys))["changed"] == 0
    assert run(["retry", failed, *to]) == 0
    capsys.readouterr()
    assert run(["get", failed, "--wait", "20", *to]) == 0
    assert json.loads(out(capsys))["state"] == "failed"
    assert run(["why", failed, *to]) == 0
    assert json.loads(out(capsys))["reason"] == "ended"
    assert run(["why", failed, "--url", url]) == 0
    assert out(capsys).startswith(f"{failed}: it has ended: failed at ")
    assert run(["why", "nobody", *to]) == 3
    assert run(["delete", failed, "cli/7", *to]) == 0
    capsys.readouterr()
    assert run(["get", failed, *to]) == 3
    assert run(["clean", "--older", "1d", *to]) == 0
    assert json.loads(out(capsys)) == {"matched": 0, "changed": 0}
    assert run(["daemons", *to]) == 0
    assert [row["this"] for row in json.loads(out(capsys))] == [True]
    assert run(["types", *to]) == 0
    capsys.readouterr()
    assert run(["push", "nobody-runs-it", "--expires-in", "0.2", "--wait", *to]) == 1
    assert json.loads(out(capsys))["history"][-1]["reason"] == "expired"
    assert run(["drain", "--wait", "20s", *to]) == 0
    capsys.readouterr()
    assert run(["daemons", "resume", "--url", url]) == 0
    assert out(capsys).strip().endswith("begins jobs again")
    assert run(["daemons", "drain", "nobody", *to]) == 3


def test_status_names_both_halves_and_counts(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["push", "echo", "1", "--wait", "--url", url]) == 0
    capsys.readouterr()
    assert run(["status", "--url", url, "-o", "json"]) == 0
    told = json.loads(out(capsys))
    assert told["push"] == told["run"] == {"ready": True, "reason": None}
    assert told["store"]["ended"] > 0
    assert run(["status", "--url", url]) == 0


def test_the_environment_names_the_daemon(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JQD_URL", url)
    assert run(["status"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["get", "01M7Y8XHSQ0000E1ERMGKRAG0T", "--url", ABSENT], 4, "no daemon answers"),
        (["push", "x", "--url", ABSENT], 4, "no daemon answers"),
        (["push", "x", "--priority", "much"], 2, ""),
        (["get"], 2, ""),
        (["fly"], 2, ""),
        (["push", "x", "--text", "--lines", __file__, "--url", ABSENT], 4, "no daemon answers"),
        (["push", "x", "--in", "soon", "--url", ABSENT], 2, "--in soon is no duration"),
        (["push", "x", "--in", "", "--url", ABSENT], 2, "is no duration"),
        (["push", "x", "--in=-5", "--url", ABSENT], 2, "--in -5 is no duration"),
        (["push", "x", "--delay", "-5", "--url", ABSENT], 2, "--in -5 is no duration"),
        (["push", "x", "--delay", "5", "--in", "5", "--url", ABSENT], 2, "multiple times"),
        (["push", "add", "--keep-reslt", "--url", ABSENT], 2, "there is no option --keep-reslt"),
        (["push", "add", "1", "2", "39", "--url", ABSENT], 2, "one argument; several values are a list in JSON"),
        (["push", "x", "--url", "http://127.0.0.1:1/v1"], 2, "ends before /v1"),
        (["worker", "jqd.worker.demo", "--bind", "nowhere", "--daemon", ABSENT], 2, "is not host:port"),
        (["worker", "jqd.worker.demo", "--concurrency", "0", "--daemon", ABSENT], 2, "would run nothing"),
        (["worker", "jqd.worker.demo", "--daemon", "127.0.0.1:1"], 2, "is no http URL"),
        (["push", "x", "--in", "-5s", "--url", ABSENT], 2, "--in -5s is no duration"),
        (["push", "x", "--timeout", "-5s", "--url", ABSENT], 2, "--timeout -5s is no duration"),
        (["push", "x", '{"path": 1', "--url", ABSENT], 2, "begins like JSON but is not JSON"),
        (["push", "x", "--timeout=1 parsec", "--url", ABSENT], 2, "--timeout 1 parsec is no duration"),
        (["push", "x", "1", "--lines", "f", "--url", ABSENT], 2, "not both"),
        (["push", "x", "--lines", "f", "--id", "1", "--url", ABSENT], 2, "--id names one job"),
        (["push", "x", "--lines", "/does/not/exist", "--url", ABSENT], 2, "/does/not/exist cannot be read"),
        (["push", "x", "@/does/not/exist", "--url", ABSENT], 2, "/does/not/exist cannot be read"),
        (["push", "x", "9" * 30, "--url", ABSENT], 2, "cannot be sent as MessagePack"),
        (["push", "x", "no \udcff text", "--url", ABSENT], 2, "no UTF-8 text"),
        (["push", "x", "--url", "nonsense"], 2, "no daemon's URL"),
        (["get", "", "--url", ABSENT], 2, "empty"),
        (["cancel", "", "--url", ABSENT], 2, "empty"),
        (["--url", ABSENT, "-o", "json", "status"], 4, "no daemon answers"),
        ([f"--url={ABSENT}", "status"], 4, "no daemon answers"),
        (["--url", ABSENT], 2, ""),
        (["worker", "no_such_module", "--daemon", ABSENT], 1, "no_such_module"),
        (["worker", "jqd.worker.demo", "--log-level", "loud"], 2, "unknown log level"),
        (["worker", "jqd.worker.demo", "--drain", "soon"], 2, "--drain soon is no duration"),
        (
            ["worker", "jqd.worker.demo", "--bind", "192.0.2.1:0", "--insecure", "--daemon", ABSENT],
            1,
            "cannot listen on 192.0.2.1:0",
        ),
        (["serve", "--bind", "127.0.0.1:http"], 2, "host:port"),
        (["serve", "--drain", "soon"], 2, "--drain: drain_s"),
        (["serve", "--config", "/does/not/exist.toml"], 2, "cannot be read"),
        (["serve", "--data-dir", "/dev/null/x"], 1, "the data directory /dev/null/x cannot be made"),
        (["dev", "--config", "/does/not/exist.toml"], 2, "cannot be read"),
    ],
)
def test_what_cannot_be_done_has_a_code_and_a_sentence(
    words: list[str], code: int, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    told = capsys.readouterr()
    assert part in told.err
    assert told.out == ""


def test_an_unknown_job_is_not_found_and_a_bad_one_is_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "nonsense", "--url", url]) == 3
    assert run(["cancel", "01M7Y8XHSQ0000E1ERMGKRAG0T", "--url", url]) == 3
    assert run(["push", "x", "--max-retry", "-1", "--url", url]) == 2, "the words are wrong, whoever finds out"
    assert "max_retry" in capsys.readouterr().err


def test_help_and_version_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "push" in out(capsys)
    assert run(["push", "--help"]) == 0
    assert "--lines" in out(capsys)
    assert run(["--version"]) == 0
    assert out(capsys) == "0.1.0"


def test_what_went_wrong_at_night_is_seen_and_mended(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    to = ["--url", url, "-o", "json"]
    for _ in range(3):
        assert run(["push", "fail", '{"to": "nobody"}', "--max-retry", "0", "--tag", "night", "--wait", *to]) == 1
    ids = [json.loads(text)["job_id"] for text in re.split(r"\n(?={)", out(capsys))]
    assert run(["push", "nobodys", "1", "--id", "night/1", *to]) == 0
    capsys.readouterr()

    assert run(["errors", "--tag", "night", *to]) == 0
    (reason,) = json.loads(out(capsys))
    assert (reason["name"], reason["count"], reason["job_id"]) == ("fail", 3, max(ids))
    assert run(["errors", "--tag", "night", "--url", url]) == 0
    told = out(capsys)
    (retry,) = re.findall(r"retry    jqd (.*)", told)
    (delete,) = re.findall(r"delete   jqd (.*)", told)
    assert run([*shlex.split(retry), "--dry-run", *to]) == 0
    assert json.loads(out(capsys)) == {"matched": 3, "changed": 0}, "the command that is told finds what it is told of"

    assert run(["get", ids[0], "--url", url]) == 0
    told = out(capsys)
    assert 'argument        {"to": "nobody"}' in told
    assert re.search(r"history .*attempt 1  status \d+", told)
    assert run(["retry", ids[0], "--argument", "mended", *to]) == 0
    capsys.readouterr()
    assert run(["get", ids[0], "--wait", "20", *to]) == 0
    assert json.loads(out(capsys))["argument"] == "mended"
    assert run(["retry", *ids, "none", *to]) == 3
    assert [row["retry"] for row in json.loads(out(capsys))[:3]] == ["waiting"] * 3
    for job_id in ids:
        assert run(["get", job_id, "--wait", "20", *to]) == 0
    capsys.readouterr()
    assert run([*shlex.split(delete), "--newer", "1h", *to]) == 0
    assert json.loads(out(capsys)) == {"matched": 2, "changed": 0}, "what was mended fails with other words"
    assert run(["delete", "--all", "--tag", "night", "--yes", *to]) == 0
    assert json.loads(out(capsys)) == {"matched": 3, "changed": 3}

    assert run(["types", "--url", url]) == 0
    assert re.search(r"nobodys +1 +0 .* 0 +no worker takes these jobs", out(capsys))
    assert run(["status", "--url", url]) == 0
    told = out(capsys)
    assert f"{url} takes jobs\n{url} runs jobs\n" in told
    assert "waits     nobodys (1): no worker takes these jobs" in told
    assert run(["workers", "--url", url]) == 0
    assert out(capsys).startswith("ID ")
    assert run(["delete", "night/1", *to]) == 1
    assert run(["cancel", "night/1", *to]) == 0
