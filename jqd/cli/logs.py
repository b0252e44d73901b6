"""Sets up the log of a command that stays."""

from typing import Any

from jqd.cli.exits import Usage
from jqd.domain import log


def set_log(level: str, form: Any) -> None:
    """The one format and level of this process. Raises Usage for a level that is none."""
    try:
        log.configure(level=level, form=form)
    except ValueError as error:
        raise Usage(str(error)) from error
