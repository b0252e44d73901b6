"""The UI attacked in a browser, from a revoked token's side, with its own certificate, by who is slow; its log."""

import socket
import ssl
from pathlib import Path

import httpx2
import pytest
import trio
import trustme
from playwright.sync_api import Page
from trio.testing import MockClock

from jqd.domain.errors import ConfigError
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from jqd.webui.serve import KEEP_ALIVE_S, serve
from tests.webui.chromium import Chromium
from tests.webui.conftest import NOBODY, Guarded, Poisoned, Site, UiProcess

PUBLIC = "https://queue.example"


def test_nothing_of_theirs_runs_in_a_browser(poisoned: Poisoned, chromium: Chromium) -> None:
    """The console has nothing but the statuses of what was refused, no request leaves, no script of theirs ran."""
    tried = {page.partition("?")[0]: page for page in poisoned.pages() if poisoned.jobs["failed"] in page}
    tried |= {f"{path} plain": path for path in tried}
    paths = [path for path in tried.values() if poisoned.browser.get(path).status_code == 200]

    def look(page: Page) -> list[str]:
        page.goto(f"{poisoned.guarded.url}/login")
        page.get_by_label("Token").fill(poisoned.token)
        page.keyboard.press("Enter")
        page.wait_for_url(poisoned.guarded.url + "/")
        page.on("dialog", lambda dialog: dialog.dismiss())
        ran = []
        for path in paths:
            page.goto(poisoned.guarded.url + path, wait_until="load")
            if page.evaluate("'hacked' in window") or page.locator("main script, main img").count():
                ran.append(path)
        return ran

    assert chromium.run(look) == []


def test_with_a_certificate_the_cookie_is_secure_and_the_log_holds_no_secret(guarded: Guarded, tmp_path: Path) -> None:
    ca = trustme.CA()
    made, context = ca.issue_cert("localhost", "127.0.0.1"), ssl.create_default_context()
    ca.configure_trust(context)
    cert, key, log = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ui.log"
    cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    made.private_key_pem.write_to_path(str(key))
    args = ["--url", guarded.daemon.url, "--certificate", str(cert), "--key", str(key), "--log-level", "debug"]
    token = guarded.master.create_token("operator")
    with UiProcess(log, *args) as ui:
        assert ui.url.startswith("https://")
        with httpx2.Client(base_url=ui.url, verify=context, headers={"origin": ui.url}, timeout=20) as browser:
            answer = browser.post("/login", data={"token": token["token"]})
            assert "; secure" in answer.headers["set-cookie"].lower()
            page = browser.get("/").text
            form_token = page.split('name="form_token" value="')[1].split('"')[0]
            assert (
                browser.post("/job/mend", data={"form_token": form_token, "id": "x", "argument": "1"}).status_code
                == 404
            )
            guarded.master.revoke_token(token["token_id"])
            assert browser.get("/jobs?state=failed").headers["location"].startswith("/login")
            secrets = [token["token"], form_token, *browser.cookies.values(), "m" * 32]
        assert ui.stop() == 0
        told = log.read_text()
        assert "webui.login" in told
        assert [secret for secret in secrets if secret in told] == []


def test_behind_a_proxy_that_ends_tls_the_cookie_is_secure_and_its_forms_are_taken(
    guarded: Guarded, tmp_path: Path
) -> None:
    with UiProcess(tmp_path / "ui.log", "--url", guarded.daemon.url, "--public-url", PUBLIC) as ui:
        form = {"token": guarded.master.create_token("viewer")["token"]}
        answer = httpx2.post(f"{ui.url}/login", data=form, headers={"origin": PUBLIC}, timeout=20)
        assert answer.status_code == 303
        assert "; secure" in answer.headers["set-cookie"].lower()
        for origin in (
            "http://queue.example",
            "https://queue.example.evil",
            "https://queue.example:444",
            "https://evil@queue.example",
        ):
            assert httpx2.post(f"{ui.url}/login", data=form, headers={"origin": origin}, timeout=20).status_code == 403
        assert ui.stop() == 0


async def test_a_public_url_says_that_the_network_comes_in_so_nobody_does_without_a_login(site: Site) -> None:
    with pytest.raises(ConfigError, match="--token"):
        UiConfig(urls=[NOBODY], public_url=PUBLIC, token="t")
    ui = create_app(UiConfig(urls=[site.daemon], public_url=PUBLIC))
    answer = await ui.app.test_client().get("/types", headers={"host": "queue.example"})
    assert (answer.status_code, answer.headers["location"][:6]) == (303, "/login"), "its daemon asks for no token"
    made_up = {"token": "jqd_0000000000000000_" + "x" * 43}
    headers = {"origin": PUBLIC, "content-length": str(len(made_up["token"]) + 6)}
    answer = await ui.app.test_client().post("/login", form=made_up, headers=headers)
    assert answer.status_code == 403
    await ui._end()


@pytest.mark.parametrize("url", ["queue.example", "ftp://queue.example", "https://", "https://queue.example/ui"])
def test_a_public_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="public-url"):
        UiConfig(urls=[NOBODY], public_url=url)


def test_a_public_name_is_one_of_the_ui() -> None:
    config = UiConfig(urls=[NOBODY], hosts=["other"], public_url=f"{PUBLIC}:8443/")
    assert (config.names, config.public_origin, config.is_secret) == (
        ["other", "queue.example"],
        "https://queue.example:8443",
        True,
    )
    assert not UiConfig(urls=[NOBODY]).is_secret
    assert create_app(config).cookie == "__Host-jqd_ui_7422", "no other host sets one of that name"


@pytest.mark.parametrize(
    ("begun", "within_s"),
    [
        (b"", KEEP_ALIVE_S),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", KEEP_ALIVE_S),
        (b"POST /login HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nContent-Length: 99\r\n\r\ntoken=", 35),
    ],
    ids=["nothing", "head", "body"],
)
def test_who_is_slow_is_cut_off(begun: bytes, within_s: float) -> None:
    """By the clock of trio, which jumps when all wait."""

    async def look() -> float:
        stop, ready = trio.Event(), trio.Event()
        at: list[str] = []

        def told(url: str) -> None:
            at.append(url)
            ready.set()

        config = UiConfig(urls=[NOBODY], bind="127.0.0.1:0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve(config, ready=told, stop=stop))
            await ready.wait()
            stream = await trio.open_tcp_stream("127.0.0.1", int(at[0].rpartition(":")[2]))
            async with stream:
                await stream.send_all(begun)
                began_s = trio.current_time()
                while await stream.receive_some():
                    continue
                lasted_s = trio.current_time() - began_s
            stop.set()
        return lasted_s

    assert trio.run(look, clock=MockClock(autojump_threshold=0.2)) <= within_s + 1


def test_who_reads_nothing_is_cut_off_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.webui.serve.WRITE_S", 0.5)

    async def look() -> bool:
        config, asked = UiConfig(urls=[NOBODY], bind="127.0.0.1:0"), b"GET /login HTTP/1.1\r\nHost: a\r\n\r\n"
        ready, stop, at = trio.Event(), trio.Event(), list[str]()

        def told(url: str) -> None:
            at.append(url)
            ready.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: serve(config, ready=told, stop=stop))
            await ready.wait()
            stream = await trio.open_tcp_stream("127.0.0.1", int(at[0].rpartition(":")[2]))
            async with stream:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                with trio.move_on_after(20) as waited:
                    try:
                        while True:
                            await stream.send_all(asked)
                    except trio.BrokenResourceError:
                        stop.set()
            stop.set()
        return waited.cancelled_caught

    assert not trio.run(look)
