"""Sends notices by mail: makes the mail, and gives it to the mail server, in a thread with a time limit.

If an error comes before the text was sent, nothing has arrived; if the connection breaks after it, the mail may have
arrived. One recipient that is refused for good does not keep the mail from the others.
"""

import hashlib
import re
import smtplib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

import trio

from jqd import __version__
from jqd.domain.errors import JqdError
from jqd.notify.board import Notice, Row
from jqd.notify.config import NotifyConfig
from jqd.notify.render import TEST, TROUBLE_LENGTH_MAX, one_line, subject, text
from jqd.notify.rule import Fate, Result

STEP_S = 10.0  # for one answer, or to connect
TEXT_S = 120.0  # for the answer to the text, behind filters that read it: Postfix gives them 100 s (RFC 5321: 10 min)
_DOT = re.compile(rb"^\.", re.MULTILINE)


class MailError(JqdError):
    """The mail server did not accept the mail, or may not have. The message says what to correct."""

    def __init__(
        self,
        message: str,
        *,
        is_final: bool = False,
        may_have_arrived: bool = False,
        was_read: bool = False,
        done: Sequence[str] = (),
        reached: bool = False,
        each_refused: bool = False,
    ) -> None:
        """`is_final`: trying again would fail, too. `was_read`: the server got the text, which may be why it refused
        the mail. `done`: recipients that have the mail, or never will. `reached`: the server answered for the
        recipients. `each_refused`: it refused each of them for good."""
        super().__init__(message)
        self.is_final, self.may_have_arrived, self.was_read, self.done = is_final, may_have_arrived, was_read, done
        self.reached, self.each_refused = reached, each_refused


