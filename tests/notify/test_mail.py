"""Mail over a real server: what it refuses and how, what never ends, and what stands in the mail."""

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trustme
from hypothesis import example, given
from hypothesis import strategies as st

from jqd.domain.errors import ConfigError
from jqd.notify import mail as mails
from jqd.notify.board import Notice, Row
from jqd.notify.config import NotifyConfig
from jqd.notify.mail import MailSender, mail_of
from jqd.notify.render import body, text
from jqd.notify.rule import Fate
from tests.notify.server import Postbox, free_port, mail_server

AT_MS = 1_800_000_000_000
PLAIN: dict[str, Any] = {
    "smtp_host": "127.0.0.1",
    "smtp_security": "none",
    "mail_from": "jqd@example.org",
    "mail_to": ("ops@example.org",),
}


def row(jobtype: str = "mail", line: str = "no route to host", **fields: Any) -> Row:
    common: dict[str, Any] = {"count": 3, "new": 3, "job_id": "01JOB"}
    return Row(jobtype, line, AT_MS - 60_000, AT_MS, **common | fields)


def notice(*rows: Row, **fields: Any) -> Notice:
    return Notice("n1", AT_MS, [*rows] or [row()], **fields)


def config(port: int, **fields: Any) -> NotifyConfig:
    return NotifyConfig(**PLAIN | {"smtp_port": port} | fields)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return ca


def tls_of(ca: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    return context


async def test_a_mail_is_taken_and_says_who_made_it() -> None:
    with mail_server() as (box, port):
        result = await MailSender(config(port)).send(notice())
    assert (result.fate, result.trouble, [*result.done]) == (Fate.SENT, "", ["ops@example.org"])
    (mail,) = box.mails
    assert (box.envelopes[0].mail_from, box.envelopes[0].rcpt_tos) == ("jqd@example.org", ["ops@example.org"])
    assert mail["Subject"] == "[jqd] Failed: 3 × mail: no route to host"
    assert (mail["From"], mail["To"]) == ("jqd <jqd@example.org>", "ops@example.org")
    assert (mail["Auto-Submitted"], mail["X-Auto-Response-Suppress"]) == ("auto-generated", "All")
    assert mail["Message-ID"] == "<n1@example.org>"
    text = mail.get_content()
    assert "3 failed: the first 2027-01-15T07:59:00.000Z, the last 2027-01-15T08:00:00.000Z" in text
    assert "jqd retry --all --name=mail '--error-is=no route to host'" in text


async def test_a_group_is_one_thread_and_a_notice_the_same_mail() -> None:
    one, other = mail_of(notice(), config(25)), mail_of(notice(row(count=9)), config(25))
    assert one["References"] == other["References"] == one["In-Reply-To"]
    assert re.fullmatch(r"<[0-9a-f]{24}@example\.org>", one["References"])
    assert one.as_bytes() == mail_of(notice(), config(25)).as_bytes()
    folded = mail_of(notice(row(line="no user …", example="no user 7")), config(25)).get_content()
    assert "as:     no user 7\n" in folded
    assert "--name=mail '--error-like=no user …'" in folded
    many = mail_of(notice(*(row(line=f"error {n}") for n in range(30))), config(25))
    assert len(many["References"].split()) == 10
    assert many["Subject"] == "[jqd] Failed: 3 × mail: error 0 and 29 more"


@pytest.mark.parametrize(
    "line",
    [
        "x\r\nBcc: evil@example.org\r\n\r\nbody",
        "a\x0b\x1b[31m\u2028b\u202ec",
        "\ud800",
        "." * 400,
        "=?us-ascii?q?=ff?=",
        "=?us-ascii?q?x=0D=0ABcc:_evil@example.org=0D=0A=0D=0Abody?=",
    ],
)
async def test_no_error_ends_a_header_or_forges_a_line(line: str) -> None:
    bad = row(jobtype=f"acme\x1f{line[:100]}", line=line), row(line=line)
    with mail_server() as (box, port):
        result = await MailSender(config(port)).send(notice(*bad))
        assert result.fate is Fate.SENT
    (mail,) = box.mails
    assert mail.keys() == mail_of(notice(), config(25)).keys()
    assert mail["Bcc"] is None
    assert len(mail["Subject"]) < 200
    lines = mail.get_content().splitlines()
    assert not any(each.startswith(("Bcc", "body")) for each in lines)
    assert all(each.isprintable() for each in lines)
    assert max(map(len, box.raw[0].split(b"\r\n"))) <= 998


async def test_lines_that_begin_with_a_dot_arrive_and_end_nothing() -> None:
    with mail_server() as (box, port):
        many = notice(*(row(line=f"{'.' * n}") for n in range(1, 20)))
        assert (await MailSender(config(port)).send(many)).fate is Fate.SENT
        wanted = mail_of(many, config(port)).get_content()
    assert box.mails[0].get_content().replace("\r\n", "\n") == wanted.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("answer", "fate"),
    [("451 greylisted", Fate.LATER), ("452 full", Fate.LATER), ("550 spam", Fate.REFUSED), ("554 no", Fate.REFUSED)],
)
async def test_what_the_server_says_to_the_text(answer: str, fate: Fate) -> None:
    with mail_server() as (box, port):
        box.answers = [answer]
        sender = MailSender(config(port))
        result = await sender.send(notice())
        assert (result.fate, answer in result.trouble, result.was_read) == (fate, True, True)
        assert (await sender.send(notice())).fate is Fate.SENT, "the next time"
    assert len(box.mails) == 1


