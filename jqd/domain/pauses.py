"""What is paused until somebody says so: jobtypes, tenants, daemons. Rules of kinds of their own, under their names."""

import msgspec

from jqd.domain.settings import Rule, Rules
from jqd.domain.tenant import SEPARATOR, tenant_of

PAUSE = "pause"  # a kind of rule; its body: the instant in ms since 1970 since which it holds, and who said so, or ""
DRAIN = "drain"  # the same of a daemon: its body is alike, its name the daemon's
HALT = "halt"  # and of all jobtypes of a tenant, under `all_of(tenant)`
BAN = (
    "ban"  # the same, said by who runs jqd: what the tenant says meanwhile, at a daemon that has not heard of it, takes
)
# nothing away from it
STOPS = frozenset(
    {PAUSE, DRAIN, HALT, BAN}
)  # never refused for their bytes: few, and what stops is said when it is late

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, str])


class Pauses:
    """Those that are known here."""

    def __init__(self, rules: Rules, *kinds: str) -> None:
        """`kinds`: any of them pauses; since when and by whom the first one that does tells."""
        self._rules, self._kinds = rules, kinds
        self.since_ms: dict[str, int] = {}
        """Name → since when."""
        self.by: dict[str, str] = {}
        """Name → the name of the token with which that was said, where there was one."""
        self.names: frozenset[str] = frozenset()
        for kind in kinds:
            rules.read(kind, _read)
            rules.watch(kind, self._ruled)

    def _ruled(self, news: Rule) -> None:
        self.since_ms.pop(news.name, None)
        self.by.pop(news.name, None)
        those = (self._rules.get(kind, news.name) for kind in self._kinds)
        rule = next((one for one in those if one is not None and not one.is_deleted), None)
        if rule is not None:
            self.since_ms[rule.name], by = _read(rule)
            if by:
                self.by[rule.name] = by
        self.names = frozenset(self.since_ms)


class Paused:
    """Of which jobtypes nothing is to be begun: they are paused, or all of their tenant are."""

    def __init__(self, rules: Rules) -> None:
        """As far as it is known here."""
        self.types, self.tenants = Pauses(rules, PAUSE), Pauses(rules, BAN, HALT)

    def holds(self, jobtype: str) -> bool:
        """Whether it is one of them."""
        return jobtype in self.types.names or all_of(tenant_of(jobtype)) in self.tenants.names


def body_of(since_ms: int, by: str = "") -> bytes:
    return _encoder.encode((since_ms, by))


def _read(rule: Rule) -> tuple[int, str]:
    return _decoder.decode(rule.body)


def all_of(tenant: str) -> str:
    """What stands for all jobtypes of a tenant, also of the tenant "": no jobtype is called so."""
    return f"{tenant}{SEPARATOR}"
