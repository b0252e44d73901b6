"""Runs the web UI: binds, serves its pages by hypercorn, and stops in order at SIGTERM or Ctrl-C. At SIGHUP it
looks at once whether the files of its certificate were replaced, as it does every few seconds."""

import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import hypercorn
import trio
from hypercorn.trio import serve as serve_hypercorn
from hypercorn.typing import ASGIFramework, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from quart_trio import QuartTrio

from jqd.client import AsyncClient, Forbidden, JqdClientError
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.webui.api import UNAUTHORIZED
from jqd.webui.app import create_app
from jqd.webui.certificate import Certificate
from jqd.webui.config import TIMEOUT_S, UiConfig
from jqd.webui.connection import HEAD_S, guard_connections

BACKLOG = 256  # connections not yet accepted: browsers of a team that come back at once
KEEP_ALIVE_S = 75.0  # longer than proxies keep theirs
WRITE_S = 30.0  # after so long the kernel cuts off a browser that reads nothing
LAST_S = 10.0  # for the last part of an answer to be sent
CLOSE_S = 2.0  # for answers under way at a stop; streams of open pages end then
REQUESTS_MAX = 10**9  # of one connection: hypercorn's own 1,000 breaks streams beside it

_log = get_logger("webui")


async def serve(config: UiConfig, *, ready: Callable[[str], None], stop: trio.Event | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, or until `stop` is set. Calls `ready` with the URL. Raises ConfigError if it
    cannot listen."""
    stop = trio.Event() if stop is None else stop
    settings = _Settings()
    if config.certificate and config.key:
        settings.certificate = Certificate(config.certificate, config.key, settings.alpn_protocols, settings.ciphers)
    if config.token:
        await _expect_known(config)
    listener = _listen(config)
    url = f"{'https' if config.has_tls else 'http'}://{_shown(listener)}"
    config = replace(config, bind=str(config.address._replace(port=listener.getsockname()[1])))
    _set(settings, config, listener)
    guard_connections()
    ui = create_app(config)

    async def stopped() -> None:
        await stop.wait()
        ui.close_streams()

    async with trio.open_nursery() as nursery:
        await nursery.start(_follow_signals, stop, settings.certificate)
        if settings.certificate is not None:
            nursery.start_soon(settings.certificate.follow)
        async with trio.open_nursery() as serving:
            await serving.start(partial(serve_hypercorn, _ending(ui.app), settings, shutdown_trigger=stopped))
            ready(url)
        nursery.cancel_scope.cancel()


class _Settings(hypercorn.Config):
    """hypercorn's settings, with a certificate that may be replaced while it serves."""

    certificate: Certificate | None = None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self.certificate.context if self.certificate is not None else None


async def _expect_known(config: UiConfig) -> None:
    """Check that a daemon accepts the UI's token. Raises ConfigError if the token is unknown. If no daemon answers,
    only logs this, because pages ask again."""
    client = AsyncClient(list(config.urls), timeout_s=TIMEOUT_S, token=config.token)
    try:
        await client.me()
    except Forbidden as error:
        if error.status == UNAUTHORIZED:
            raise ConfigError(f"the daemon does not know the token that the UI was given: {error}") from error
        _log.warning("webui.token_limited", why=str(error))
    except JqdClientError as error:
        _log.warning("webui.daemon_away", why=str(error))
    finally:
        client.client.close()


def _ending(app: QuartTrio) -> ASGIFramework:
    """Wrap the application so that the last part of each answer is sent completely. hypercorn tells the application
    that a request is over as soon as it gets that part, and this would cancel the sending."""

    async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "websocket":  # no page has one; closing before accepting answers 403
            await send({"type": "websocket.close", "code": 1000, "reason": None})
            return
        if scope["type"] == "http" and not scope["path"].startswith("/"):  # a proxy request, say: no path of the UI
            await send({"type": "http.response.start", "status": 400, "headers": [], "trailers": False})
            await send({"type": "http.response.body", "body": b"a path begins with /\n", "more_body": False})
            return

        async def sent(message: ASGISendEvent) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                with trio.move_on_after(LAST_S, shield=True):
                    await send(message)
            else:
                await send(message)

        await app(scope, receive, sent)

    return answer


def _listen(config: UiConfig) -> socket.socket:
    host, port = config.address
    try:
        family, _, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(at, family=family, backlog=BACKLOG)
        # Accepted connections inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(WRITE_S * 1000))
    except OSError as error:
        raise ConfigError(
            f"the web UI cannot listen on {config.bind}: {error.strerror or error}; choose another address with "
            "--bind HOST:PORT, port 0 for any free one"
        ) from error
    return listener


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _set(settings: hypercorn.Config, config: UiConfig, listener: socket.socket) -> None:
    settings.bind = [f"fd://{listener.detach()}"]
    settings.backlog = BACKLOG
    settings.ssl_handshake_timeout = HEAD_S
    settings.keep_alive_timeout = KEEP_ALIVE_S
    settings.keep_alive_max_requests = REQUESTS_MAX
    settings.graceful_timeout = CLOSE_S
    settings.include_server_header = False
    settings.accesslog = settings.errorlog = None
    if config.has_tls:
        settings.certfile, settings.keyfile = str(config.certificate), str(config.key)


async def _follow_signals(
    stop: trio.Event, certificate: Certificate | None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    # Without a certificate SIGHUP means what it means to others: the terminal is gone.
    reloads = [] if certificate is None else [signal.SIGHUP]
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *reloads) as arriving:
        task_status.started()
        async for number in arriving:
            if certificate is None or number != signal.SIGHUP:
                stop.set()
                return
            certificate.look()