async def test_refused_recipients_and_senders_say_what_to_mend() -> None:
    with mail_server() as (box, port):
        box.refused = {"ops@example.org": "550 no such user"}
        result = await MailSender(config(port)).send(notice())
        assert (result.fate, result.done) == (Fate.REFUSED, ())
        assert result.trouble.endswith("to ops@example.org: 550 no such user; mend notify.mail_to")
        box.refused_senders = {"jqd@example.org": "553 not yours"}
        result = await MailSender(config(port)).send(notice())
        assert result.fate is Fate.REFUSED
        assert "does not take mail from jqd@example.org: 553 not yours; mend notify.mail_from" in result.trouble


async def test_nothing_goes_out_without_starttls(authority: trustme.CA) -> None:
    with mail_server() as (box, port):
        result = await MailSender(config(port, smtp_security="starttls")).send(notice())
        assert result.fate is Fate.REFUSED
        assert "offers no STARTTLS" in result.trouble
    assert not box.envelopes


@pytest.mark.parametrize("wrapped", [True, False], ids=["tls", "starttls"])
async def test_over_tls_with_a_login(authority: trustme.CA, wrapped: bool) -> None:
    how: dict[str, Any] = {"smtp_security": "tls" if wrapped else "starttls", "smtp_login": "jqd"}
    with mail_server(tls=tls_of(authority), wrapped=wrapped, login=True) as (box, port):
        assert (await MailSender(config(port, smtp_password="secret", **how)).send(notice())).fate is Fate.SENT
        result = await MailSender(config(port, smtp_password="guess", **how)).send(notice())
        assert result.fate is Fate.REFUSED
        assert "does not take the login: 535" in result.trouble
        assert "guess" not in result.trouble
    assert len(box.mails) == 1


async def test_a_certificate_that_nobody_vouches_for(authority: trustme.CA) -> None:
    for context in (tls_of(trustme.CA()), tls_of(authority, "other.example.org")):
        with mail_server(tls=context) as (box, port):
            result = await MailSender(config(port, smtp_security="starttls")).send(notice())
            assert result.fate is Fate.LATER
            assert "is not trusted" in result.trouble
        assert not box.envelopes


async def test_tls_where_none_is_spoken(authority: trustme.CA) -> None:
    with mail_server() as (_, port):
        result = await MailSender(config(port, smtp_security="tls")).send(notice())
    assert (result.fate, "does not speak TLS as we do" in result.trouble) == (Fate.LATER, True)


async def test_nobody_is_there() -> None:
    result = await MailSender(config(free_port())).send(notice())
    assert (result.fate, "Connection refused" in result.trouble) == (Fate.LATER, True)
    result = await MailSender(config(25, smtp_host="nobody.invalid")).send(notice())
    assert (result.fate, "cannot be looked up" in result.trouble) == (Fate.LATER, True)


