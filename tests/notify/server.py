"""A real mail server for tests: aiosmtpd in a thread, with the refusals that a test asks for."""

import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

START_S = 60.0


def free_port() -> int:
    """aiosmtpd connects to the port that it was given, so that 0 fails."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


class Postbox:
    """What came, and what is said to what comes next."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.raw: list[bytes] = []
        self.envelopes: list[Any] = []
        self.answers: list[str] = []
        """To the next texts; none: it is taken."""
        self.refused: dict[str, str] = {}
        """Recipient → the answer to it."""
        self.refused_senders: dict[str, str] = {}
        self.came = threading.Semaphore(0)

    async def handle_MAIL(self, server: SMTP, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        envelope.mail_from = address
        return self.refused_senders.get(address, "250 OK")

    async def handle_RCPT(self, server: SMTP, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:
        if self.answers:
            return self.answers.pop(0)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.raw.append(envelope.content)
        self.envelopes.append(envelope)
        self.came.release()
        return "250 Message accepted for delivery"

    def wait(self, count: int = 1, timeout_s: float = 30.0) -> None:
        """Until so many more came."""
        for _ in range(count):
            assert self.came.acquire(timeout=timeout_s), f"no mail came within {timeout_s:g} s"


def _allows(server: SMTP, session: Any, envelope: Any, mechanism: str, auth_data: Any) -> AuthResult:
    is_right = isinstance(auth_data, LoginPassword) and auth_data == LoginPassword(b"jqd", b"secret")
    return AuthResult(success=is_right, handled=is_right)


@contextmanager
def mail_server(
    postbox: Postbox | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    wrapped: bool = False,
    login: bool = False,
    port: int = 0,
) -> Iterator[tuple[Postbox, int]]:
    """What came there, and its port. `tls`: it offers STARTTLS, or speaks TLS from the first byte if `wrapped`.

    `login`: only to user `jqd`, password `secret`. `port`: 0: any."""
    box, port = postbox or Postbox(), port or free_port()
    fields: dict[str, Any] = {}
    if login:
        fields = {"authenticator": _allows, "auth_required": True, "auth_require_tls": False}
    if tls is not None:
        fields |= {"ssl_context": tls} if wrapped else {"tls_context": tls}
    server = Controller(box, "127.0.0.1", port, ready_timeout=START_S, **fields)
    with warnings.catch_warnings():  # its own: it does not see TLS below it, and what it sets itself is deprecated
        warnings.simplefilter("ignore")
        server.start()
        try:
            yield box, port
        finally:
            server.stop()
