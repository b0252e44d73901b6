"""Pauses of jobtypes, tenants and daemons, until they are resumed. Each is a setting under its name."""

import msgspec

from jqd.domain.settings import Setting, SettingTable
from jqd.domain.tenant import SEPARATOR, tenant_of

# Kinds of settings. Their body: `Body`.
PAUSE = "pause"  # of a jobtype
DRAIN = "drain"  # of a daemon
HALT = "halt"  # of all jobtypes of a tenant, under `all_of(tenant)`
BAN = "ban"  # the same by who runs jqd: what the tenant saves meanwhile, at a daemon that does not know, cannot lift it
STOPS = frozenset({PAUSE, DRAIN, HALT, BAN})  # never refused for their bytes: few, and used when it is late

_encoder = msgspec.msgpack.Encoder()


class Body(msgspec.Struct, frozen=True, array_like=True):
    """Since when the pause holds, in ms since 1970; by which token, and why, if that was given."""

    since_ms: int
    by: str = ""
    reason: str = ""


_decoder = msgspec.msgpack.Decoder(Body)


class Pauses:
    """The pauses that are known here."""

    def __init__(self, settings: SettingTable, *kinds: str) -> None:
        """`kinds`: any of these settings pauses; date and token are of the first that does."""
        self._settings, self._kinds = settings, kinds
        self.since_ms: dict[str, int] = {}
        """Name → since when."""
        self.by: dict[str, str] = {}
        """Name → the name of the token, where there was one."""
        self.reasons: dict[str, str] = {}
        """Jobtype → why it is paused, if a reason was given."""
        self.names: frozenset[str] = frozenset()
        for kind in kinds:
            settings.read(kind, _read)
            settings.watch(kind, self._update)

    def _update(self, news: Setting) -> None:
        self.since_ms.pop(news.name, None)
        self.by.pop(news.name, None)
        self.reasons.pop(news.name, None)
        those = (self._settings.get(kind, news.name) for kind in self._kinds)
        setting = next((one for one in those if one is not None and not one.is_deleted), None)
        if setting is not None:
            body = _read(setting)
            self.since_ms[setting.name] = body.since_ms
            if body.by:
                self.by[setting.name] = body.by
            if body.reason:
                self.reasons[setting.name] = body.reason
        self.names = frozenset(self.since_ms)


class Paused:
    """Which jobtypes are paused, by themselves or with all of their tenant."""

    def __init__(self, settings: SettingTable) -> None:
        self.types, self.tenants = Pauses(settings, PAUSE), Pauses(settings, BAN, HALT)

    def holds(self, jobtype: str) -> bool:
        return jobtype in self.types.names or all_of(tenant_of(jobtype)) in self.tenants.names


def body_of(since_ms: int, by: str = "", reason: str = "") -> bytes:
    return _encoder.encode(Body(since_ms, by, reason))


def _read(setting: Setting) -> Body:
    return _decoder.decode(setting.body)


def all_of(tenant: str) -> str:
    """Return what stands for all jobtypes of a tenant, also of the tenant ""; no jobtype has that name."""
    return f"{tenant}{SEPARATOR}"
