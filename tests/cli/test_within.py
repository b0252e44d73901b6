"""`jqd push --within`: how long a push waits for its job, and what it says of one that has not ended."""

from typing import Any

import pytest

from jqd.cli import jobs
from jqd.cli.app import run
from jqd.cli.jobs import SILENT_S, WAIT_S, _waited
from jqd.client import Client, JobInfo
from jqd.client.job_info import job_info
from tests.cli.scripted import JOB, Script, out
from tests.cli.scripted import script as script  # the fixture

WAITING = JOB | {"state": "waiting", "finished_at": None, "message": None}


def pushes(script: Script) -> None:
    script.on("POST", "/v1/jobs", 201, {"job_id": "order/7", "ack": "fsync"})
    script.on("GET", "/v1/jobs/order%2F7", 200, WAITING)
    script.on("GET", "/v1/workers", 200, {"workers": [{"jobs": "*"}]})


@pytest.mark.parametrize("how", ["--wait", "--result"])
@pytest.mark.parametrize("within", ["0", "0.01", "10ms"])
def test_a_push_that_waits_no_longer_says_that_the_job_is_still_wanted(
    script: Script, how: str, within: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pushes(script)
    assert run(["push", "mail", "1", "--id", "order/7", how, "--within", within]) == 5
    told = capsys.readouterr()
    assert "job order/7 has not ended, it is waiting. It is still wanted: `jqd get order/7 --wait 5m` waits" in told.err
    assert ("waiting" in told.out) == (how == "--wait"), "a result has not come, and nothing else was asked for"


def test_of_many_jobs_one_that_has_not_ended_is_named(
    script: Script, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pushes(script)
    script.answers["POST", "/v1/jobs"] = [(201, {"job_ids": ["order/7"], "ack": "fsync"})]
    (tmp_path / "lines").write_text("1\n")
    assert run(["push", "mail", "--lines", str(tmp_path / "lines"), "--wait", "--within", "0.01"]) == 5
    assert "1 of 1 jobs have not ended after 0.01 s, order/7 for one. It is still wanted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--within", "5m"], "--within is how long --wait or --result waits: give one of them"),
        (["--wait", "--within", "soon"], "--within soon is no duration; write 90, 30s, 5m, 2h or 1d"),
        (["--wait", "--within", "-1"], "--within"),
    ],
)
def test_what_is_no_bound_is_said_before_anything_is_pushed(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["push", "mail", "1", *words, "--url", "http://127.0.0.1:9"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("within_s", "waits"),
    [(0.0, [0.0]), (2.0, [2.0]), (SILENT_S, [SILENT_S]), (60.0, [5.0, 55.0]), (WAIT_S, [SILENT_S, WAIT_S - SILENT_S])],
)
def test_it_waits_so_long_in_all_and_says_in_between_how_the_job_stands(
    within_s: float, waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[float] = []

    class Waits(Client):
        def get(self, job_id: str, wait: Any = None, *, whole: bool = False) -> JobInfo:
            asked.append(wait)
            return job_info(WAITING)

    with Waits("http://127.0.0.1:9") as client:
        assert _waited(client, "order/7", within_s).state == "waiting"
    assert asked == waits
    assert ("the job stays" in capsys.readouterr().err) == (len(waits) == 2)
    assert jobs._within(None, waits=True) == WAIT_S, "an hour, unless it is said"
    assert out(capsys) == ""
