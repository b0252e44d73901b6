"""A notice by mail: its headers, and its way through a thread that blocks nobody for long."""

import hashlib
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from functools import partial

import trio

from jqd import __version__
from jqd.notify.board import Notice, Row
from jqd.notify.config import NotifyConfig
from jqd.notify.render import TEST, subject, text
from jqd.notify.rule import Fate, Result
from jqd.notify.smtp import MailError, Session

SEND_S = 30.0  # for all of it: a daemon that sends must act again before others take over (loop.HOLD_S)
REFERENCES_MAX = 10  # groups that one mail is filed under
DOMAIN_LENGTH_MAX = 40  # characters in ids: a longer header would be folded

_threads = trio.CapacityLimiter(1)


class MailSender:
    def __init__(self, config: NotifyConfig) -> None:
        self._config = config

    async def send(self, notice: Notice) -> Result:
        """Hand it to the mail server, for those who do not have it yet."""
        left = [each for each in self._config.mail_to if each not in notice.done]
        if not left:  # they were taken out of the settings
            return Result(Fate.SENT)
        try:
            done, trouble = await deliver(self._config, mail_of(notice, self._config), left)
        except MailError as error:
            fate = Fate.REFUSED if error.is_final else Fate.UNKNOWN if error.may_have_arrived else Fate.LATER
            return Result(fate, str(error), error.done)
        return Result(Fate.SENT, trouble, done)


async def deliver(config: NotifyConfig, mail: EmailMessage, recipients: list[str]) -> tuple[list[str], str]:
    """Hand a mail over. Returns who has it or never will, and what is wrong with these. Raises MailError."""
    session = Session(config)
    with trio.move_on_after(SEND_S):
        try:
            done, trouble = await trio.to_thread.run_sync(
                partial(session.send, mail, recipients), abandon_on_cancel=True, limiter=_threads
            )
            return [*done], trouble
        except trio.Cancelled:
            session.cut()
            raise
    raise MailError(
        f"the mail server {config.smtp_host} port {config.smtp_port} took longer than {SEND_S:g} s; look at its log",
        may_have_arrived=session.may_have_arrived,
    )


def mail_of(notice: Notice, config: NotifyConfig) -> EmailMessage:
    """The mail, always the same of one notice. Its groups are threads: each refers to a name made of them."""
    domain = _domain(config)
    mail = _mail(config, subject(notice), text(notice, config.link), notice.at_ms)
    mail["Message-ID"] = f"<{notice.id}@{domain}>"
    names = [f"<{_digest(row)}@{domain}>" for row in notice.rows[:REFERENCES_MAX]]
    mail["In-Reply-To"] = names[0]
    mail["References"] = " ".join(names)
    return mail


def _digest(row: Row) -> str:
    return hashlib.sha256("\0".join(row.key).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def trial_mail(config: NotifyConfig, mail_id: str, now_ms: int) -> EmailMessage:
    mail = _mail(config, *TEST, now_ms)
    mail["Message-ID"] = f"<{mail_id}@{_domain(config)}>"
    return mail


def _mail(config: NotifyConfig, about: str, words: str, at_ms: int) -> EmailMessage:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = Address("jqd", addr_spec=config.mail_from)
    mail["To"] = [Address(addr_spec=each) for each in config.mail_to]
    mail["Subject"] = about
    mail["Date"] = datetime.fromtimestamp(at_ms // 1000, UTC)
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail["X-Mailer"] = f"jqd {__version__}"
    mail.set_content(words, cte="quoted-printable")
    return mail


def _domain(config: NotifyConfig) -> str:
    domain = config.mail_from.rpartition("@")[2]
    return domain if len(domain) <= DOMAIN_LENGTH_MAX else "jqd.invalid"
