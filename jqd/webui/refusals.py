"""Errors that are shown in place of a page, and their texts: what is wrong, why, and what to do."""

from typing import NamedTuple

from werkzeug.exceptions import HTTPException

from jqd.client import Forbidden, JqdClientError, NotFound
from jqd.domain.errors import JqdError
from jqd.webui.rights import ASK


class LoginNeeded(JqdError):
    """The page needs a login, and the browser has none. It is redirected to the login page."""


class OtherLogin(JqdError):
    """An open page requested a part, but its browser has logged in again since the page was loaded. The whole page is
    reloaded, to show what the new login sees."""


class Refused(JqdError):
    """The UI itself refuses a request: the form of another site, an unknown host, a page that the role may not see. The
    error page shows the message, and `remedy`: what to do about it."""

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
"""HTTP status → why the request failed; what to do."""


def refusal_of(error: Exception, method: str, path: str) -> Refusal | None:
    """Return the error page for an exception; None if it is unexpected (a bug)."""
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
    if error.description and error.description != type(error).description:  # raised by a page with its own text
        return Refusal(status, title, error.description)
    why, remedy = WHYS.get(status, ("this request could not be read", "Load the page anew, and try again."))
    return Refusal(status, title, why.format(path=path, method=method), remedy)
