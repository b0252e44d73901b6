"""What commands say commands no terminal, whoever chose the names in it; and JSON means what it meant."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jqd.cli import run
from jqd.cli.printing import print_line, print_note
from jqd.domain.visible import CONTROLS
from tests.cli.scripted import JOB, Script
from tests.cli.scripted import script as script  # the fixture

CLI = Path(__file__).parents[2] / "jqd" / "cli"
EVIL = "a\x1b[2Jb\u202ec\x9bd\x7fe"
SPELLED = r"a\x1b[2Jb\u202ec\x9bd\x7fe"
PLAIN = {
    "printing.py": 2,
    "app.py": 1,  # a script of completion
    "jobs.py": 1,  # a result, to a file or another program
    "server.py": 2,  # where it listens, as it was configured
    "ui.py": 1,
    "show.py": 1,  # how far a look has come, in numbers
}
"""Where something is printed as it is."""


def test_what_is_said_is_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_note(EVIL)
    print_line(EVIL)
    said = capsys.readouterr()
    assert (said.err, said.out) == (f"jqd: {SPELLED}\n", f"{SPELLED}\n")


def test_commands_print_nothing_of_others_as_it_is() -> None:
    def prints(path: Path) -> Iterator[ast.Call]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                yield node

    found = {path.name: len(list(prints(path))) for path in CLI.glob("*.py")}
    assert {name: times for name, times in found.items() if times} == PLAIN, (
        "`print_note` and `print_line` spell out the rest"
    )


def test_a_name_turns_no_message(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("GET", "/v1/jobs/a/result", 404)
    script.on("GET", "/v1/jobs/a", 200, {**JOB, "name": EVIL, "message": EVIL})
    assert run(["get", "a", "--result"]) == 1
    said = capsys.readouterr().err
    assert said.translate(CONTROLS) == said
    assert SPELLED in said


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_result_that_is_text_commands_no_terminal_and_is_itself_elsewhere(
    script: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    script.on("GET", "/v1/jobs/a", 200, {**JOB, "state": "succeeded", "message": "", "result": EVIL})
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert run(["get", "a", "--result"]) == 0
    assert capsys.readouterr().out == (SPELLED if is_terminal else EVIL) + "\n"


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_json_says_what_it_said_and_turns_nothing(
    script: Script, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    script.on("GET", "/v1/jobs/a", 200, {**JOB, "name": EVIL, "message": "ü → 日本"})
    assert run(["get", "a", "-o", output]) == 0
    told = capsys.readouterr().out
    assert told.translate(CONTROLS) == told
    assert json.loads(told)["name"] == EVIL
    assert "ü → 日本" in told