@contextmanager
def answering(*answers: bytes, drips: bool = False, last_s: float = 0) -> Iterator[int]:
    """A server that says these, one for each line that comes, the last one after `last_s`, and then nothing. `drips`:
    a byte at a time, for ever."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            for place, answer in enumerate(answers, 1):
                over.wait(last_s if place == len(answers) else 0)
                line.sendall(answer)
                line.recv(65_536)
            while drips and not over.wait(0.05):
                try:
                    line.sendall(b"2")
                except OSError:
                    return
            over.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join(10)


HELLO = (b"220 hello\r\n", b"250 hello\r\n")


async def test_a_silent_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.notify.mail.STEP_S", 0.2)
    with answering() as port:
        result = await MailSender(config(port)).send(notice())
    assert (result.fate, "does not answer within" in result.trouble) == (Fate.LATER, True)


async def test_one_that_is_silent_behind_the_text_may_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.notify.mail.TEXT_S", 0.2)
    with answering(*HELLO, b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n") as port:
        assert (await MailSender(config(port)).send(notice())).fate is Fate.UNKNOWN


async def test_one_that_reads_the_text_for_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.notify.mail.STEP_S", 0.2)
    with answering(*HELLO, b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n", b"250 taken\r\n", last_s=0.5) as port:
        assert (await MailSender(config(port)).send(notice())).fate is Fate.SENT


async def test_one_that_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As newer versions of Python do with a header that would not be read as it was meant."""

    def refuses(*_: Any, **__: Any) -> bytes:
        raise MessageError("it ends a header")

    monkeypatch.setattr(EmailMessage, "as_bytes", refuses)
    result = await MailSender(config(25)).send(notice())
    assert (result.fate, result.trouble) == (Fate.REFUSED, "the mail cannot be written: it ends a header")


def test_one_that_is_plain_has_counts_by_tenant_and_nothing_that_others_wrote() -> None:
    rows = [
        row("acme\x1fspam", "cheap pills", example="cheap pills 7", job_id="pills"),
        row("spam"),
        row("acme\x1fmail"),
    ]
    told, link = notice(*rows, is_plain=True), "https://jqd.example.org/errors"
    mail = mail_of(told, config(25, link=link))
    words, sent = mail.get_content(), body(told, link)
    assert mail["Subject"] == "[jqd] New failures: 9"
    assert "Tenant acme\n  6 failed, 6 of them since the last notice; the last 2027-01-15T08:00:00.000Z\n" in words
    assert "jqd --tenant acme errors" in words
    assert f"{link}?tenant=acme\n" in words
    assert not {each for each in ("pills", "spam", "route") if each in words or each.encode() in sent}
    groups = msgspec.json.decode(sent)["data"]["groups"]
    assert {one["tenant"]: one["failures"] for one in groups} == {"acme": 6, "": 3}


async def test_what_a_server_says_after_it_took_the_mail_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.notify.mail.STEP_S", 0.2)
    with answering(*HELLO, b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n", b"250 taken\r\n") as port:
        assert (await MailSender(config(port)).send(notice())).fate is Fate.SENT


async def test_one_that_drips_is_cut_and_keeps_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mails, "SEND_S", 0.3)
    with answering(drips=True) as port:
        result = await MailSender(config(port)).send(notice())
        assert (result.fate, "took longer than" in result.trouble) == (Fate.LATER, True)
    with trio.fail_after(60), mail_server() as (box, port):
        monkeypatch.setattr(mails, "SEND_S", 10)
        assert (await MailSender(config(port)).send(notice())).fate is Fate.SENT, "the thread is free"
    assert len(box.mails) == 1


async def test_answers_that_are_none_end_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.notify.mail.STEP_S", 0.1)
    login = {"smtp_login": "jqd", "smtp_password": "secret"}
    for odd in (b"334 =\r\n", b"334 \xff\xfe\r\n", b"abc\r\n", b"\x00\r\n", b"334\r\n", b"250\r\n" * 50):
        for mechanism in (b"LOGIN", b"CRAM-MD5", b"PLAIN"):
            with answering(b"220 hi\r\n", b"250-hi\r\n250 AUTH " + mechanism + b"\r\n", odd, odd) as port:
                result = await MailSender(config(port, **login)).send(notice())
            assert result.fate in (Fate.LATER, Fate.REFUSED)


