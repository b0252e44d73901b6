"""Where a list by name goes on: the last name of the page before, as text that may stand in a query.

Within jqd a tenant's names have a character that no request may have (domain/tenant.py).
"""

import base64

from jqd.domain.errors import Invalid


def cursor_of(name: str) -> str:
    """For the page behind that name; empty for none."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def name_of(cursor: str) -> str:
    """The last name of the page before. Raises Invalid for what no answer gave."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise Invalid(f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew") from error
