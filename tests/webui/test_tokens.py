"""The page of tokens: a secret is shown once, a form makes one token, and who may not sees and does nothing."""

import re
import socket
from contextlib import suppress
from html import unescape
from pathlib import Path

import httpx2
import pytest

from jqd.client import Client, Forbidden
from jqd.webui.sessions import MARKS_MAX
from tests.directories import short_directory
from tests.live.harness import Daemon
from tests.webui.conftest import Guarded, UiProcess
from tests.webui.lossy import CHUNK_BYTES, Lossy

SECRET = re.compile(r"jqd_[0-9a-f]{16}_[A-Za-z0-9_-]{43}")


def form_of(browser: httpx2.Client, path: str = "/token", **said: str) -> dict[str, str]:
    """What a browser sends of a page's form, with what a person chose and typed."""
    return hidden(browser.get(path).text) | said


def hidden(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page)
    return {name: unescape(each) for name, each in found}


def logged_in(guarded: Guarded, tenant: str = "") -> httpx2.Client:
    return guarded.log_in(guarded.master.create_token("master", tenant=tenant)["token"])


def test_a_token_is_made_as_it_was_said_and_its_secret_shown_once(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    said = {"role": "worker", "of": "acme", "expires": "1h", "note": "<b>of acme", "scopes": "mail.*\r\na b"}
    answer = browser.post("/token/create", data=form_of(browser, **said))
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    (secret,) = SECRET.findall(answer.text)
    with guarded.client(secret) as client:
        me = client.me()
    assert (me["role"], me["tenant"], me["scopes"]) == ("worker", "acme", ["mail.*", "a b"])
    page, at = "", ["/tokens"]  # a hundred on a page: other tests have made some, too
    for link in at:
        page += (its := browser.get(link).text)
        at += {unescape(more) for more in re.findall(r'"(/tokens\?cursor=[^"]+)"', its)} - {*at}
    assert me["token_id"] in page
    assert "&lt;b&gt;of acme" in page
    assert secret not in page
    assert noted(guarded.master, "token create", me["token_id"])


def noted(client: Client, act: str, token_id: str) -> bool:
    return any(token_id in note["what"] for note in client.audit(act=act))


def test_a_form_that_is_sent_twice_makes_one_token(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    form = form_of(browser, role="viewer", note="twice")
    assert browser.post("/token/create", data=form).status_code == 200
    again = browser.post("/token/create", data=form)
    assert again.status_code == 403
    assert "this form was sent already" in again.text
    assert SECRET.findall(again.text) == []
    assert [row["note"] for row in guarded.master.tokens()].count("twice") == 1


TYPED = {"role": "worker", "note": "typed at night", "expires": "12h", "scopes": "mail.*\nsms.*"}


def shows_what_was_typed(page: str) -> bool:
    return all(text in page for text in ("typed at night", "12h", "mail.*\nsms.*"))


def test_a_form_that_meets_no_daemon_is_shown_as_it_was_typed_and_can_be_sent_again() -> None:
    env = {"JQD_HTTP__TOKENS": "required", "JQD_API__MASTER_KEY": "m" * 32}
    with (
        short_directory() as base,
        Daemon(base / "d", env=env) as daemon,
        UiProcess(base / "ui.log", "--url", daemon.url) as ui,
        httpx2.Client(base_url=ui.url, headers={"origin": ui.url}, timeout=60) as browser,
    ):
        browser.post("/login", data={"token": "m" * 32, "next": "/"})
        form = form_of(browser, **TYPED)
        daemon.kill()
        away = browser.post("/token/create", data=form)
        assert away.status_code == 503
        assert "Not made." in away.text
        assert shows_what_was_typed(away.text)
        assert hidden(away.text)["once"] == form["once"], "to load the page anew sends the same form"
        with Daemon(base / "d", env=env, bind=daemon.bind):
            made = browser.post("/token/create", data=TYPED | hidden(away.text))
            assert (made.status_code, len(SECRET.findall(made.text))) == (200, 1)
            assert browser.post("/token/create", data=form).status_code == 403


class Cutting(Lossy):
    """Cuts each connection on which a token is asked for, once that was passed on."""

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):  # the one or the other is gone
            while data := source.recv(CHUNK_BYTES):
                if data.startswith(b"POST /v1/tokens "):
                    source.shutdown(socket.SHUT_RDWR)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def test_a_form_that_gets_no_answer_says_that_its_token_may_be_made_and_keeps_what_was_typed(
    guarded: Guarded, tmp_path: Path
) -> None:
    network = Cutting(guarded.daemon.url)
    try:
        with (
            UiProcess(tmp_path / "ui.log", "--url", network.url) as ui,
            httpx2.Client(base_url=ui.url, headers={"origin": ui.url}, timeout=60) as browser,
        ):
            browser.post("/login", data={"token": guarded.master.create_token("master")["token"], "next": "/"})
            form = form_of(browser, **TYPED)
            unknown = browser.post("/token/create", data=form)
            assert unknown.status_code == 503
            assert "It may be made" in unknown.text
            assert "Not made" not in unknown.text
            assert shows_what_was_typed(unknown.text)
            assert hidden(unknown.text)["once"] != form["once"]
            again = browser.post("/token/create", data=form)
            assert again.status_code == 403, "to load the page anew makes no second one"
    finally:
        network.close()


def test_what_is_wrong_stands_at_its_field_and_makes_none(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    before = len(guarded.master.tokens())
    wrong = [("expires", "soon"), ("expires", "99999d"), ("scopes", "mail"), ("of", "a b"), ("note", "x" * 201)]
    for field, text in wrong:
        answer = browser.post("/token/create", data=form_of(browser, **{"role": "viewer", field: text}))
        assert answer.status_code == 422, field
        assert f'id="fault-{field}"' in answer.text, (field, answer.text)
        assert SECRET.findall(answer.text) == []
        assert hidden(answer.text)["once"], "it can be sent again"
    assert len(guarded.master.tokens()) == before


def test_all_that_is_wrong_is_said_at_once_and_makes_no_command_to_copy(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    before = len(guarded.master.tokens())
    said = {"role": "king", "of": "a b", "expires": "soon", "note": "x" * 70_000}
    for wrong in (said, said | {"expires": "99999d"}, said | {"expires": "1d"}):
        form = form_of(browser, **wrong)
        answer = browser.post("/token/create", data=form)
        assert answer.status_code == 422
        for field in ("role", "of", "note", *(("expires",) if wrong["expires"] != "1d" else ())):
            assert f'id="fault-{field}"' in answer.text, (field, answer.text)
        assert "jqd tokens create" not in answer.text
        assert "x" * 200 in answer.text
        assert "x" * 201 not in answer.text
    assert "jqd tokens create" in browser.get("/token").text
    assert len(guarded.master.tokens()) == before


def test_a_revoked_token_lets_nobody_in_and_ends_its_logins(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    made = guarded.master.create_token("viewer", note="to go")
    other = guarded.log_in(made["token"])
    assert "to go" in browser.get(f"/token/confirm?id={made['token_id']}").text
    answer = browser.post("/token/revoke", data=form_of(browser, f"/token/confirm?id={made['token_id']}"))
    assert answer.headers["location"] == "/tokens?done=revoke"
    assert made["token_id"] not in browser.get("/tokens").text
    assert browser.get(f"/token/confirm?id={made['token_id']}").status_code == 404
    assert noted(guarded.master, "token revoke", made["token_id"])
    with guarded.client(made["token"]) as client, pytest.raises(Forbidden):
        client.me()
    assert other.get("/types").status_code == 303, "to the login"


def test_the_master_of_a_tenant_sees_and_makes_its_tokens_alone(guarded: Guarded) -> None:
    browser = logged_in(guarded, "tokens")
    foreign = guarded.master.create_token("viewer", note="of nobody else")
    assert foreign["token_id"] not in browser.get("/tokens").text
    assert browser.get(f"/token/confirm?id={foreign['token_id']}").status_code == 404
    assert browser.post("/token/revoke", data=form_of(browser, "/token", id=foreign["token_id"])).status_code == 404
    assert 'name="of"' not in browser.get("/token").text.partition("</header>")[2]
    answer = browser.post("/token/create", data=form_of(browser, role="push", of="acme"))
    assert answer.status_code == 403
    answer = browser.post("/token/create", data=form_of(browser, role="push"))
    with guarded.client(SECRET.findall(answer.text)[0]) as client:
        assert client.me()["tenant"] == "tokens"


def test_who_is_no_master_makes_and_revokes_none(guarded: Guarded) -> None:
    browser = guarded.log_in(guarded.master.create_token("operator")["token"])
    before = guarded.master.tokens()
    said = form_of(browser, "/types", role="master", once="1", id=before[0]["token_id"])
    for act in ("create", "revoke"):
        answer = browser.post(f"/token/{act}", data=said)
        assert answer.status_code in (403, 404), act
        assert SECRET.findall(answer.text) == []
    assert [row["token_id"] for row in guarded.master.tokens()] == [row["token_id"] for row in before]


def test_a_form_is_refused_however_many_others_were_sent_since(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    form = form_of(browser, role="viewer", note="long ago")
    assert browser.post("/token/create", data=form).status_code == 200
    for number in range(MARKS_MAX):
        assert browser.post("/token/create", data=form | {"once": f"made up {number}"}).status_code == 403
    for _ in range(MARKS_MAX):
        browser.get("/token")
    again = browser.post("/token/create", data=form)
    assert (again.status_code, SECRET.findall(again.text)) == (403, [])
    assert [row["note"] for row in guarded.master.tokens()].count("long ago") == 1


def test_a_form_is_good_until_many_others_were_opened(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    first, second = form_of(browser, role="viewer"), form_of(browser, role="viewer")
    for _ in range(MARKS_MAX - 1):
        browser.get("/token")
    refused = browser.post("/token/create", data=first)
    assert refused.status_code == 403
    assert "opened too long ago" in refused.text
    assert browser.post("/token/create", data=second).status_code == 200


def test_forms_that_are_refused_leave_nothing_in_memory(guarded: Guarded) -> None:
    viewer, master = guarded.log_in(guarded.master.create_token("viewer")["token"]), logged_in(guarded)
    token = viewer.get("/types").text.partition('data-form-token="')[2].partition('"')[0]
    for browser, form in ((viewer, {"form_token": token}), (master, form_of(master, "/token"))):
        before = _memory_mb(guarded.ui.child.pid)
        for number in range(MARKS_MAX):
            long = {"role": "viewer", "once": f"{number}".ljust(1_000_000, "x")}
            assert browser.post("/token/create", data=form | long).status_code == 403
        assert _memory_mb(guarded.ui.child.pid) - before < 40


def _memory_mb(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def test_logins_are_told_from_tokens_and_the_own_one_from_others(guarded: Guarded) -> None:
    browser = logged_in(guarded)
    made = guarded.master.create_token("viewer", note="ui")
    guarded.log_in(made["token"])
    page = at = browser.get("/tokens").text
    while onward := re.search(r'href="([^"]+)" rel="next"', at):  # other tests left tokens, too
        page += (at := browser.get(unescape(onward[1])).text)
    assert page.count("<strong>Your login</strong> of the web UI") == 1
    assert f'A login of the web UI, by <span class="id">{made["token_id"]}</span>' in page
    assert '<td class="message">ui</td>' in page, "a token that is merely called so"