LETTERS = (
    st.text(max_size=300)
    | st.text(st.sampled_from('\r\n\0\t .=?_:;,<>@"\\(){}[]é語\ud800\u2028\u202e🎉'), max_size=300)
    | st.lists(
        st.sampled_from(
            ("=?", "?=", "?q?", "?b?", "us-ascii", "utf-8", "unicode_escape", "=0D=0A", "=ff", "DQo=", "\\ud800", " ")
        ),
        max_size=20,
    ).map("".join)
)


@given(name=LETTERS, line=LETTERS, tenant=st.sampled_from(("", "acme\x1f")), times=st.integers(1, 10**9))
def test_any_words_make_a_mail_and_a_body(name: str, line: str, tenant: str, times: int) -> None:
    told = notice(row(tenant + name, line, count=times), row(tenant + name, line, is_known=True, is_over=True))
    wanted = config(25, link="https://jqd.example.org/errors")
    mail = mail_of(told, wanted)
    read = message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert read.keys() == mail_of(notice(), wanted).keys()
    assert not read.defects
    assert str(read["Subject"]).startswith("[jqd] Failed: ")
    assert read.get_content().replace("\r\n", "\n") == text(told, wanted.link)
    assert msgspec.json.decode(body(told, wanted.link))["data"]["groups"][0]["failures"] == times


async def test_what_a_server_says_is_one_line_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.notify.mail.STEP_S", 0.2)
    with answering(b"554-" + b"\x1b[2J" * 200 + b"\r\n554 " + b"x" * 3_000 + b"\r\n") as port:
        result = await MailSender(config(port)).send(notice())
    assert result.fate is Fate.REFUSED
    assert result.trouble.isprintable()
    assert len(result.trouble) < 500


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mail_to": ()}, "mail_to is empty"),
        ({"mail_to": ("ops",)}, "mail_to = 'ops' is no address"),
        ({"mail_to": ("a@b.c\r\nBcc: d@e.f",)}, "is no address"),
        ({"mail_to": ("a@b.c\n",)}, "is no address"),
        *(
            ({"mail_to": (each,)}, "is no address")
            for each in ("a..b@c.d", ".a@c.d", "a.@c.d", "a@c..d", "a@-c.d", "a@c.")
        ),
        ({"mail_from": ""}, "mail_from = '' is no address"),
        ({"mail_to": tuple(f"a{n}@b.c" for n in range(21))}, "20 at most"),
        ({"smtp_login": "jqd"}, "go together"),
        ({"smtp_host": ""}, "smtp_host is missing"),
        ({"smtp_host": "a b"}, "is no name of a server"),
        ({"smtp_host": "mail.example.org", "smtp_login": "a", "smtp_password": "b"}, "readable through the network"),
        ({"hook_url": "ftp://x"}, "hook_url does not start with"),
        ({"hook_url": "http://x/?a=b c"}, "hook_url has characters in it that must be percent-encoded"),
        ({"hook_url": "http://x/?a#b"}, "hook_url has a fragment"),
        ({"hook_secret": "whsec_" + "A" * 40}, "set hook_url, too"),
        ({"hook_url": "http://x", "hook_secret": "secret"}, "hook_secret: a secret is"),
        ({"link": "jqd.example.org"}, "is no URL"),
        ({"change_s": 7_200}, "must not be below change_s"),
    ],
)
def test_settings_that_cannot_be_say_what_to_do(fields: dict[str, Any], why: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=re.escape(why)):
        NotifyConfig(**PLAIN | fields)


def test_nobody_is_told_unless_somebody_is_named() -> None:
    assert not NotifyConfig().is_on
    assert Postbox().mails == []


ADDRESS_LETTERS = "ab.-_+=?'@%/{`0"


@given(st.text(ADDRESS_LETTERS, min_size=3, max_size=14))
@example("=?us-ascii?q?=ff?=@example.org")
def test_each_address_that_the_settings_take_can_stand_in_a_header(address: str) -> None:
    """What raised at the first notice would end the daemon, and again at each start."""
    try:
        settings = config(25, mail_from=address, mail_to=(address,))
    except ValueError:
        return
    told = message_from_bytes(mail_of(notice(), settings).as_bytes(policy=policy.SMTP), policy=policy.default)
    assert [each.addr_spec for each in told["To"].addresses] == [address]
