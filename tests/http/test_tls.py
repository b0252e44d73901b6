"""TLS: what it carries is the same, and who does not speak it is told so and let go."""

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx2
import pytest
import structlog
import trio
import trio.testing
import trustme

from jqd.client import Unreachable
from jqd.client.http import Http
from jqd.client.trust import trusted
from jqd.config import load
from jqd.domain.errors import ConfigError
from jqd.http import Listener, ListenerConfig, Request, Response, bind, serve_http, tls_context
from jqd.http.connection import Connection, ServerContext
from jqd.http.tls import PLAIN, TlsTransport
from jqd.worker.register import Registration, Slots
from tests.http.conftest import Certificate
from tests.http.transports import CLIENT, SERVER, Log, MemoryPipe, body_of

ANSWER_S = 10.0  # far above what any answer here takes
GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /z HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HELLO_CUTS = (1, 5, 6, 60, 200)


async def echo(asked: Request) -> Response | None:
    """Says the body again; refuses by the head what is for /refuse."""
    if asked.heading.path == "/refuse":
        return Response(413, b"too large", "text/plain", {"connection": "close"})
    body = await body_of(asked)
    if body is None:
        return None
    return Response(200, asked.heading.path.encode() + b" " + body)


@asynccontextmanager
async def serving(certificate: Certificate, log: Log) -> AsyncIterator[int]:
    listener = bind("127.0.0.1:0")
    port = listener.getsockname()[1]
    stopped = trio.Event()
    config = ListenerConfig(certificate=certificate)
    with trio.fail_after(ANSWER_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_http, echo, listener, stopped=stopped.wait, config=config, log=log))
            yield port
            stopped.set()