class Session:
    """One connection to the mail server, for one mail."""

    def __init__(self, config: NotifyConfig) -> None:
        self.may_have_arrived = False
        """Whether the text was sent and the server has not answered it yet."""
        self.reached = False
        """Whether the server has answered for all recipients."""
        self._config = config
        self._where = f"the mail server {config.smtp_host} port {config.smtp_port}"
        self._raw: socket.socket | None = None
        self._is_cut = False

    def cut(self) -> None:
        """Break the connection. Called from another thread: a call that waits for the server then returns at once."""
        self._is_cut = True
        if self._raw is not None:
            with suppress(OSError):  # the connection has ended already
                self._raw.shutdown(socket.SHUT_RDWR)

    def send(self, mail: EmailMessage, recipients: Sequence[str]) -> tuple[list[str], str]:
        """Send a mail. Returns the recipients that need no further try, and why some of them never get the mail (empty:
        all have it). Raises MailError."""
        try:
            text = mail.as_bytes(policy=SMTP)
        except (ValueError, MessageError) as error:
            raise MailError(f"the mail cannot be written: {_words_of(error)}", is_final=True) from error
        smtp = smtplib.SMTP(local_hostname=_own_name(), timeout=STEP_S)
        try:
            self._connect(smtp)
            self._begin(smtp)
            delivered = self._hand_over(smtp, text, recipients)
            with suppress(OSError, smtplib.SMTPException):  # the mail is delivered, whatever the answer
                smtp.putcmd("QUIT")
            return delivered
        except MailError as error:
            error.reached = self.reached
            raise
        except (OSError, smtplib.SMTPException, ValueError) as error:
            # The steps raise MailError for refusals. Here the connection broke, or an answer was malformed.
            within_s = TEXT_S if self.may_have_arrived else STEP_S
            why = f"{self._where} {_broke(error, within_s)}"
            raise MailError(why, may_have_arrived=self.may_have_arrived, reached=self.reached) from error
        finally:
            smtp.close()

    def _connect(self, smtp: smtplib.SMTP) -> None:
        config = self._config
        try:
            self._raw = socket.create_connection((config.smtp_host, config.smtp_port), STEP_S)
        except (socket.gaierror, UnicodeError) as error:
            why = f"the name {config.smtp_host} of the mail server cannot be looked up: {_words_of(error)}"
            raise MailError(f"{why}; mend notify.smtp_host") from error
        except OSError as error:
            mend = "mend notify.smtp_host and notify.smtp_port, and let firewalls let it through"
            raise MailError(f"{self._where} is not reached: {_words_of(error)}; {mend}") from error
        smtp.sock = self._raw
        if self._is_cut:
            raise MailError(f"{self._where} was not reached in time")
        if config.smtp_security == "tls":
            self._secure(smtp)
        _expect(smtp.getreply(), f"{self._where} does not let us in", "ask who runs it", 220)

    def _begin(self, smtp: smtplib.SMTP) -> None:
        config, where = self._config, self._where
        try:
            smtp.ehlo_or_helo_if_needed()
            if config.smtp_security == "starttls":
                self._start_tls(smtp)
            if config.smtp_login:
                smtp.login(config.smtp_login, config.smtp_password)
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPAuthenticationError as error:
            why = f"{where} does not take the login: {_answer(error.smtp_code, error.smtp_error)}"
            mend = "mend notify.smtp_login and notify.smtp_password"
            raise MailError(f"{why}; {mend}", is_final=error.smtp_code >= 500) from error
        except smtplib.SMTPResponseException as error:
            why = f"{where} refuses to begin: {_answer(error.smtp_code, error.smtp_error)}"
            raise MailError(f"{why}; ask who runs it", is_final=error.smtp_code >= 500) from error
        except smtplib.SMTPException as error:
            mend = "leave notify.smtp_login out, or mend notify.smtp_port and notify.smtp_security"
            raise MailError(f"{where} takes no login here: {_words_of(error)}; {mend}", is_final=True) from error

    def _start_tls(self, smtp: smtplib.SMTP) -> None:
        """Send STARTTLS and switch to TLS. Then forget what the server announced before TLS, as anybody on the network
        may have sent it."""
        what = f"{self._where} offers no STARTTLS, and nothing is sent without"
        mend = "set notify.smtp_security to 'tls', mostly with port 465, or to 'none' in a network you trust"
        if not smtp.has_extn("starttls"):
            raise MailError(f"{what}; {mend}", is_final=True)
        _expect(smtp.docmd("STARTTLS"), what, mend, 220)
        self._secure(smtp)
        smtp.file = None
        smtp.ehlo_resp = smtp.helo_resp = None
        smtp.esmtp_features, smtp.does_esmtp = {}, False
        smtp.ehlo_or_helo_if_needed()

    def _secure(self, smtp: smtplib.SMTP) -> None:
        """Switch the connection to TLS, and check the server's certificate and name."""
        host, raw = self._config.smtp_host, self._raw
        assert raw is not None, "TLS begins on a line"
        try:
            secured = ssl.create_default_context().wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False)
            smtp.sock = self._raw = secured
            secured.do_handshake()
        except ssl.SSLCertVerificationError as error:
            why = f"the certificate of {self._where} is not trusted: {_words_of(error.verify_message)}"
            mend = "write notify.smtp_host as its certificate does, or let SSL_CERT_FILE name who vouches for it"
            raise MailError(f"{why}; {mend}") from error
        except ssl.SSLError as error:
            mend = "465 mostly goes with notify.smtp_security = 'tls', 587 with 'starttls'"
            raise MailError(f"{self._where} does not speak TLS as we do: {_words_of(error)}; {mend}") from error

    def _hand_over(self, smtp: smtplib.SMTP, text: bytes, recipients: Sequence[str]) -> tuple[list[str], str]:
        where, sender = self._where, self._config.mail_from
        mend = "mend notify.mail_from, or let the server take mail of it"
        _expect(smtp.mail(sender), f"{where} does not take mail from {sender}", mend)
        answers = {each: smtp.rcpt(each) for each in recipients}
        self.reached = True
        taken = [each for each, (code, _) in answers.items() if code in (250, 251, 252)]
        never = [each for each, (code, _) in answers.items() if code >= 500]
        not_taken = [f"to {each}: {_answer(*answers[each])}" for each in answers if each not in taken]
        trouble = f"{where} does not take mail {'; '.join(not_taken)}; mend notify.mail_to" if not_taken else ""
        is_whole = len(taken) + len(never) == len(answers)
        if not taken:
            raise MailError(trouble, is_final=is_whole, each_refused=is_whole)
        if self._is_cut:
            raise MailError(f"{where} took too long")
        _expect(smtp.docmd("DATA"), f"{where} takes no text", "ask who runs it", 354)
        self.may_have_arrived = True
        assert self._raw is not None, "a text is sent over a line"
        self._raw.settimeout(TEXT_S)
        smtp.send(_DOT.sub(b"..", text) + (b"" if text.endswith(b"\r\n") else b"\r\n") + b".\r\n")
        answer = smtp.getreply()
        self.may_have_arrived = False
        _expect(answer, f"{where} does not take the mail", "ask who runs it", was_read=True)
        if not is_whole:
            raise MailError(trouble, done=[*taken, *never])
        return [*taken, *never], trouble


