"""Sends notices by web hook: a JSON body, signed by Standard Webhooks, over the transport for workers.

The operator names the URL, so it may be on this machine; link-local addresses and cloud metadata are still refused.
"""

import trio

from jqd import __version__
from jqd.domain.clock import Clock
from jqd.domain.signature import signature
from jqd.notify.board import Notice
from jqd.notify.config import NotifyConfig
from jqd.notify.render import TROUBLE_LENGTH_MAX, body, one_line
from jqd.notify.rule import Fate, Result
from jqd.runner import SsrfGuard
from jqd.runner.endpoint import host_of, server_of
from jqd.runner.protocols.protocol import Request
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.transport import Pool
from jqd.runner.transport.http1 import LostError, Origin
from jqd.runner.transport.network import Network, UnreachedError

SEND_S = 30.0  # for the whole call: senders of web hooks usually wait no longer, so receivers answer sooner
CONNECT_S = 10.0
LATER = frozenset({408, 425, 429})  # statuses after which to try again; so are 5xx, as during a deploy


class HookSender:
    def __init__(self, config: NotifyConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._pool = Pool(Network(SsrfGuard()), 1, 0.0)
        self._where = f"the web hook at {host_of(config.hook_url)}"

    async def send(self, notice: Notice) -> Result:
        """Post a notice once; redirects are not followed."""
        with trio.move_on_after(SEND_S):
            try:
                return self._judge(await self._post(self._request(notice)))
            except UnreachedError as error:
                return Result(Fate.LATER, self._trouble(f"is not reached: {error}"))
            except LostError as error:
                return Result(Fate.UNKNOWN, self._trouble(f"did not say whether it took the notice: {error}"))
        return Result(Fate.UNKNOWN, self._trouble(f"does not answer within {SEND_S:g} s"))

    async def _post(self, request: Request) -> int:
        """Post the request and return the HTTP status of the response. Raises UnreachedError, LostError."""
        origin = Origin(*server_of(self._config.hook_url), AddressPolicy.LOOPBACK)
        wire = await self._pool.take(origin, CONNECT_S)
        try:
            await wire.ask(request)
            return wire.status
        finally:
            self._pool.give(wire)

    def _request(self, notice: Notice) -> Request:
        content, config = body(notice, self._config.link), self._config
        headers = [("Content-Type", "application/json"), ("User-Agent", f"jqd/{__version__}")]
        secrets = [config.hook_secret] if config.hook_secret else []
        signed = signature(secrets, notice.id, self._clock.wall_ms() // 1000, content)
        return Request("POST", config.hook_url, headers + (signed or [("webhook-id", notice.id)]), content)

    def _judge(self, status: int) -> Result:
        if 200 <= status < 300:
            return Result(Fate.SENT)
        fate = Fate.LATER if status in LATER or status >= 500 else Fate.REFUSED
        return Result(fate, self._trouble(f"answered {status}"), was_read=True)

    def _trouble(self, what: str) -> str:
        return f"{self._where} {one_line(what, TROUBLE_LENGTH_MAX)}; mend notify.hook_url, or what answers there"
