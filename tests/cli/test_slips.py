"""Words that lead nowhere: jobtypes that nobody runs."""

import socket
from pathlib import Path
from typing import Any

import pytest

from jqd.cli import run
from tests.cli.scripted import Script
from tests.cli.scripted import script as script  # the fixture


@pytest.mark.parametrize(
    ("name", "workers", "told"),
    [
        (
            "mial",
            [["mail", "bill"]],
            "no worker or handler of 'mial' is known; did you mean 'mail'? The job waits for one",
        ),
        ("x", [], "no worker or handler of 'x' is known. The job waits for one"),
        ("mail", [["mail"]], ""),
        ("mial", [["mail"], "*"], ""),
    ],
)
def test_a_push_of_what_nobody_runs_says_so(
    name: str, workers: list[Any], told: str, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.on("POST", "/v1/jobs", 201, {"job_id": "a", "ack": "fsync"})
    script.on("GET", "/v1/workers", 200, {"workers": [{"jobs": jobs} for jobs in workers]})
    assert run(["push", name]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.strip()) == ("a\n", f"jqd: {told}" if told else "")


def test_a_push_that_was_known_already_says_so(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("POST", "/v1/jobs", 200, {"job_id": "a", "ack": "fsync", "duplicate": True})
    script.on("GET", "/v1/workers", 200, {"workers": [{"jobs": "*"}]})
    assert run(["push", "mail", "--unique", "k"]) == 0
    said = capsys.readouterr()
    assert said.out == "a\n"
    assert said.err == "jqd: this job was pushed before; that push counts, and this one changed nothing\n"


def test_where_nothing_was_pushed_no_worker_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines"
    file.write_text('{"x": \n')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        assert run(["push", "mial", "--lines", str(file), "--url", f"http://127.0.0.1:{server.getsockname()[1]}"]) == 2
        with pytest.raises(BlockingIOError):
            server.accept()
    assert capsys.readouterr().err.endswith("; nothing was pushed\n")


def test_who_may_not_look_at_workers_is_told_nothing(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    script.on("POST", "/v1/jobs", 201, {"job_id": "a", "ack": "fsync"})
    script.on("GET", "/v1/workers", 403, {"detail": "this token may not look"})
    assert run(["push", "mial"]) == 0
    assert capsys.readouterr() == ("a\n", "")