async def spoken(
    port: int, ca: trustme.CA, data: bytes, shown: trustme.LeafCert | None = None, **limits: ssl.TLSVersion
) -> bytes:
    """All that is answered, to its goodbye: an end without one is an error. `shown`: by who asks."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if shown is not None:
        shown.configure_cert(context)
    for name, value in limits.items():
        setattr(context, name, value)
    if limits:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
    answer = b""
    tcp = await trio.open_tcp_stream("127.0.0.1", port)
    async with trio.SSLStream(tcp, context, server_hostname="localhost") as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        while piece := await stream.receive_some():
            answer += piece
    return answer


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_and_answers_go_through(ca, certificate, version):
    log, body = Log(), bytes(range(256)) * 4_096
    post = b"POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving(certificate, log) as port:
        told = await spoken(port, ca, GET + post + body + LAST, minimum_version=version, maximum_version=version)
    assert told.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert b"/p " + body in told
    assert told.endswith(b"\r\n\r\n/z ")
    assert log.lines == []


@pytest.mark.parametrize(
    ("name", "believed", "said"),
    [
        ("localhost", "ca.pem", None),
        ("localhost", "other.pem", r"is not trusted here: .*in SSL_CERT_FILE; nothing"),
        ("localhost", "none.pem", r"is not trusted here: .*SSL_CERT_FILE names .*none\.pem, and there is no such file"),
        ("127.0.0.1", "ca.pem", r"[^.]\. Use the name that the certificate has"),
    ],
)
async def test_our_own_client_and_worker_ask_by_https(ca, certificate, name, believed, said, monkeypatch, tmp_path):
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / believed))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nowhere"))
    slept: list[float] = []

    def ask(port: int) -> int:
        http = Http(f"https://{name}:{port}", timeout_s=ANSWER_S, token=None, sleep=slept.append)
        return http.call("GET", "/refuse", accept=(413,)).status

    async with serving(certificate, Log()) as port:
        if said is None:
            assert await trio.to_thread.run_sync(ask, port) == 413
            return
        with pytest.raises(Unreachable, match=rf"^a daemon answers at https://{name}.*{said}") as caught:
            await trio.to_thread.run_sync(ask, port)
        assert not caught.value.sent
        assert slept == [], "to ask again mends nothing"
        assert f"a daemon answers at https://{name}:{port}, but its" in await registered(f"https://{name}:{port}")


async def test_a_certificate_of_another_day_is_said_as_such(ca, tmp_path, monkeypatch):
    day, now = timedelta(days=1), datetime.now(UTC)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    for begins, ends in ((now - 2 * day, now - day), (now + day, now + 2 * day)):
        made = ca.issue_cert("localhost", not_before=begins, not_after=ends)
        files = tmp_path / "cert.pem", tmp_path / "key.pem"
        files[0].write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        files[1].write_bytes(made.private_key_pem.bytes())
        async with serving(files, Log()) as port:
            http = Http(f"https://localhost:{port}", timeout_s=ANSWER_S, token=None)
            with pytest.raises(Unreachable, match="needs a certificate that is valid today"):
                await trio.to_thread.run_sync(http.call, "GET", "/a")


def causes(error: BaseException) -> list[BaseException]:
    """All that an error is made of."""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else (error.__cause__, error.__context__)
    return [error, *(one for each in inner if each is not None for one in causes(each))]


async def registered(url: str) -> str:
    """What a worker says that cannot register there."""
    with structlog.testing.capture_logs() as logs:
        async with httpx2.AsyncClient(trust_env=False, verify=trusted()) as http, trio.open_nursery() as nursery:
            slots, source = Slots(lambda: 1, 1), random.Random(1)
            nursery.start_soon(Registration(url, dict, slots, worker_id="w", http=http, source=source).run)
            while not logs:
                await trio.sleep(0.01)  # watches what the worker says
            nursery.cancel_scope.cancel()
    return str(logs[0]["trouble"])


async def test_who_comes_shows_a_certificate_where_one_is_asked_for(ca, certificate, tmp_path, monkeypatch):
    clients, listener, stopped = trustme.CA(), bind("127.0.0.1:0"), trio.Event()
    clients.cert_pem.write_to_path(str(tmp_path / "clients.pem"))
    config, log = ListenerConfig(certificate=certificate, clients=tmp_path / "clients.pem"), Log()
    cert, key = certificate
    port = listener.getsockname()[1]
    with trio.fail_after(ANSWER_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(Listener(echo, listener, config, log).serve, stopped.wait)
            for shown, alert in (
                (None, "CERTIFICATE_REQUIRED"),
                (trustme.CA().issue_cert("stranger"), "UNKNOWN_CA"),
            ):
                with pytest.raises(ExceptionGroup) as told:
                    await spoken(port, ca, LAST, shown)
                assert alert in repr(causes(told.value)), "it is told, and not only broken off"
            assert b"200 OK" in await spoken(port, ca, LAST, clients.issue_cert("worker"))
            ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            http = Http(f"https://localhost:{port}", timeout_s=ANSWER_S, token=None)
            with pytest.raises(
                Unreachable, match=r"asks for a certificate.*, and none that it trusts is shown from here; nothing"
            ):
                await trio.to_thread.run_sync(http.call, "GET", "/a")
            stopped.set()
    assert [(line["event"], line["why"]) for line in log.lines] == [
        ("http.no_certificate", "PEER_DID_NOT_RETURN_A_CERTIFICATE")
    ], "once in a while"
    with pytest.raises(ConfigError, match=r"http\.tls_clients = .* cannot be read"):
        tls_context(cert, key, tmp_path / "none")
    with pytest.raises(ConfigError, match=r"http\.tls_clients = .* has no certificate"):
        tls_context(cert, key, key)


async def test_a_daemon_without_tls_is_named_as_such():
    listener, stopped = bind("127.0.0.1:0"), trio.Event()
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    said = f"what answers at {url} speaks no TLS: use {url.replace('https', 'http')}"
    with trio.fail_after(ANSWER_S):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_http, echo, listener, stopped=stopped.wait, config=ListenerConfig(), log=Log())
            await nursery.start(serve)
            http = Http(url, timeout_s=ANSWER_S, token=None)
            with pytest.raises(Unreachable, match=f"^{said}; nothing was sent$"):
                await trio.to_thread.run_sync(http.call, "GET", "/a")
            assert await registered(url) == said
            stopped.set()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_are_not_spoken(ca, certificate):
    log = Log()
    async with serving(certificate, log) as port:
        with pytest.RaisesGroup(trio.BrokenResourceError, allow_unwrapped=True, flatten_subgroups=True):
            await spoken(port, ca, LAST, minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
        assert b" 200 OK" in await spoken(port, ca, LAST)
    assert {line["event"] for line in log.lines} <= {"http.not_agreed", "http.broken"}


async def test_a_refusal_can_be_read_while_the_body_still_comes(ca, certificate):
    head = b"POST /refuse HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n"
    async with serving(certificate, Log()) as port:
        told = await spoken(port, ca, head + bytes(1 << 20))
    assert told.startswith(b"HTTP/1.1 413 ")
    assert told.endswith(b"too large")


@pytest.mark.parametrize("data", [GET, b"\r\n", b"\x80\x2e\x01", b"SSH-2.0-x\r\n"])
async def test_who_speaks_no_tls_is_told_so(certificate, data):
    log = Log()
    async with serving(certificate, log) as port:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            told = b""
            while piece := await stream.receive_some():
                told += piece
                await stream.send_eof()
        assert told.startswith(b"HTTP/1.1 400 ")
        assert PLAIN.encode() in told
    assert log.lines == []


async def test_who_leaves_within_the_handshake_makes_no_noise(ca, certificate):
    log = Log()
    context, outgoing = ssl.create_default_context(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    async with serving(certificate, log) as port:
        for sent in (b"", *(hello[:cut] for cut in HELLO_CUTS), hello, hello[:50] + bytes(200)):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(sent)
        assert b" 200 OK" in await spoken(port, ca, LAST)
    assert {line["event"] for line in log.lines} <= {"http.not_agreed", "http.broken"}, "a line for who debugs"


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
async def test_a_handshake_has_its_time(certificate, sent, autojump_clock):
    log, pipe, over = Log(), MemoryPipe(), trio.Event()
    house = ServerContext(echo, ListenerConfig(certificate=certificate), log, SERVER)
    connection = Connection(house, TlsTransport(pipe, tls_context(*certificate)), CLIENT)
    assert house.limit.join(connection)

    async def run() -> None:
        await connection.run()
        over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        pipe.feed(sent)
        began_s = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert house.limit.idle() == [connection], "it gives way meanwhile"
        while not over.is_set():
            await trio.sleep(0.5)
            connection.look(trio.current_time())
            await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() - began_s == pytest.approx(house.config.handshake_s, abs=1.0)
    assert (pipe.closed, bytes(pipe.sent), log.lines) == ("close", b"", [])
    assert not house.limit.present


# ---------------------------------------------------------------- the files


def test_a_certificate_that_is_none_is_named(certificate, ca, tmp_path):
    cert, key = certificate
    other = tmp_path / "other.pem"
    ca.issue_cert("other").private_key_pem.write_to_path(str(other))
    with pytest.raises(ConfigError, match=r"http\.tls_key = .*nobody.* cannot be read: No such file"):
        tls_context(cert, tmp_path / "nobody")
    for wrong in (other, cert):
        with pytest.raises(ConfigError, match=r"http\.tls_cert = .* do not go together: "):
            tls_context(cert, wrong)
    with pytest.raises(ConfigError, match="do not go together"):
        tls_context(key, key)


def test_a_certificate_and_its_key_are_set_together(certificate):
    cert, key = map(str, certificate)
    assert load(environ={"JQD_HTTP__TLS_CERT": cert, "JQD_HTTP__TLS_KEY": key}).http.certificate == certificate
    with pytest.raises(ConfigError, match="tls_cert and tls_key go together"):
        load(environ={"JQD_HTTP__TLS_CERT": cert})
