"""Settings: saved at one daemon, in force at all daemons until they are changed. Registrations of workers, schedules,
tokens and so on are settings. (The daemon's configuration is not: see `jqd/config.py`.)

A setting has a kind, a name, a revision and a body. Of two with the same kind and name, the one with the higher
revision holds; one without a body is a deletion. So in whatever order and however often journals are read, the same
settings result.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec
import trio
from msgspec import Raw

from jqd.domain.clock import Clock, StoreClock
from jqd.domain.errors import Invalid
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.log import get_logger
from jqd.domain.tenant import bare, of_tenant, tenant_of

NIL = b"\xc0"
SCHEDULE, FIRED = "schedule", "fired"  # kinds: a schedule, and its last date that was fired
CONSTRAINT = "constraint"  # a kind
AUDIT = "audit"  # a kind that nobody can delete: counted apart, and limited by domain/audit.py
SETTING_BYTES = 200  # memory of a setting beside its name and body
WAITING_MAX = 100  # refreshes whose events are kept: while the store is away for long, nobody waits for older ones
WHY_MAX = 200  # characters kept of why a setting is unreadable
ORIGINS = 1024  # the low ten bits of a revision are of the journal, so two daemons hardly make equal ones


class Setting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A setting: also a record of the journal's lane `rules`."""

    kind: str
    name: str
    revision: int
    at_ms: int
    """When it was saved (Unix ms): for people, and to drop deletions after long."""
    body: Raw = Raw(NIL)
    """Any MessagePack value; nil if the setting is deleted."""

    def __repr__(self) -> str:
        """Return a repr without the body, which may contain secrets."""
        return f"Setting({self.kind}, {self.name!r}, {self.revision}{', deleted' if self.is_deleted else ''})"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def is_deleted(self) -> bool:
        return bytes(self.body) == NIL

    def supersedes(self, other: "Setting | None") -> bool:
        """Return whether this setting wins over another one: the higher revision does. Two journals may make equal
        revisions in the same millisecond; then the greater bytes win, as in the store.
        """
        if other is None or self.revision != other.revision:
            return other is None or self.revision > other.revision
        return encode_setting(self) > encode_setting(other)

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes the setting takes in memory."""
        return SETTING_BYTES + len(self.name) + len(bytes(self.body))


NONE: Mapping[str, Setting] = {}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Setting)


def encode_setting(setting: Setting) -> bytes:
    """Encode a setting for the store."""
    return _encoder.encode(setting)


def decode_setting(packed: bytes) -> Setting:
    """Decode a setting from the store. Raises msgspec.MsgspecError."""
    return _decoder.decode(packed)


class SettingTable:
    """The settings that this daemon knows. Watchers get each one that takes effect."""

    def __init__(self, *, loading: bool = False) -> None:
        """`loading`: the caller sets `tried`, `loaded` and `synced` later."""
        self.tried = trio.Event()
        """Set once this daemon's journal is read, or a part of it cannot be: from then on the store is asked."""
        self.loaded = trio.Event()
        """Set once the settings of this daemon's journal are known: it is read, or, where the disk does not give a
        part, `synced` is set. That part may hold settings that no store has yet: these are not known then."""
        self.synced = trio.Event()
        """Set once a first refresh from some partition of the store is complete, too."""
        if not loading:
            for event in (self.tried, self.loaded, self.synced):
                event.set()
        self.asked = trio.Event()
        """Set, and replaced, when a caller requests a refresh."""
        self.wanted = 0
        """Number of the latest refresh that was requested; all that wait for it share it."""
        self._begun = 0
        self.askers = 0
        """Number of loops that fetch changed settings from partitions of the store."""
        self._waiting: dict[int, trio.Event] = {}
        self.saying = trio.Lock()
        """Held while settings are changed: from reading the present ones until the new ones are on disk and hold."""
        self.ahead_ms: dict[object, int] = {}
        """Loop → its partition's wall time minus this machine's time since boot, in ms."""
        self.sizes: Counter[str] = Counter()
        """Tenant → bytes of its settings, without audit notes."""
        self.notes: Counter[str] = Counter()
        """Tenant → number of its audit notes."""
        self._settings: dict[str, dict[str, Setting]] = {}
        """Kind → name → the setting that holds."""
        self._readers: dict[str, Callable[[Setting], object]] = {}
        self._watchers: dict[str, list[Callable[[Setting], None]]] = {}
        self._unreadable: dict[tuple[str, str], str] = {}
        self._highest = 0

    def now_ms(self, clock: Clock) -> int:
        """Return the wall time of the store, like `StoreClock`."""
        return StoreClock(self.ahead_ms, clock).wall_ms()

    def note_time(self, store: object, now_ms: int, *, sent_at_s: float, received_at_s: float) -> int:
        """Note the time of a partition's answer. `sent_at_s`, `received_at_s`: of the call, by `Clock.boot_s`.

        Returns by how many ms the partition's clock was set since. The known difference is kept while the answer allows
        it, so that the time does not jitter."""
        first, last = now_ms - round(received_at_s * 1000), now_ms - round(sent_at_s * 1000)
        before_ms = self.ahead_ms.get(store, first)
        self.ahead_ms[store] = min(max(before_ms, first), last)
        return self.ahead_ms[store] - before_ms

    def look_again(self) -> trio.Event:
        """Request a refresh: return an event that is set once all settings that a partition has now are known here. It
        is already set if no loop fetches settings."""
        if not self.askers:
            (answered := trio.Event()).set()
            return answered
        if self.wanted == self._begun:  # otherwise a refresh is requested already and has not begun: it is shared
            self.wanted += 1
            self._waiting[self.wanted] = trio.Event()
            self._waiting.pop(self.wanted - WAITING_MAX, None)
            self.asked.set()
            self.asked = trio.Event()
        return self._waiting[self.wanted]

    def asking(self) -> int:
        """Note that a refresh begins now. Returns its number for `record_sync`."""
        self._begun = self.wanted
        return self.wanted

    def record_sync(self, asked: int) -> None:
        """Note that refresh `asked` is complete: a partition sent all settings that it had when it began."""
        for number in [number for number in self._waiting if number <= asked]:
            self._waiting.pop(number).set()

    def read(self, kind: str, reader: Callable[[Setting], object]) -> None:
        """Check settings of a kind with `reader`, which raises DECODE_ERRORS or Invalid for an unreadable one."""
        self._readers[kind] = reader

    def watch(self, kind: str, watcher: Callable[[Setting], None]) -> None:
        """Call `watcher` with each setting of a kind that holds, now and whenever one changes."""
        self._watchers.setdefault(kind, []).append(watcher)
        for setting in self.all(kind):
            watcher(setting)

    def complaints(self) -> list[str]:
        """Return a warning about unreadable settings, for `/readyz`, if there are any."""
        if not self._unreadable:
            return []
        (kind, name), why = next(iter(self._unreadable.items()))
        more = len(self._unreadable) - 1
        return [
            f"{kind} {bare(name)!r}{of_tenant(name)} cannot be read, and holds for nothing: {why}; say it once more"
            + (f" (and {more} more; the log has all)" if more else "")
        ]

    def take(self, settings: Iterable[Setting]) -> list[Setting]:
        """Take settings that supersede the known ones. Returns those that did, except unreadable ones."""
        news = []
        for setting in settings:
            self._highest = max(self._highest, setting.revision)
            before = self.get(*setting.key)
            if setting.supersedes(before):
                held = (
                    setting
                    if self._is_readable(setting)
                    else Setting(setting.kind, setting.name, setting.revision, setting.at_ms)
                )
                self._settings.setdefault(setting.kind, {})[setting.name] = held
                self._count(before, -1)
                self._count(held, 1)
                if held is setting:
                    news.append(setting)
                for watcher in self._watchers.get(setting.kind, ()):
                    watcher(held)
        return news

    def _is_readable(self, setting: Setting) -> bool:
        """Return whether a setting can be decoded. An unreadable one counts as deleted, at all daemons alike."""
        try:
            if not setting.is_deleted and (read := self._readers.get(setting.kind)) is not None:
                read(setting)
        except (*DECODE_ERRORS, Invalid) as error:
            self._unreadable[setting.key] = str(error)[:WHY_MAX]
            get_logger("settings").error("settings.unreadable", kind=setting.kind, name=setting.name, error=str(error))
            return False
        self._unreadable.pop(setting.key, None)
        return True

    def forget(self, setting: Setting) -> None:
        """Drop a setting, unless a later one has superseded it."""
        if self.get(*setting.key) == setting:
            del self._settings[setting.kind][setting.name]
            self._unreadable.pop(setting.key, None)
            self._count(setting, -1)

    def get(self, kind: str, name: str) -> Setting | None:
        """Return a setting, which may be a deletion; None if there is none."""
        return self._settings.get(kind, NONE).get(name)

    def all(self, kind: str) -> Iterator[Setting]:
        """Yield the settings of a kind, with deletions, in the order in which their names became known."""
        return iter([*self._settings.get(kind, NONE).values()])

    def every(self, but: str = "") -> list[Setting]:
        """Return the settings of all kinds except `but`, including deletions."""
        return [setting for kind, named in self._settings.items() if kind != but for setting in named.values()]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all settings but audit notes."""
        return self.sizes.total()

    def growths(self, settings: Collection[Setting]) -> Counter[str]:
        """Return tenant → bytes that its settings would grow by, if these took effect; without audit notes."""
        growths: Counter[str] = Counter()
        for setting in settings:
            if setting.kind == AUDIT:
                continue
            before = self.get(*setting.key)
            growths[tenant_of(setting.name)] += setting.size_bytes - (before.size_bytes if before else 0)
        return growths

    def _count(self, setting: Setting | None, sign: int) -> None:
        if setting is None:
            return
        tenant = tenant_of(setting.name)
        if setting.kind == AUDIT:
            self.notes[tenant] += sign
        else:
            self.sizes[tenant] += sign * setting.size_bytes

    def holds(self, setting: Setting) -> bool:
        return self.get(*setting.key) == setting

    def number(self) -> int:
        """Return the highest known revision, from which new names are made."""
        return self._highest

    def make(self, bodies: Mapping[tuple[str, str], bytes], *, now_ms: int, origin: int) -> list[Setting]:
        """Make new settings, with revisions above all known ones, so that they supersede these.

        `origin`: the number of the journal. A revision is a date, as far as possible: if two daemons that cannot reach
        each other save a setting, the later one holds.
        """
        made = []
        for (kind, name), body in bodies.items():
            self._highest = max(self._highest // ORIGINS + 1, now_ms) * ORIGINS + origin % ORIGINS
            made.append(Setting(kind, name, self._highest, now_ms, Raw(body)))
        return made