def _expect(answer: tuple[int, bytes], what: str, mend: str, wanted: int = 250, *, was_read: bool = False) -> None:
    if answer[0] != wanted:
        raise MailError(f"{what}: {_answer(*answer)}; {mend}", is_final=answer[0] >= 500, was_read=was_read)


def _answer(code: int, text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return one_line(f"{code} {words}", TROUBLE_LENGTH_MAX)


def _broke(error: Exception, within_s: float) -> str:
    """Return a text that says how the mail server failed to answer."""
    is_silent = isinstance(error, TimeoutError) or "timed out" in str(error)
    return f"does not answer within {within_s:g} s" if is_silent else f"ended the connection: {_words_of(error)}"


def _words_of(error: Exception | str) -> str:
    return one_line(str(error) or type(error).__name__, TROUBLE_LENGTH_MAX)


def _own_name() -> str:
    """Return this machine's name for the SMTP greeting; an address if it has no full name. Makes no slow DNS
    look-up."""
    name = socket.gethostname()
    return name if "." in name and name.isascii() else "[127.0.0.1]"


SEND_S = 150.0  # for a whole mail: new failures wait meanwhile, and so does the web hook
REFERENCES_MAX = 10  # groups whose mail threads one mail joins
DOMAIN_LENGTH_MAX = 40  # characters in ids: a longer header would be folded

_threads = trio.CapacityLimiter(1)


class MailSender:
    def __init__(self, config: NotifyConfig) -> None:
        self._config = config

    async def send(self, notice: Notice) -> Result:
        """Send a notice to the recipients that do not have it yet."""
        left = [each for each in self._config.mail_to if each not in notice.done]
        if not left:  # the others were removed from the settings
            return Result(Fate.SENT)
        try:
            done, trouble = await deliver(self._config, mail_of(notice, self._config), left)
        except MailError as error:
            fate = Fate.REFUSED if error.is_final else Fate.UNKNOWN if error.may_have_arrived else Fate.LATER
            return Result(fate, str(error), error.done, error.was_read, error.reached, error.each_refused)
        return Result(Fate.SENT, trouble, done)


async def deliver(config: NotifyConfig, mail: EmailMessage, recipients: list[str]) -> tuple[list[str], str]:
    """Send a mail in a thread. Returns the recipients that need no further try, and why some of them never get the mail
    (empty: all have it). Raises MailError."""
    session = Session(config)
    with trio.move_on_after(SEND_S):
        try:
            return await trio.to_thread.run_sync(
                session.send, mail, recipients, abandon_on_cancel=True, limiter=_threads
            )
        except trio.Cancelled:
            session.cut()
            raise
    raise MailError(
        f"the mail server {config.smtp_host} port {config.smtp_port} took longer than {SEND_S:g} s; look at its log",
        may_have_arrived=session.may_have_arrived,
        reached=session.reached,
    )


def mail_of(notice: Notice, config: NotifyConfig) -> EmailMessage:
    """Return the mail for a notice; the same notice gives the same mail. Mails about the same group refer to one
    message id, so that mail programs show them as a thread."""
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
    mail["Subject"] = about.replace("=?", "= ?")  # an encoded word would be decoded here, and could end the header
    mail["Date"] = datetime.fromtimestamp(at_ms // 1000, UTC)
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail["X-Mailer"] = f"jqd {__version__}"
    mail.set_content(words, cte="quoted-printable")
    return mail


def _domain(config: NotifyConfig) -> str:
    domain = config.mail_from.rpartition("@")[2]
    return domain if len(domain) <= DOMAIN_LENGTH_MAX else "jqd.invalid"
