"""Limits for things of which all tenants together may have only so many, such as handlers or pauses, and the share of
each tenant (docs/adr/0054).

A tenant may have at most a tenth of the limit. The tenants other than "" together must leave a tenth free, so that an
operator can always act.
"""

from collections import Counter
from typing import NamedTuple

PART = 10


class Share(NamedTuple):
    """The limit for the number of things of one kind, such as handlers."""

    what: str
    """The name of the things, in plural, for messages."""
    most: int
    """The most that all tenants together may have."""
    own: int = 0
    """The most that the tenant "" may have; 0: all that the other tenants leave."""
    remedy: str = "delete some"
    """What to do if there are too many, for messages."""

    def why_no_more(self, tenant: str, there: Counter[str], more: int = 1) -> str | None:
        """Return why a tenant may not have `more` further things; None if it may. `there`: tenant → how many it has."""
        part, total = self.most // PART, there.total()
        if tenant and there[tenant] + more > part:
            return f"a tenant may have {part} {self.what}, and {tenant!r} has {there[tenant]}; {self.remedy}"
        if tenant and total - there[""] + more > self.most - part:
            return f"all tenants together may have {self.most - part} {self.what}, and have them; ask who runs this jqd"
        if total + more > self.most:
            return f"there may be {self.most} {self.what}, and no more; {self.remedy}"
        if not tenant and self.own and there[""] + more > self.own:
            return f"there may be {self.own} {self.what}, and no more; {self.remedy}"
        return None
