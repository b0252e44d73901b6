"""Commands about handlers, at a daemon whose answers are written down."""

from pathlib import Path
from typing import Any

import pytest

from jqd.cli import run
from tests.cli.scripted import Script, script

__all__ = ["script"]

PATH = "/v1/handlers/mail"
ROW: dict[str, Any] = {
    "name": "mail",
    "version": 2,
    "lang": "python",
    "body": "import mail\nmail.send()",
    "options": {"batch": 10},
    "set_at": "2027-01-15T08:00:00.000Z",
    "versions": [{"version": 1, "lang": "http", "out": None}, {"version": 2, "lang": "python", "out": None}],
}
OUT = [{"version": 1, "lang": "http", "out": None}, {"version": 2, "lang": "http", "out": "it answered 410"}]


def test_a_handler_is_set_from_files_listed_shown_and_deleted(
    script: Script, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = tmp_path / "mail.py"
    code.write_text("import mail\nmail.send()\n")
    script.on("PUT", PATH, 201, ROW)
    script.on("GET", PATH, 200, ROW)
    url = {**ROW, "name": "bill", "tenant": "acme", "lang": "http", "body": "http://h/" + "x" * 90, "versions": OUT}
    script.on("GET", "/v1/handlers", 200, {"handlers": [ROW, url], "cursor": ""})
    script.on("DELETE", PATH, 204)
    words = ["handlers", "set", "mail", f"@{code}", "--lang", "python", "--before", "import db", "--eid", "e"]
    assert run([*words, "--after-each", "7", "--options", '{"batch": 10, "timeout": 20}', "--server-only"]) == 0
    body = "import mail\nmail.send()"
    said = {"lang": "python", "body": body, "options": {"batch": 10, "timeout": 20}, "server_only": True}
    assert script.asked == [("PUT", PATH, {**said, "eid": "e", "before": "import db", "afterEach": "7"})]
    assert run(["handlers", "set", "mail", "http://h/"]) == 0
    assert script.asked[-1] == ("PUT", PATH, {"lang": "http", "body": "http://h/", "options": {}})
    capsys.readouterr()
    assert run(["handlers"]) == run(["handlers", "ls"]) == 0
    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines()[:3]] == ["NAME", "mail", "bill"]
    assert "import mail…" in told
    assert [line.split()[-2] for line in told.splitlines()[1:3]] == ["@2", "@1"]
    assert run(["handlers", "get", "mail", "--version", "1", "-o", "json"]) == 0
    assert script.asked[-1] == ("GET", PATH, {"version": "1"})
    assert run(["handlers", "rm", "mail"]) == 0


@pytest.mark.parametrize("options", ["[1]", "timeout=20", "{"])
def test_options_that_are_no_map_are_refused_before_anything_is_sent(options: str) -> None:
    assert run(["handlers", "set", "mail", "http://h/", "--options", options]) == 2


def test_who_pushes_is_told_that_code_waits_for_its_worker(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("POST", "/v1/jobs", 201, {"job_id": "J"})
    script.on("GET", "/v1/workers", 200, {"workers": [], "cursor": ""})
    script.on("GET", PATH, 200, ROW)
    assert run(["push", "mail"]) == 0
    assert "its handler is python code; the job waits for `jqd worker --code`" in capsys.readouterr().err


def test_what_the_daemon_refuses_is_told(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    why = "handlers may not be code here: `runner.allow_code = true`"
    script.on("PUT", PATH, 403, {"detail": why})
    assert run(["handlers", "set", "mail", "print(200)", "--lang", "python"]) == 1
    assert why in capsys.readouterr().err
