"""What `jqd worker` was given and cannot use is refused by its name: whoever says it thinks that it does something."""

import pytest

from jqd.cli.app import run

ABSENT = "http://127.0.0.1:1"
MODULE, PULL, CODE = ["jqd.worker.demo"], ["jqd.worker.demo", "--pull"], ["--code"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*PULL, "--bind", "127.0.0.1:0"], "--pull listens nowhere, so --bind says nothing: leave it out"),
        ([*PULL, "--advertise", "http://10.0.0.1/"], "so --advertise says nothing"),
        ([*PULL, "--insecure"], "so --insecure says nothing"),
        ([*PULL, "--secret-file", "s"], "so --secret-file (or JQD_WORKER_SECRET_FILE) says nothing: leave it out"),
        ([*MODULE, "--silence", "1m"], "this worker has a port, so --silence says nothing"),
        ([*MODULE, "--sandbox", "bwrap"], "without --code there is a module, so --sandbox says nothing"),
        ([*PULL, "--memory-mib", "7"], "so --memory-mib says nothing"),
        ([*CODE, "--pull"], "--code listens nowhere, and asks for jobs, so --pull says nothing"),
        ([*CODE, "--secret-file", "s"], "so --secret-file (or JQD_WORKER_SECRET_FILE) says nothing"),
        ([*CODE, "--processes", "2"], "--code runs the handlers that are code, so --processes says nothing"),
        ([*CODE, "--priority-max", "2"], "so --priority-max (or JQD_WORKER_PRIORITY_MAX) says nothing"),
        ([*CODE, "--queues", "mail"], "so --jobs says nothing"),
        (["jqd.worker.demo", "--code"], "or with --code the handlers that are code: give one of these"),
        ([], "or with --code the handlers that are code: give one of these"),
    ],
)
def test_what_says_nothing_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", *words, "--daemon", ABSENT]) == 2
    assert said in capsys.readouterr().err


def test_what_the_environment_says_is_refused_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JQD_WORKER_SECRET_FILE", "/run/secrets/worker")
    assert run(["worker", *PULL, "--daemon", ABSENT]) == 2
    assert "(or JQD_WORKER_SECRET_FILE) says nothing" in capsys.readouterr().err
