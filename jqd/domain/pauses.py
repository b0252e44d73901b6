"""What is paused until somebody says so: jobtypes, tenants, daemons. Rules of kinds of their own, under their names."""

import msgspec

from jqd.domain.settings import Setting, SettingTable
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

    def __init__(self, settings: SettingTable, *kinds: str) -> None:
        """`kinds`: any of them pauses; since when and by whom the first one that does tells."""
        self._settings, self._kinds = settings, kinds
        self.since_ms: dict[str, int] = {}
        """Name → since when."""
        self.by: dict[str, str] = {}
        """Name → the name of the token with which that was said, where there was one."""
        self.names: frozenset[str] = frozenset()
        for kind in kinds:
            settings.read(kind, _read)
            settings.watch(kind, self._ruled)

    def _ruled(self, news: Setting) -> None:
        self.since_ms.pop(news.name, None)
        self.by.pop(news.name, None)
        those = (self._settings.get(kind, news.name) for kind in self._kinds)
        setting = next((one for one in those if one is not None and not one.is_deleted), None)
        if setting is not None:
            self.since_ms[setting.name], by = _read(setting)
            if by:
                self.by[setting.name] = by
        self.names = frozenset(self.since_ms)


class Paused:
    """Of which jobtypes nothing is to be begun: they are paused, or all of their tenant are."""

    def __init__(self, settings: SettingTable) -> None:
        """As far as it is known here."""
        self.types, self.tenants = Pauses(settings, PAUSE), Pauses(settings, BAN, HALT)

    def holds(self, jobtype: str) -> bool:
        """Whether it is one of them."""
        return jobtype in self.types.names or all_of(tenant_of(jobtype)) in self.tenants.names


def body_of(since_ms: int, by: str = "") -> bytes:
    return _encoder.encode((since_ms, by))


def _read(setting: Setting) -> tuple[int, str]:
    return _decoder.decode(setting.body)


def all_of(tenant: str) -> str:
    """What stands for all jobtypes of a tenant, also of the tenant "": no jobtype is called so."""
    return f"{tenant}{SEPARATOR}"
