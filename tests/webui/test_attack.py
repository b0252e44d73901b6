"""The UI attacked over HTTP: foreign forms, frames, links and hosts, others' sessions and tenants, sizes."""

import re
import socket
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from jqd.client import Client
from jqd.webui.app import create_app
from jqd.webui.config import BODY_BYTES_MAX, FIELDS_MAX, LOGIN_BYTES_MAX, UiConfig
from jqd.webui.security import HEADERS
from tests.live.harness import ingested
from tests.webui import nasty
from tests.webui.conftest import NOBODY, Guarded, Poisoned

RULES = [(rule.rule, rule.methods or set()) for rule in create_app(UiConfig(urls=[NOBODY])).app.url_map.iter_rules()]
ACTS = sorted(path for path, methods in RULES if "POST" in methods)
"""All of the application: a new page is attacked without a line here."""
REORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
FORM = "application/x-www-form-urlencoded"
EMPTY = {"area", "br", "hr", "img", "input", "link", "meta", "wbr"}


class Suspicious(HTMLParser):
    """Collects what a page of ours never has: it would be theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in EMPTY:
            self.open.append(tag)
        if tag in ("img", "iframe", "object", "embed", "base", "style"):
            self.found.append(self.get_starttag_text() or tag)
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.found.append("script")
        for name, said in attrs:
            foreign = name in ("href", "src", "action", "data-hx-get") and not re.match(r"[/#?](?!/)", said or "")
            if name.startswith("on") or name in ("style", "autofocus", "srcdoc") or foreign:
                self.found.append(f"{tag} {name}={said}")
            if name != "value" and REORDERS.search(said or ""):
                self.found.append(f"{tag} {name}={said!a}")

    def handle_data(self, data: str) -> None:
        if "textarea" not in self.open and REORDERS.search(data):  # what is typed there is sent as it is
            self.found.append(ascii(data[:200]))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.found.append(f"</{tag}> ends what it did not begin")


def suspicious(text: str) -> list[str]:
    parser = Suspicious()
    parser.feed(text)
    parser.close()
    return parser.found


def form_token(browser: httpx2.Client) -> str:
    return browser.get("/").text.split('name="form_token" value="')[1].split('"')[0]


def raw(url: str, request: bytes) -> bytes:
    """What is answered to bytes that no client would send, until the connection is closed."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as sock:
        sock.sendall(request)
        answer = b""
        try:
            while part := sock.recv(65_536):
                answer += part
        except ConnectionResetError:
            return answer
        return answer


def test_the_judge_of_pages_finds_what_it_is_to_find() -> None:
    assert suspicious("<p>fine</p><a href='/jobs'>x</a>") == []
    for text in (nasty.EVIL, nasty.ANY, "<a href='javascript:x'>", "<a href='//evil'>", "<b onclick=x></b>", "</pre>"):
        assert suspicious(text) != []


def test_what_pushers_and_workers_wrote_is_text_on_every_page(poisoned: Poisoned) -> None:
    wrong = {}
    for path in poisoned.pages():
        answer = poisoned.browser.get(path)
        assert answer.status_code < 500, path
        if answer.status_code != 303 and (found := suspicious(answer.text)):
            wrong[path] = found
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
    assert wrong == {}


def test_what_is_copied_or_sent_again_is_what_was_written(poisoned: Poisoned) -> None:
    page = poisoned.browser.get("/jobs?error=" + quote("a\u202eb")).text
    assert 'name="error" value="a\u202eb"' in page
    assert r"$'--error=a\U0000202eb'" in unescape(page)


def test_a_refusal_repeats_nothing_as_code(poisoned: Poisoned) -> None:
    token = form_token(poisoned.browser)
    for path in ACTS:
        if path in ("/login", "/logout"):
            continue
        form = {
            "form_token": token,
            **dict.fromkeys(("id", "name", "argument", "priority", "error", "act"), nasty.EVIL),
        }
        answer = poisoned.browser.post(path, data=form)
        assert answer.status_code < 500, path
        assert answer.headers.get("location", "/").startswith("/"), path
        assert suspicious(answer.text) == [], path


def test_an_act_takes_forms_of_its_own_pages_alone(guarded: Guarded) -> None:
    token = guarded.master.create_token("operator")["token"]
    mine, other = guarded.log_in(token), guarded.log_in(token)
    mine_token, other_token, form = form_token(mine), form_token(other), {"id": "x", "token": token}
    foreign = [
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://["},
        {"origin": f"{guarded.url}.evil.example"},
    ]
    for path in ACTS:
        for headers in foreign:
            answer = mine.post(path, data={**form, "form_token": mine_token}, headers=headers)
            assert answer.status_code == 403, (path, headers)
            assert "set-cookie" not in answer.headers
        if path == "/login":
            continue
        for wrong in ({}, {"form_token": other_token}, {"form_token": "ü" * 9}):
            assert mine.post(path, data={**form, **wrong}).status_code == 403, (path, wrong)
        stranger = httpx2.post(guarded.url + path, data=form, headers={"origin": guarded.url}, timeout=20)
        assert stranger.headers["location"].startswith("/login"), "without a cookie"
    assert mine.get("/jobs").status_code == 200, "the login is as it was"


def test_a_link_does_nothing(guarded: Guarded) -> None:
    browser = guarded.log_in(guarded.master.create_token("operator")["token"])
    pages = {path for path, methods in RULES if "GET" in methods}
    for path in set(ACTS) - pages:
        assert browser.get(path).status_code == 405, path


