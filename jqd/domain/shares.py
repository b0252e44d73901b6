"""Limits of what tenants share, and each tenant's part of them (docs/adr/0054).

A tenant has a tenth at most, and all but the tenant "" together leave a tenth free: so an operator can always act.
"""

from collections import Counter
from typing import NamedTuple

PART = 10


class Share(NamedTuple):
    """The limit for one kind of things."""

    what: str
    """The name of these settings, for messages."""
    most: int
    """There may be."""
    own: int = 0
    """The most that the tenant "" may have; 0: all that the others leave."""
    remedy: str = "delete some"
    """What whoever has too many can do."""

    def why_no_more(self, tenant: str, there: Counter[str], more: int = 1) -> str | None:
        """Return why a tenant cannot have so many more, or None. `there`: tenant → how many it has."""
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
