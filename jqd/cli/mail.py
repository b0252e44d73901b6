"""`jqd mail test`: checks whether the administrator would get mail, and says what is wrong if not."""

import secrets

from jqd.cli.common import ConfigFile, worded
from jqd.cli.config import daemon_settings
from jqd.cli.exits import Exit
from jqd.cli.printing import print_note
from jqd.domain.clock import SystemClock
from jqd.domain.errors import ConfigError
from jqd.notify.mail import MailError, deliver, trial_mail


async def trial(*, config: ConfigFile = None) -> int:
    """Send a mail to the administrator, as a daemon with these settings would, and say what is wrong if it cannot.

    Ends with 0 if the mail server took it for all recipients, with 1 if it did not, with 2 if no server is named.
    """
    notify = daemon_settings(config, None, None).notify
    with worded():
        if not notify.smtp_host:
            raise ConfigError("no mail server is named: set notify.smtp_host, notify.mail_from and notify.mail_to")
    mail = trial_mail(notify, secrets.token_hex(12), SystemClock().wall_ms())
    try:
        _, trouble = await deliver(notify, mail, [*notify.mail_to])
    except MailError as error:
        trouble = str(error)
    if trouble:
        print_note(trouble)
        return Exit.FAILED
    where = f"{notify.smtp_host} port {notify.smtp_port}"
    print_note(f"the mail server {where} took a mail to {', '.join(notify.mail_to)}; look there")
    return Exit.DONE
