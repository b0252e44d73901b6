"""Answers to requests that end in an error instead of a page."""

from jqd.domain.errors import JqdError


class LoginNeeded(JqdError):
    """Nobody is logged in, and the page needs somebody. The browser is sent to the login."""


class OtherLogin(JqdError):
    """A request of a page's part whose page was opened by another login of this browser. The whole page is loaded anew,
    so that
    its head names whose rights it has now."""


class Refused(JqdError):
    """The UI itself refuses a request: a form of another site, a host that it does not know, a page that the role may
    not see. Shown as it is, with `remedy`: what to do about it."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy
