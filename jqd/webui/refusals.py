"""What a page says that refuses: what is wrong, why, and what to do about it, in words of this UI."""

from typing import NamedTuple

from werkzeug.exceptions import HTTPException

from jqd.client import Forbidden, JqdClientError, NotFound
from jqd.domain.errors import JqdError
from jqd.webui.rights import ASK


class LoginNeeded(JqdError):
    """Nobody is logged in, and the page needs somebody. The browser is sent to the login."""


class OtherLogin(JqdError):
    """A request of a page's part whose page was opened by another login of this browser. The whole page is loaded anew,
    so that its head names whose rights it has now."""


class Refused(JqdError):
    """The UI itself refuses a request: a form of another site, a host that it does not know, a page that the role may
    not see. Shown as it is, with `remedy`: what to do about it."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


class Refusal(NamedTuple):
    status: int
    title: str
    why: str
    remedy: str = ""


INTERNAL_ERROR = Refusal(
    500, "The UI made a mistake", "nothing is known to be wrong with your request", "The log of `jqd ui` says more."
)
NOT_UNDERSTOOD = "Not understood"
TITLES = {403: "Refused", 404: "Not found", 405: "Not done", 408: "Not done", 413: "Too long"}
WHYS = {
    404: ("there is no page {path}", "See that its address is whole, or begin at one of the pages there are."),
    405: ("the page {path} takes no {method}", "Open it, and use its buttons."),
    408: ("the form did not arrive in time", "Send it again."),
    413: ("this form is longer than the API takes", "Shorten what was typed, or use the command line."),
}
"""Status → why a request found no page, and what to do."""


def refusal_of(error: Exception, method: str, path: str) -> Refusal | None:
    """Return what to show of an error; None where it is none that is expected."""
    match error:
        case Refused():
            return Refusal(403, TITLES[403], str(error), error.remedy)
        case HTTPException():
            return _of_http(error, method, path)
        case Forbidden():
            return Refusal(error.status or 403, TITLES[403], str(error), f"{ASK}.")
        case NotFound():
            return Refusal(404, TITLES[404], str(error), "See that its name is right; what was deleted is gone.")
        case JqdClientError():
            status = error.status if 400 <= error.status < 500 else 502
            return Refusal(status, "The API refused this", str(error))
    return None


def _of_http(error: HTTPException, method: str, path: str) -> Refusal:
    status = error.code or 500
    title = TITLES.get(status, NOT_UNDERSTOOD)
    if error.description and error.description != type(error).description:  # a page of ours said it
        return Refusal(status, title, error.description)
    why, remedy = WHYS.get(status, ("this request could not be read", "Load the page anew, and try again."))
    return Refusal(status, title, why.format(path=path, method=method), remedy)
