"""Limits of things that tenants share, such as handlers or pauses, and each tenant's part of them (docs/adr/0054).

A tenant may have a tenth at most. All tenants but "" leave a tenth free, so that an operator can always act.
"""

from collections import Counter
from typing import NamedTuple

PART = 10


class Share(NamedTuple):
    """The limit for one kind of things."""

    what: str
    """The plural of their name, for messages."""
    most: int
    """The most that all tenants together may have."""
    own: int = 0
    """The most that the tenant "" may have; 0: all that the others leave."""
    remedy: str = "delete some"
    """What to do about too many, for messages."""

    def why_no_more(self, tenant: str, there: Counter[str], more: int = 1) -> str | None:
        """Return why a tenant may not have `more` further things, or None. `there`: tenant → how many it has."""
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
