"""Settings of notices to the administrator. Notices are off if neither a mail server nor a web hook is configured."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from jqd.domain import address
from jqd.domain.setting_text import SECRET, WHOLE
from jqd.domain.signature import why_no_secrets
from jqd.domain.units import Count, Span
from jqd.runner.endpoint import why_no_url

RECIPIENTS_MAX = 20  # for more, use a mailing list of the mail server
RESOLVED_S_MIN = 600.0  # failures of this age may be read twice after a restart: their group must still exist (loop.py)
Later = Annotated[float, Meta(ge=RESOLVED_S_MIN, le=30 * 86_400.0, description="10 minutes to 30 days")]
Port = Annotated[int, Meta(ge=1, le=65_535, description="1 to 65535")]
# Addresses that mail servers take without the extension for other alphabets, and that cannot end a header line. Words
# have single dots between them, else headers are refused; and `=?` would begin an encoded word.
_ATOM, _LABEL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+", r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_MAILBOX = re.compile(rf"(?=.{{1,254}}\Z)(?=[^@]{{1,64}}@)(?!.*=\?){_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """How the administrator is told of jobs that failed for good. All daemons of a store need the same values."""

    smtp_host: str = ""
    """The mail server that takes the notices; without it no mail is sent."""
    smtp_port: Port = 587
    """587 goes with `starttls`, 465 with `tls`, 25 with either."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """`tls` from the first byte; `starttls`: never without; `none`: only in a network you trust."""
    smtp_login: str = ""
    """The user at the mail server; without it nobody logs in."""
    smtp_password: str = field(default="", metadata={SECRET: WHOLE})
    """That user's password; better in a file: `JQD_NOTIFY__SMTP_PASSWORD_FILE`."""
    mail_from: str = ""
    """Who the mail is from.
    Allowed: an address like jqd@example.org"""
    mail_to: tuple[str, ...] = ()
    """Whom it goes to; each sees the others.
    Allowed: up to 20 addresses like ops@example.org"""
    hook_url: str = field(default="", metadata={SECRET: WHOLE})
    """A web hook that gets the same notices as JSON; also in a file: `JQD_NOTIFY__HOOK_URL_FILE`.
    Allowed: an http(s) URL"""
    hook_secret: str = field(default="", metadata={SECRET: WHOLE})
    """Signs what goes to the web hook, as Standard Webhooks has it; better in a file.
    Allowed: `whsec_` and 24 to 64 bytes in base64"""
    link: str = ""
    """A page of failures, such as the web UI's, which each group gets a link to.
    Allowed: an http(s) URL"""
    first_s: Span = 30.0
    """So long after the first failure of a group it is told: others of that moment go into the same notice."""
    change_s: Span = 300.0
    """A group is told again no sooner: when it has ten times as many failures as were told, or when it is over."""
    repeat_s: Span = 14_400.0
    """A group that goes on failing is told again so long after it was told."""
    resolved_s: Later = 3_600.0
    """A group is over, and that is told, when nothing of it failed for so long."""
    hourly_max: Count = 20
    """Mails in an hour, and calls of the web hook. What comes then is held back and told together."""

    @property
    def is_on(self) -> bool:
        """Whether a mail server or a web hook is configured."""
        return bool(self.smtp_host or self.hook_url)

    def __post_init__(self) -> None:
        if self.smtp_host:
            self._expect_mail()
        elif self.mail_from or self.mail_to or self.smtp_login or self.smtp_password:
            raise ValueError("smtp_host is missing: name the mail server that takes the notices")
        if self.hook_url and (why := why_no_url(self.hook_url, filled=False, queried=True)):
            raise ValueError(f"hook_url {why}; write one like https://chat.example.org/hooks/jqd")
        if self.hook_secret and not self.hook_url:
            raise ValueError("hook_secret is for a web hook: set hook_url, too")
        if self.hook_secret and (why := why_no_secrets([self.hook_secret])):
            raise ValueError(f"hook_secret: {why}")
        if self.link and (not address.is_http(self.link) or not self.link.isprintable() or " " in self.link):
            raise ValueError(f"link = {self.link!r} is no URL; write one like https://jqd.example.org/errors")
        if self.resolved_s < self.change_s:
            raise ValueError(f"resolved_s = {self.resolved_s:g} must not be below change_s = {self.change_s:g}")

    def _expect_mail(self) -> None:
        if not self.smtp_host.isascii() or not self.smtp_host.isprintable() or " " in self.smtp_host:
            raise ValueError(f"smtp_host = {self.smtp_host!r} is no name of a server; write one like mail.example.org")
        if not self.mail_to:
            raise ValueError('mail_to is empty: name who is to be told, like ["ops@example.org"]')
        if len(self.mail_to) > RECIPIENTS_MAX:
            raise ValueError(
                f"mail_to has {len(self.mail_to)} addresses, {RECIPIENTS_MAX} at most: name a mailing list"
            )
        for name, mailbox in (("mail_from", self.mail_from), *(("mail_to", one) for one in self.mail_to)):
            if not _MAILBOX.fullmatch(mailbox):
                raise ValueError(f"{name} = {mailbox!r} is no address; write one like jqd@example.org")
        if bool(self.smtp_login) != bool(self.smtp_password):
            raise ValueError("smtp_login and smtp_password go together: set both, or neither")
        if self.smtp_login and not (self.smtp_login.isascii() and self.smtp_password.isascii()):
            raise ValueError("smtp_login and smtp_password must be ASCII: mail servers take nothing else")
        if self.smtp_login and self.smtp_security == "none" and not address.is_loopback(self.smtp_host):
            raise ValueError(
                "smtp_security = 'none' would send smtp_password readable through the network: set it to 'starttls' or"
                " 'tls', or leave smtp_login out"
            )
