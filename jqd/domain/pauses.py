"""Pauses of jobtypes, tenants and daemons. A pause lasts until somebody resumes what was paused. It is saved as a
setting (settings.py)."""

import msgspec

from jqd.domain.settings import Setting, SettingTable
from jqd.domain.tenant import SEPARATOR, tenant_of

# Kinds of settings, whose body is a `Body`.
PAUSE = "pause"  # of a jobtype
DRAIN = "drain"  # of a daemon
HALT = "halt"  # of all jobtypes of a tenant, under the name `all_of(tenant)`
BAN = "ban"  # like HALT, by an operator of jqd. A kind of its own, so that nothing the tenant saves can replace it
STOPS = frozenset({PAUSE, DRAIN, HALT, BAN})  # saved even above the size limits: they are few, and for emergencies

_encoder = msgspec.msgpack.Encoder()


class Body(msgspec.Struct, frozen=True, array_like=True):
    """A pause: since when (Unix ms), and, if known, the id of the token that paused, and the reason."""

    since_ms: int
    by: str = ""
    reason: str = ""


_decoder = msgspec.msgpack.Decoder(Body)


class Pauses:
    """The present pauses that are settings of one or more kinds."""

    def __init__(self, settings: SettingTable, *kinds: str) -> None:
        """`kinds`: kinds of settings. A name is paused if a setting of any of these kinds exists; the first such kind
        gives time, token and reason."""
        self._settings, self._kinds = settings, kinds
        self.since_ms: dict[str, int] = {}
        """Name → since when it is paused (Unix ms)."""
        self.by: dict[str, str] = {}
        """Name → id of the token that paused it, if there was one."""
        self.reasons: dict[str, str] = {}
        """Name → why it is paused, if a reason was given."""
        self.names: frozenset[str] = frozenset()
        for kind in kinds:
            settings.read(kind, _read)
            settings.watch(kind, self._update)

    def _update(self, news: Setting) -> None:
        self.since_ms.pop(news.name, None)
        self.by.pop(news.name, None)
        self.reasons.pop(news.name, None)
        those = (self._settings.get(kind, news.name) for kind in self._kinds)
        setting = next((each for each in those if each is not None and not each.is_deleted), None)
        if setting is not None:
            body = _read(setting)
            self.since_ms[setting.name] = body.since_ms
            if body.by:
                self.by[setting.name] = body.by
            if body.reason:
                self.reasons[setting.name] = body.reason
        self.names = frozenset(self.since_ms)


class Paused:
    """Tells which jobtypes are paused: a jobtype may be paused itself, or its tenant may be."""

    def __init__(self, settings: SettingTable) -> None:
        self.types, self.tenants = Pauses(settings, PAUSE), Pauses(settings, BAN, HALT)

    def holds(self, jobtype: str) -> bool:
        return jobtype in self.types.names or all_of(tenant_of(jobtype)) in self.tenants.names


def body_of(since_ms: int, by: str = "", reason: str = "") -> bytes:
    return _encoder.encode(Body(since_ms, by, reason))


def _read(setting: Setting) -> Body:
    return _decoder.decode(setting.body)


def all_of(tenant: str) -> str:
    """Return the name under which a pause of all jobtypes of a tenant is saved as a setting. The tenant may be "". No
    jobtype has such a name."""
    return f"{tenant}{SEPARATOR}"
