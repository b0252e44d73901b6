"""Daemons that do not answer: the page says so, tries again, and asks another one that it knows."""

import httpx2
import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Daemon
from tests.webui.conftest import Guarded, UiProcess

NOBODY = "http://127.0.0.1:9"


def test_without_a_daemon_a_page_says_so_and_another_one_is_asked_where_there_is_one() -> None:
    with short_directory() as base:
        with UiProcess(base / "alone.log", "--url", NOBODY) as ui:
            answer = httpx2.get(ui.url, timeout=30)
            assert answer.status_code == 503
            assert answer.headers["refresh"] == "5"
            assert NOBODY in answer.text
            assert ui.stop() == 0
        with (
            Daemon(base / "d") as daemon,
            UiProcess(base / "ui.log", "--url", NOBODY, "--url", daemon.url) as ui,
            Client(daemon.url) as client,
        ):
            job_id = client.push("echo", 1, delay="1d")
            answer = httpx2.get(f"{ui.url}/job?id={job_id}", timeout=30)
            assert answer.status_code == 200
            daemon.stop()
            assert httpx2.get(f"{ui.url}/jobs", timeout=60).status_code == 503
            assert ui.child.poll() is None
            assert ui.stop() == 0


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--bind", "0.0.0.0:0", "--token", "x"], "bind to loopback"),
        (["--bind", "nonsense"], "--bind"),
        (["--bind", "192.0.2.1:0"], "cannot listen"),
        (["--certificate", "cert.pem"], "TLS needs both"),
        (["--bind", "127.0.0.1:0", "--certificate", "/nope", "--key", "/nope"], "/nope cannot be read"),
        (["--bind", "127.0.0.1:0", "--certificate", __file__, "--key", __file__], "are no certificate with its key"),
    ],
)
def test_settings_that_cannot_work_are_said_before_it_starts(
    args: list[str], part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from jqd.cli import run

    assert run(["ui", "--url", NOBODY, *args]) == 2
    assert part in " ".join(capfd.readouterr().err.split())


def test_a_token_that_the_daemon_does_not_know_is_said_before_it_starts(
    guarded: Guarded, capfd: pytest.CaptureFixture[str]
) -> None:
    from jqd.cli import run

    assert run(["ui", "--url", guarded.daemon.url, "--bind", "127.0.0.1:0", "--token", "bad"]) == 2
    said = " ".join(capfd.readouterr().err.split())
    assert "does not know the token" in said
    with UiProcess(guarded.ui.log.parent / "away.log", "--url", NOBODY, "--token", "bad") as ui:
        assert ui.stop() == 0, "a daemon that is away is no reason"
