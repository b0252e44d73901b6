"""Runs the web UI: listens, serves its pages, and stops in order at SIGTERM or Ctrl-C."""

import signal
from collections.abc import Callable
from dataclasses import replace

import trio

from jqd.client import AsyncClient, Forbidden, JqdClientError
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.http import Listener, ListenerConfig, address_of, bind, from_asgi, url_of
from jqd.webui.api import UNAUTHORIZED
from jqd.webui.app import create_app
from jqd.webui.config import TIMEOUT_S, UiConfig

_log = get_logger("webui")


async def serve(config: UiConfig, *, ready: Callable[[str], None], stop: trio.Event | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, or until `stop` is set. Calls `ready` with the URL. Raises ConfigError if it
    cannot listen."""
    stop = trio.Event() if stop is None else stop
    files = (config.certificate, config.key) if config.certificate and config.key else None
    with bind(config.bind) as listener:
        if config.token:
            await _expect_known(config)
        ui = create_app(replace(config, bind=address_of(listener)))
        try:
            server = Listener(from_asgi(ui.app), listener, ListenerConfig(certificate=files), _log)
        except ConfigError as error:  # it names the daemon's settings
            named = str(error).replace("http.tls_cert", "--certificate").replace("http.tls_key", "--key")
            raise ConfigError(named) from error
        async with trio.open_nursery() as nursery:
            await nursery.start(_stop_at_signal, stop)
            ready(url_of(listener, config.scheme))
            try:
                await server.serve(stop.wait)
            finally:
                await ui.close()
            nursery.cancel_scope.cancel()


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


async def _stop_at_signal(stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as arriving:
        task_status.started()
        async for _ in arriving:
            stop.set()
            return
