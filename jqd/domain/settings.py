"""Settings: saved at one daemon, in force at all until changed. Registrations of workers are settings, too.

A setting has a kind, a name, a revision and a body. Of two of the same kind and name the one with the higher revision
holds, whichever comes first; one without a body is a deletion. So any order in which journals are read, and any number
of times, ends with the same settings.
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
SCHEDULE, FIRED = "schedule", "fired"  # kinds: a schedule, and up to which of its dates it was fired
CONSTRAINT = "constraint"  # a kind
AUDIT = "audit"  # a kind that nobody can delete, so it is counted apart: domain/audit.py bounds it
SETTING_BYTES = 200  # of one beside its name and body: objects, and its place among the others
WAITING_MAX = 100  # questions that are waited for: those of a store that was away for longer nobody waits for any more
WHY_MAX = 200  # characters of why one cannot be read
ORIGINS = 1024  # the low ten bits of a revision tell journals apart: no two daemons make the same one at once


class Setting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record of the journal's `rules` lane."""

    kind: str
    name: str
    revision: int
    at_ms: int
    """When it was saved, for people, and to forget what was deleted long ago."""
    body: Raw = Raw(NIL)
    """Any MessagePack value; nil where it is deleted."""

    def __repr__(self) -> str:
        """Leave the body out: it may hold secrets."""
        return f"Setting({self.kind}, {self.name!r}, {self.revision}{', deleted' if self.is_deleted else ''})"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def is_deleted(self) -> bool:
        return bytes(self.body) == NIL

    def supersedes(self, other: "Setting | None") -> bool:
        """Return whether this setting wins over the other: the higher revision does. Of equal ones, which two journals
        may make in the same millisecond, the greater bytes win, as in a store.
        """
        if other is None or self.revision != other.revision:
            return other is None or self.revision > other.revision
        return encode_setting(self) > encode_setting(other)

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes it takes in memory."""
        return SETTING_BYTES + len(self.name) + len(bytes(self.body))


NONE: Mapping[str, Setting] = {}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Setting)


def encode_setting(setting: Setting) -> bytes:
    """Encode a setting as the store keeps it."""
    return _encoder.encode(setting)


def decode_setting(packed: bytes) -> Setting:
    """Decode a setting. Raises msgspec.MsgspecError."""
    return _decoder.decode(packed)


class SettingTable:
    """The settings that are known here. Watchers get each one that takes effect."""

    def __init__(self, *, loading: bool = False) -> None:
        """`loading`: `loaded` and `synced` are set later."""
        self.loaded = trio.Event()
        """Set once all settings of this daemon's journal are known."""
        self.synced = trio.Event()
        """Set once the settings that a partition of the store had at the first refresh in this life are known, too."""
        if not loading:
            self.loaded.set()
            self.synced.set()
        self.asked = trio.Event()
        """Set, and replaced, when a caller requests a refresh."""
        self.wanted = 0
        """The number of the latest refresh that was requested; all that wait for the same one share it."""
        self._begun = 0
        self.askers = 0
        """Number of loops that fetch changed settings from a store."""
        self._waiting: dict[int, trio.Event] = {}
        self.saying = trio.Lock()
        """Held from reading what holds until what was made of it is on disk and holds."""
        self.ahead_ms: dict[object, int] = {}
        """Loop → how far its store's clock was last ahead of our clock since boot, in ms."""
        self.sizes: Counter[str] = Counter()
        """Tenant → bytes of its settings, without notes of the audit."""
        self.notes: Counter[str] = Counter()
        """Tenant → its notes of the audit."""
        self._settings: dict[str, dict[str, Setting]] = {}
        """Kind → name → the one that holds."""
        self._readers: dict[str, Callable[[Setting], object]] = {}
        self._watchers: dict[str, list[Callable[[Setting], None]]] = {}
        self._unreadable: dict[tuple[str, str], str] = {}
        self._highest = 0

    def now_ms(self, clock: Clock) -> int:
        """Return the time by the store's clock, as StoreClock tells it."""
        return StoreClock(self.ahead_ms, clock).wall_ms()

    def note_time(self, store: object, now_ms: int, *, sent_at_s: float, received_at_s: float) -> int:
        """Note the time that a store told between two instants of our clock since boot: when it was asked and answered.

        Returns by how many ms its clock was set since. What was known stays while it may be true: the time would run
        by fits otherwise."""
        first, last = now_ms - round(received_at_s * 1000), now_ms - round(sent_at_s * 1000)
        before_ms = self.ahead_ms.get(store, first)
        self.ahead_ms[store] = min(max(before_ms, first), last)
        return self.ahead_ms[store] - before_ms

    def look_again(self) -> trio.Event:
        """Return an event that is set when all settings that a store has now are known; at once where no loop fetches
        any.
        """
        if not self.askers:
            (answered := trio.Event()).set()
            return answered
        if self.wanted == self._begun:  # else the next question is for all who have come since
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
        """Note that a store sent all settings that it had when refresh `asked` began."""
        for number in [number for number in self._waiting if number <= asked]:
            self._waiting.pop(number).set()

    def read(self, kind: str, reader: Callable[[Setting], object]) -> None:
        """Use `reader` to check settings of a kind; it raises DECODE_ERRORS or Invalid for an unreadable one."""
        self._readers[kind] = reader

    def watch(self, kind: str, watcher: Callable[[Setting], None]) -> None:
        """Call `watcher` with each setting of a kind in force, now and later; it must not wait."""
        self._watchers.setdefault(kind, []).append(watcher)
        for setting in self.all(kind):
            watcher(setting)

    def complaints(self) -> list[str]:
        """Return what cannot be read, for `/readyz`."""
        if not self._unreadable:
            return []
        (kind, name), why = next(iter(self._unreadable.items()))
        more = len(self._unreadable) - 1
        return [
            f"{kind} {bare(name)!r}{of_tenant(name)} cannot be read, and holds for nothing: {why}; say it once more"
            + (f" (and {more} more; the log has all)" if more else "")
        ]

    def take(self, settings: Iterable[Setting]) -> list[Setting]:
        """Take settings with a higher revision than the known ones.

        Returns those that changed something and can be read.
        """
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
        """Return whether a setting can be read. One that cannot counts as deleted, at all daemons alike."""
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
        """Drop a setting, unless a later one of the same name came."""
        if self.get(*setting.key) == setting:
            del self._settings[setting.kind][setting.name]
            self._unreadable.pop(setting.key, None)
            self._count(setting, -1)

    def get(self, kind: str, name: str) -> Setting | None:
        """Return a setting, deleted or not."""
        return self._settings.get(kind, NONE).get(name)

    def all(self, kind: str) -> Iterator[Setting]:
        """Yield settings of a kind, deleted ones too, in the order in which their names became known."""
        return iter([*self._settings.get(kind, NONE).values()])

    def every(self, but: str = "") -> list[Setting]:
        """Return settings of all kinds, or of all but one; deleted ones too."""
        return [setting for kind, named in self._settings.items() if kind != but for setting in named.values()]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all settings but audit notes."""
        return self.sizes.total()

    def growths(self, settings: Collection[Setting]) -> Counter[str]:
        """Return tenant → bytes that it would gain by these settings, in place of those in force; without notes."""
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
        """Return a number that no journal gave before, for made-up names."""
        return self._highest

    def make(self, bodies: Mapping[tuple[str, str], bytes], *, now_ms: int, origin: int) -> list[Setting]:
        """New settings, each above all that is known here, so that they replace what was seen.

        `origin`: the number of their journal. Dates only count between daemons that cannot reach each other: of what
        they save meanwhile the later holds.
        """
        made = []
        for (kind, name), body in bodies.items():
            self._highest = max(self._highest // ORIGINS + 1, now_ms) * ORIGINS + origin % ORIGINS
            made.append(Setting(kind, name, self._highest, now_ms, Raw(body)))
        return made
