"""Mail to the administrator: real daemons, a real store and a real mail server; one mail, whoever dies."""

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jqd.cli import run
from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, Worker, pair
from tests.notify.server import Postbox, free_port, mail_server
from tests.notify.test_hook import hook
from tests.valkey import valkey

WAIT_S = 30.0
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


def notify(port: int, **more: str) -> dict[str, str]:
    """Settings as an operator gives them."""
    common = {
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(port),
        "SMTP_SECURITY": "none",
        "MAIL_FROM": "jqd@example.org",
        "MAIL_TO": "ops@example.org",
        "FIRST_S": "0.5",
        "LINK": "https://jqd.example.org/errors",
    }
    return {**LEASE, **{f"JQD_NOTIFY__{key}": value for key, value in {**common, **more}.items()}}


def fail(client: Client, argument: Any = "fail", name: str = "moody") -> None:
    """One job, until it failed for good."""
    job_id = client.push(name, argument, max_retry=0)
    assert client.get(job_id, wait=WAIT_S).state == "failed"


def test_two_daemons_send_one_mail_and_call_one_hook_and_tell_no_argument(tmp_path: Path) -> None:
    with (
        mail_server() as (box, port),
        hook(200) as (url, asked),
        pair(notify(port, HOOK_URL=url, HOOK_SECRET=SECRET)) as (_, one, two, _),
        Worker(tmp_path / "book", one.url, two.url),
        Client(one.url) as client,
    ):
        one.wait_worker("moody")
        for _ in range(3):
            fail(client)
        box.wait()
        fail(client, {"n": "a very secret text"}, "square")
        box.wait()
        deadline_s = time.monotonic() + WAIT_S
        while len(asked) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.02)  # the hook is called beside the mail
        assert (one.stop(), two.stop()) == (0, 0)
    assert len(box.mails) == 2, "one of each group"
    first, second = (mail.get_content() for mail in box.mails)
    assert "moody: the data are wrong" in first
    assert "https://jqd.example.org/errors?tenant=&name=moody&error_is=the+data+are+wrong" in first
    assert "square: " in second
    assert "TypeError" in second
    assert b"very secret" not in b"".join(box.raw)
    assert len({mail["Message-ID"] for mail in box.mails}) == 2
    assert len(asked) == 2, "the same by the web hook"
    assert b"very secret" not in b"".join(body for _, body in asked)
    for headers, body in asked:
        expect_signed(headers, body)
    told = json.loads(asked[0][1])
    (group,) = told["data"]["groups"]
    assert (told["type"], group["name"], group["error"]) == ("jobs.failed", "moody", "the data are wrong")


@contextmanager
def silent_server(port: int) -> Iterator[threading.Event]:
    """Connected to, and says nothing. Set when somebody is."""
    came, over = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line, _ = listener.accept()
            with line:
                came.set()
                over.wait(WAIT_S)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        yield came
        over.set()
        thread.join(WAIT_S)


@pytest.mark.long
def test_a_daemon_that_is_killed_while_it_sends_loses_nothing(tmp_path: Path) -> None:
    port = free_port()
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with (
            silent_server(port) as came,
            Daemon(base / "d", *flags, env=notify(port)) as daemon,
            Worker(tmp_path / "book", daemon.url),
            Client(daemon.url) as client,
        ):
            daemon.wait_worker("moody")
            fail(client)
            assert came.wait(WAIT_S), "it is sending"
            daemon.kill()
        with mail_server(port=port) as (box, _), Daemon(base / "d", *flags, env=notify(port)) as daemon:
            box.wait()
            assert daemon.stop() == 0
    assert ["the data are wrong" in mail.get_content() for mail in box.mails] == [True]


def test_a_server_that_is_busy_gets_the_same_mail_after_a_restart(tmp_path: Path) -> None:
    box = Postbox()
    box.answers = ["451 greylisted, try again"]
    with mail_server(box) as (_, port), short_directory() as base:
        env = notify(port)
        with (
            Daemon(base / "d", env=env) as daemon,
            Worker(tmp_path / "book", daemon.url),
            Client(daemon.url) as client,
        ):
            daemon.wait_worker("moody")
            fail(client)
            wait_warning(daemon, "451 greylisted, try again")
            daemon.kill()
        with Daemon(base / "d", env=env) as daemon:
            box.wait()
            wait_warning(daemon, "")
            metrics = daemon.get("/metrics").text
            assert daemon.stop() == 0
    assert len(box.mails) == 1
    assert 'jqd_notices_total{channel="mail",result="sent"} 1.0\n' in metrics


def wait_warning(daemon: Daemon, text: str) -> None:
    """Until health warns of it; "": of nothing about notices."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        told = [each for each in daemon.get("/readyz").json()["warnings"] if each.startswith("notices: ")]
        if any(text in each for each in told) if text else not told:
            return
        assert time.monotonic() < deadline_s, told
        time.sleep(0.05)  # watches a process of its own


def expect_signed(headers: dict[str, str], body: bytes) -> None:
    """As Standard Webhooks has it."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    code = base64.b64encode(hmac.digest(b"k" * 32, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{code}"


def test_the_command_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def tried(**more: str) -> tuple[int, str]:
        for key, value in notify(port, **more).items():
            monkeypatch.setenv(key, value)
        return run(["mail", "test"]), capsys.readouterr().err

    with mail_server() as (box, port):
        assert tried()[0] == 0
        assert "took a mail to ops@example.org" in tried()[1]
        box.refused = {"ops@example.org": "550 no such user"}
        code, said = tried()
        assert (code, "to ops@example.org: 550 no such user; mend notify.mail_to" in said) == (1, True)
        code, said = tried(SMTP_SECURITY="starttls")
        assert (code, "offers no STARTTLS" in said) == (1, True)
        (tmp_path / "password").write_text("secret\n")
        monkeypatch.setenv("JQD_NOTIFY__SMTP_PASSWORD_FILE", str(tmp_path / "password"))
        code, said = tried(SMTP_LOGIN="jqd")
        assert (code, "takes no login here" in said) == (1, True)
    assert (len(box.mails), box.mails[0]["Subject"]) == (2, "[jqd] This is a test")
    code, said = tried(SMTP_LOGIN="")
    assert (code, "go together" in said) == (2, True)
    monkeypatch.delenv("JQD_NOTIFY__SMTP_PASSWORD_FILE")
    code, said = tried()
    assert (code, "Connection refused" in said) == (1, True)
    code, said = tried(SMTP_HOST="nobody.invalid")
    assert (code, "cannot be looked up" in said) == (1, True)
    monkeypatch.setenv("JQD_NOTIFY__SMTP_HOST", "")
    for name in ("MAIL_FROM", "MAIL_TO"):
        monkeypatch.setenv(f"JQD_NOTIFY__{name}", "")
    assert run(["mail", "test"]) == 2
    assert "no mail server is named" in capsys.readouterr().err
