"""A page that asks for confirmation before an act that cannot be undone."""

from typing import NamedTuple

from quart import Response

from jqd.webui.visit import Visit


class Question(NamedTuple):
    """A question to the person, and the form that a yes sends."""

    title: str
    warning: str
    verb: str
    """What stands on the button."""
    right: str
    """As `rights.py` calls it."""
    act: str
    """The path that the form goes to."""
    fields: dict[str, str]
    back: str
    """The URL of a no."""


def ask(visit: Visit, question: Question) -> Response:
    return visit.render("sure.html", question=question)