@pytest.mark.parametrize(
    "path", ["/", "/login", "/nothing", "/static/0/x", "/job", "/job/cancel", "/live", "/static/..%2f..%2fapp.py"]
)
def test_nothing_may_be_framed_or_guessed(guarded: Guarded, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT"):
        headers = httpx2.request(method, guarded.url + path, timeout=20).headers
        assert {name: headers.get(name) for name in HEADERS} == HEADERS, method
        assert not headers.keys() & {"server", "access-control-allow-origin"}


def test_files_have_the_headers_too_and_none_is_outside(guarded: Guarded) -> None:
    address = re.search(r'href="(/static/[^"]*ui\.css)"', httpx2.get(f"{guarded.url}/login").text)
    assert address is not None
    headers = httpx2.get(guarded.url + address[1]).headers
    assert {name: headers.get(name) for name in HEADERS} == HEADERS
    digest = address[1].split("/")[2]
    for name in (
        f"/static/{digest}/../../app.py",
        "/static/../../../../etc/passwd",
        f"/static/{digest}/%2e%2e%2fapp.py",
    ):
        answer = raw(guarded.url, b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % name.encode())
        assert b" 404 " in answer.split(b"\r\n")[0] + b" ", name


def test_a_login_takes_no_session_that_was_there_before(guarded: Guarded) -> None:
    token, name = guarded.master.create_token("viewer")["token"], f"jqd_ui_{urlsplit(guarded.url).port}"
    headers = {"origin": guarded.url, "cookie": f"{name}=planted"}
    answer = httpx2.post(f"{guarded.url}/login", data={"token": token}, headers=headers, timeout=20)
    cookie = answer.headers["set-cookie"]
    assert "planted" not in cookie
    planted = httpx2.get(f"{guarded.url}/", headers={"cookie": f"{name}=planted"})
    assert planted.status_code == 303
    first = guarded.log_in(token)
    before = {"cookie": f"{name}={first.cookies[name]}"}
    first.post("/login", data={"token": token})
    assert httpx2.get(f"{guarded.url}/", headers=before).status_code == 303, "who logs in again has one session"
    assert first.get("/").status_code == 200


@pytest.mark.parametrize(
    "onward", ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "/\t/evil.example", "http://["]
)
def test_a_login_leads_to_no_other_place(guarded: Guarded, onward: str) -> None:
    shown = httpx2.get(f"{guarded.url}/login", params={"next": onward}).text
    assert 'name="next" value="/"' in shown
    guarded.log_in(guarded.master.create_token("viewer")["token"], onward)
    assert guarded.answer.headers["location"] == "/"


@pytest.fixture
def hidden(guarded: Guarded) -> Iterator[str]:
    """A job of one tenant."""
    with guarded.client(guarded.master.create_token("operator", tenant="acme")["token"]) as client:
        job_id = client.push(f"{nasty.SECRET}-type", nasty.SECRET, delay="1d", tags=[f"{nasty.SECRET}-tag"])
        ingested(client, job_id)
        yield job_id


def test_another_tenant_sees_and_changes_nothing(guarded: Guarded, poisoned: Poisoned, hidden: str) -> None:
    token = guarded.master.create_token("operator", tenant="beta")["token"]
    browser = guarded.log_in(token)
    mine = form_token(browser)
    for path in {page.partition("?")[0] for page in poisoned.pages()}:
        for query in ("", f"?id={hidden}", "?state=scheduled", f"?name={nasty.SECRET}-type", "?tenant=acme"):
            answer = browser.get(path + query)
            assert nasty.SECRET not in answer.text.replace(quote(query), "").replace(f"{nasty.SECRET}-type", ""), path
            assert answer.status_code < 500
    assert browser.get(f"/job?id={hidden}").status_code == 404, "as the API says"
    for act in ("cancel", "delete", "retry", "run-now", "priority", "mend"):
        form = {"id": hidden, "form_token": mine, "priority": "1", "argument": "1"}
        assert browser.post(f"/job/{act}", data=form).status_code == 404, act
    with Client(guarded.daemon.url, token="m" * 32) as master:
        assert master.get(hidden).state == "scheduled"


def test_what_is_too_large_is_refused_and_the_ui_goes_on(guarded: Guarded) -> None:
    browser = guarded.log_in(guarded.master.create_token("operator")["token"])
    mine = form_token(browser)
    large = browser.post("/job/mend", data={"form_token": mine, "id": "x", "argument": "x" * BODY_BYTES_MAX})
    assert large.status_code == 413
    empty = browser.post("/job/mend", content=b"a&" * FIELDS_MAX, headers={"content-type": FORM})
    assert empty.status_code == 413, "nor are two million empty fields read"
    assert browser.post(
        "/job/mend", data={"form_token": mine, "id": "x", "argument": '"' + "x" * 2**20 + '"'}
    ).status_code
    headers = {"origin": guarded.url}
    stranger = httpx2.post(f"{guarded.url}/login", data={"token": "x" * LOGIN_BYTES_MAX}, headers=headers, timeout=20)
    assert stranger.status_code == 413, "of whom nobody knows less is read"
    chunked = httpx2.post(f"{guarded.url}/login", content=iter([b"token=x"]), headers=headers, timeout=20)
    assert chunked.status_code == 413, "nor anything of unknown length"
    long = raw(guarded.url, b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * (1 << 20) + b"\r\n\r\n")
    assert long == b"" or long.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    many = raw(
        guarded.url, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(9_999)) + b"\r\n"
    )
    assert many == b"" or many.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    assert raw(guarded.url, b"\x16\x03\x01nonsense\r\n\r\n").startswith((b"HTTP/1.1 400", b"")), "no HTTP at all"
    assert browser.get("/").status_code == 200
