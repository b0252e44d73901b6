"""Settings: values that are saved at one daemon, and are in force at all daemons until they are changed. Registrations
of workers, schedules, tokens and so on are settings. (The daemon's configuration is not: see `jqd/config.py`.)

A setting has a kind, a name, a revision and a body. Of two settings with the same kind and name, the one with the
higher revision counts. A setting without a body is a deletion. So in whatever order and however often journals are
read, the same settings are in force in the end.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec
import trio
from msgspec import Raw

from jqd.domain.array_split import Steps
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
    """A setting. It is also a record of the journal's lane `rules`."""

    kind: str
    name: str
    revision: int
    at_ms: int
    """When it was saved (Unix ms): shown to people, and used to drop old deletions."""
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
        """Return whether this setting replaces another one: the one with the higher revision wins. Two journals may
        make equal revisions in the same millisecond; then the one with the greater encoded bytes wins, as in the
        store."""
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
    """The settings that this daemon knows. It calls watchers with each setting that takes effect."""

    def __init__(self, *, loading: bool = False) -> None:
        """`loading`: whether the caller will set the events `tried`, `loaded` and `synced` later. Otherwise they are
        set at once."""
        self.tried = trio.Event()
        """Set once every segment of this daemon's journal was read, or turned out to be unreadable. From then on the
        store is asked for settings, too."""
        self.loaded = trio.Event()
        """Set once the settings in this daemon's journal are known: all of it is read, or all but unreadable segments,
        and `synced` is set. Those may hold settings that no store has yet; these are not known then."""
        self.synced = trio.Event()
        """Set once `tried` is, and the first refresh from some partition of the store is complete: before `loaded` only
        one from a store in which all daemons came through recovery, which has the settings in their journals."""
        if not loading:
            for event in (self.tried, self.loaded, self.synced):
                event.set()
        self.asked = trio.Event()
        """Set when a caller requests a refresh, and then replaced by a new event."""
        self.wanted = 0
        """Number of the latest refresh that was requested. All callers that wait for the same refresh share its
        number."""
        self._begun = 0
        self.askers = 0
        """Number of loops that fetch changed settings from partitions of the store."""
        self._waiting: dict[int, trio.Event] = {}
        self.saying = trio.Lock()
        """Held while settings are changed: from reading the present ones until the new ones are on disk and in
        force."""
        self.ahead_ms: dict[object, int] = {}
        """Loop that fetches settings → wall time of its partition minus this machine's time since boot, in ms."""
        self.sizes: Counter[str] = Counter()
        """Tenant → total bytes of its settings, without audit notes."""
        self.notes: Counter[str] = Counter()
        """Tenant → number of its audit notes."""
        self._settings: dict[str, dict[str, Setting]] = {}
        """Kind → name → the setting in force."""
        self._readers: dict[str, Callable[[Setting], object]] = {}
        self._watchers: dict[str, list[Callable[[Setting], None]]] = {}
        self._unreadable: dict[tuple[str, str], str] = {}
        self._highest = 0

    def now_ms(self, clock: Clock) -> int:
        """Return the wall time of the store in ms: that of `clock`, corrected by the difference that the store's last
        answers showed. Before the first answer it is the time of `clock`."""
        return StoreClock(self.ahead_ms, clock).wall_ms()

    def note_time(self, store: object, now_ms: int, *, sent_at_s: float, received_at_s: float) -> int:
        """Note the wall time in a partition's answer. `sent_at_s`, `received_at_s`: when the call was sent and
        answered, by `Clock.boot_s`.

        Returns by how many ms the partition's clock was changed since the last answer. It is 0 as long as the
        difference between the clocks that was noted last may still be right, so that the time does not jitter.
        """
        first, last = now_ms - round(received_at_s * 1000), now_ms - round(sent_at_s * 1000)
        before_ms = self.ahead_ms.get(store, first)
        self.ahead_ms[store] = min(max(before_ms, first), last)
        return self.ahead_ms[store] - before_ms

    def look_again(self) -> trio.Event:
        """Request a refresh. Returns an event that is set once this daemon knows all settings that one of the
        partitions has now. The event is already set if no loop fetches settings."""
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
        """Note that a refresh begins now. Returns its number, to be given to `record_sync`."""
        self._begun = self.wanted
        return self.wanted

    def record_sync(self, asked: int) -> None:
        """Note that refresh `asked` is complete: a partition has sent all settings that it had when the refresh
        began."""
        for number in [number for number in self._waiting if number <= asked]:
            self._waiting.pop(number).set()

    def read(self, kind: str, reader: Callable[[Setting], object]) -> None:
        """Register `reader`, the function that checks settings of a kind. It raises DECODE_ERRORS or Invalid for a
        setting that is unreadable."""
        self._readers[kind] = reader

    def watch(self, kind: str, watcher: Callable[[Setting], None]) -> None:
        """Register a watcher for the settings of a kind. It is called now with each setting that is in force, and later
        with each new one when it takes effect."""
        self._watchers.setdefault(kind, []).append(watcher)
        for setting in self.all(kind):
            watcher(setting)

    def complaints(self) -> list[str]:
        """Return a warning for `/readyz` if there are unreadable settings; else an empty list."""
        if not self._unreadable:
            return []
        (kind, name), why = next(iter(self._unreadable.items()))
        more = len(self._unreadable) - 1
        return [
            f"{kind} {bare(name)!r}{of_tenant(name)} cannot be read, and holds for nothing: {why}; say it once more"
            + (f" (and {more} more; the log has all)" if more else "")
        ]

    def take(self, settings: Iterable[Setting]) -> list[Setting]:
        """Put into force those settings that supersede the ones known so far. Returns the settings put into force,
        except unreadable ones."""
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

    def take_each(self, settings: Iterable[Setting], news: dict[tuple[str, str], Setting]) -> Steps[None]:
        """Do what `take` does in steps of one setting, and add what it returns to `news` by kind and name: a constraint
        may take 20 ms."""
        for setting in settings:
            news.update((taken.key, taken) for taken in self.take([setting]))
            yield

    def _is_readable(self, setting: Setting) -> bool:
        """Return whether a setting can be decoded; if it cannot, log and remember the error. An unreadable setting
        counts as deleted, at all daemons alike."""
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
        """Remove a setting from the table, unless a later one has superseded it."""
        if self.get(*setting.key) == setting:
            del self._settings[setting.kind][setting.name]
            self._unreadable.pop(setting.key, None)
            self._count(setting, -1)

    def get(self, kind: str, name: str) -> Setting | None:
        """Return a setting, which may be a deletion; None if it is unknown."""
        return self._settings.get(kind, NONE).get(name)

    def all(self, kind: str) -> Iterator[Setting]:
        """Yield the settings of a kind, including deletions, in the order in which their names became known."""
        return iter([*self._settings.get(kind, NONE).values()])

    def every(self, but: str = "") -> list[Setting]:
        """Return the settings of all kinds except the kind `but`, including deletions."""
        return [setting for kind, named in self._settings.items() if kind != but for setting in named.values()]

    @property
    def size_bytes(self) -> int:
        """Return the total bytes of all settings except audit notes."""
        return self.sizes.total()

    def growths(self, settings: Collection[Setting]) -> Counter[str]:
        """Return tenant → by how many bytes its settings would grow if `settings` took effect. Audit notes do not
        count."""
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
        """Return the highest known revision. Callers make new names from it."""
        return self._highest

    def make(self, bodies: Mapping[tuple[str, str], bytes], *, now_ms: int, origin: int) -> list[Setting]:
        """Make new settings from (kind, name) → body. Their revisions are above all known ones, so they supersede all
        known settings.

        `origin`: the number of the journal. A revision is made from the time: if two daemons that cannot reach each
        other save the same setting, the later one wins.
        """
        made = []
        for (kind, name), body in bodies.items():
            self._highest = max(self._highest // ORIGINS + 1, now_ms) * ORIGINS + origin % ORIGINS
            made.append(Setting(kind, name, self._highest, now_ms, Raw(body)))
        return made
