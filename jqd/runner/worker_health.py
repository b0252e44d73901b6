"""Publishes how each daemon sees the workers: which it reaches, which get no jobs for now, and its own URL.

A daemon's *view* is a setting under its own name that is in no journal. It is sent to the store each time that settings
are fetched (`loops/settings.py`), so all daemons have all views and show the same. A view has a row for each worker
that is not well.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from jqd.domain import address
from jqd.domain.clock import Clock
from jqd.domain.settings import Setting
from jqd.domain.tenant import tenant_of
from jqd.runner.capacity import Capacity, Pause
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.departures import KEPT_MS, Departure, Gone, Kind, together
from jqd.runner.endpoint import host_of
from jqd.runner.registry import WorkerRegistry
from jqd.runner.ssrf import AddressPolicy, machine, policy_of

VIEW = "view"  # a kind of setting
ROWS_MAX = 100  # workers in one view: about 30 kB, sent at most four times a second while it changes
WHY_MAX = 200  # characters of a complaint
AGAIN_S = 3_600.0  # an unchanged view is renewed so often, or its daemon would be taken for gone
RECENT_S = 2 * AGAIN_S  # a living daemon has renewed its view since
SAME_MS = 5_000  # the end of a pause is computed anew when the store's clock was set by more
GONE_EVERY_S = 5.0  # departures alone change a view so often: a fleet that leaves makes no view for each worker
KEPT_S = 86_400.0  # a view that was not renewed for so long is of a daemon that is gone

Health = Literal["ok", "backed_off", "unreachable"]


class WorkerHealth(NamedTuple):
    state: Health
    since_ms: int
    """Since when the worker has been in this state, in ms; 0: it is well."""
    complaint: str = ""
    why: str = ""
    until_ms: int = 0
    """Until when it gets no jobs, by the store's clock in ms. Then one job probes it."""
    registered_at_ms: int = 0
    """Time of the registration that this row is about, in ms."""


WELL = WorkerHealth("ok", 0)


class WorkerView(msgspec.Struct, frozen=True):
    rows: dict[str, WorkerHealth]
    url: str = ""
    """The URL at which clients and workers reach this daemon; empty: unknown."""
    machine: str = ""
    """The machine of this daemon: only there a loopback address in `url` can be used."""
    gone: tuple[Departure, ...] = ()
    """Daemons and workers that this daemon saw leave or die within the last day."""
    begins: bool = True
    """Whether it ever starts jobs, so that it has a share of the workers' slots."""
    is_drained: bool = msgspec.field(default=False, name="rests")
    """Whether it is drained: starts no jobs and has none in flight. Its share of slots goes to other daemons."""
    starts_jobs: bool = True
    """Whether it starts jobs now, so that other daemons may leave jobs to it. False if drained or unable to write
    outcomes."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WorkerView)


class WorkerViews:
    """Keeps how this daemon sees the workers (its view), and the latest known views of the other daemons."""

    def __init__(
        self, daemon: str, workers: WorkerRegistry, capacity: Capacity, clock: Clock, pause_s_max: float
    ) -> None:
        """`pause_s_max`: upper limit for pauses in other daemons' views."""
        self._daemon = daemon
        self._workers = workers
        self._settings = workers.settings
        self._capacity = capacity
        self._clock = clock
        self._pause_s_max = pause_s_max
        self.url = ""
        """The URL of this daemon; empty until it listens."""
        self.idle = False
        """Whether this daemon never starts jobs."""
        self.is_drained: Callable[[], bool] = lambda: False
        """Returns whether this daemon starts no jobs and has none in flight."""
        self.may_start: Callable[[], bool] = lambda: True
        """Returns whether this daemon starts jobs now."""
        self._gone: tuple[Departure, ...] = ()
        self._gone_at_s = -math.inf
        self._made = 0  # revision of the last view that this process made
        self._known: dict[str, WorkerView] = {}
        self._ends: dict[str, tuple[float, int]] = {}
        """Worker id → end of its pause: by its circuit breaker (monotonic, s), and as published in the view (wall
        clock, ms)."""
        self._settings.read(VIEW, _read)
        self._settings.watch(VIEW, self._ruled)

    def look(self) -> Setting:
        """Return how this daemon sees the workers (its view), as a new setting if it has changed since the last
        call."""
        now_ms = self._clock.wall_ms()
        if self._clock.mono_s() - self._gone_at_s >= GONE_EVERY_S:
            gone = tuple(self._workers.departures.rows())
            if gone != self._gone:
                self._gone, self._gone_at_s = gone, self._clock.mono_s()
        is_drained, starts_jobs = self.is_drained(), self.may_start()
        body = _encoder.encode(
            WorkerView(self._rows(), self.url, machine(), self._gone, not self.idle, is_drained, starts_jobs)
        )
        setting = self._settings.get(VIEW, self._daemon)
        if setting is None or bytes(setting.body) != body or now_ms - setting.at_ms > AGAIN_S * 1000:
            (setting,) = self._settings.make({(VIEW, self._daemon): body}, now_ms=now_ms, origin=0)
            self._made = setting.revision
            self._settings.take([setting])
        return setting

    def of(self, worker_id: str, daemons: Iterable[str]) -> dict[str, WorkerHealth]:
        """Return daemon → how it sees a worker. Daemons whose view is unknown are left out."""
        views = ((daemon, self._known.get(daemon)) for daemon in sorted(daemons))
        return {daemon: view.rows.get(worker_id, WELL) for daemon, view in views if view is not None}

    def urls(self, daemons: Iterable[str], peer: str | None) -> list[str]:
        """Return those URLs of these daemons that a caller at address `peer` can use. A loopback URL counts only if
        caller and daemon are both on this machine."""
        views = [view for daemon in daemons if (view := self._known.get(daemon)) is not None and view.url]
        near = policy_of(peer) is AddressPolicy.LOOPBACK
        here = [not address.is_loopback(host_of(view.url)) or (near and view.machine == machine()) for view in views]
        return [view.url for view, is_reached in zip(views, here, strict=True) if is_reached]

    def begins(self, daemon: str, machine: str | None = None) -> bool:
        """Return whether a daemon starts jobs; True if its view is unknown. `machine`: None: whether it ever does; "":
        whether it does now, or has jobs in flight; a machine: the same, and whether it is on that machine."""
        view = self._known.get(daemon)
        if view is None or not view.begins:
            return view is None
        return machine is None or (not view.is_drained and machine in ("", view.machine))

    def starts_jobs(self, daemon: str) -> bool:
        """Return whether a daemon starts jobs now, by its published view. False if its view is unknown."""
        view = self._known.get(daemon)
        return view is not None and view.starts_jobs

    def gone(self, kind: Kind) -> list[Gone]:
        """Return the daemons or the workers that left or died within the last day, as seen by all daemons, newest
        first."""
        since_ms = self._clock.wall_ms() - KEPT_MS
        own = [(self._daemon, row) for row in self._workers.departures.rows()]
        others = ((name, row) for name, view in self._known.items() if name != self._daemon for row in view.gone)
        return together([*own, *(pair for pair in others if pair[1].at_ms > since_ms)], kind)

    def recent(self) -> list[str]:
        """Return the daemons that published their view recently. Some may be dead, as nobody can tell while the store
        is unavailable."""
        now_ms = self._clock.wall_ms()
        return sorted(setting.name for setting in self._settings.all(VIEW) if now_ms - setting.at_ms < RECENT_S * 1000)

    def stale(self) -> list[Setting]:
        now_ms = self._clock.wall_ms()
        return [setting for setting in self._settings.all(VIEW) if now_ms - setting.at_ms > KEPT_S * 1000]

    def _rows(self) -> dict[str, WorkerHealth]:
        """Return worker id → how this daemon sees it, for each worker that is not well. A removed worker is included
        while it is backed off."""
        ailing = self._capacity.ailing()
        now_ms, now_s = self._settings.now_ms(self._clock), self._clock.mono_s()
        known = {worker.id for worker in self._workers.list()} if ailing else ()
        here = [worker_id for worker_id, breaker in ailing.items() if worker_id in known or breaker.is_shut(now_s)]
        known_view = self._known.get(self._daemon)
        before = known_view.rows if known_view else {}
        rows: dict[str, WorkerHealth] = {}
        self._ends = {worker_id: end for worker_id, end in self._ends.items() if worker_id in ailing}
        for worker_id in _fair(here, ailing, now_s)[:ROWS_MAX]:
            breaker = ailing[worker_id]
            ill: Health = "unreachable" if _is_away(breaker) else "backed_off"
            state: Health = ill if breaker.failures or breaker.barred else "ok"
            then = before.get(worker_id, WELL)
            since_ms = then.since_ms if then.since_ms and then.state == state else now_ms
            until_ms = self._until_ms(worker_id, breaker, now_ms) if breaker.failures else 0
            complaint, why = breaker.complaint[:WHY_MAX], (breaker.barred or breaker.why)[:WHY_MAX]
            rows[worker_id] = WorkerHealth(state, since_ms, complaint, why, until_ms, breaker.registered_at_ms)
        return rows

    def _until_ms(self, worker_id: str, breaker: CircuitBreaker, now_ms: int) -> int:
        """Return when a worker's pause ends, by the store's clock (Unix ms). It is computed once, and anew if that
        clock was set."""
        until_ms = round(now_ms + (breaker.open_until_s - self._clock.mono_s()) * 1000)
        until_s, before_ms = self._ends.get(worker_id, (0.0, 0))
        if until_s == breaker.open_until_s and abs(until_ms - before_ms) < SAME_MS:
            return before_ms
        self._ends[worker_id] = breaker.open_until_s, until_ms
        return until_ms

    def _ruled(self, setting: Setting) -> None:
        before = self._known.get(setting.name)
        if setting.is_deleted:
            self._known.pop(setting.name, None)
        else:
            self._known[setting.name] = _read(setting)
        if setting.name != self._daemon:
            self._capacity.record_pauses(setting.name, self._pauses(setting.name, before))
        elif setting.revision != self._made:
            self._resume()

    def _resume(self) -> None:
        """Take over departures and pauses from before this daemon restarted, so that pauses which workers asked for go
        on."""
        self._workers.departures.resume(self._known[self._daemon].gone)
        for worker_id, pause in self._pauses(self._daemon, None).items():
            worker = self._workers.get(worker_id)
            if worker is not None and worker.registered_at_ms == pause.registered_at_ms:
                self._capacity.breaker(worker).resume(pause.until_s, self._known[self._daemon].rows[worker_id].why)

    def _pauses(self, daemon: str, before: WorkerView | None) -> dict[str, Pause]:
        """Return worker id → pause by this machine's clock, from another daemon's view. Workers that the other daemon
        merely cannot reach are left out, because this daemon may reach them."""
        view, known = self._known.get(daemon), self._capacity.pauses(daemon)
        now_ms, now_s = self._settings.now_ms(self._clock), self._clock.mono_s()
        pauses: dict[str, Pause] = {}
        for worker_id, seen in view.rows.items() if view is not None else ():
            if seen.state != "backed_off":
                continue
            then = before.rows.get(worker_id, WELL) if before is not None else WELL
            if worker_id in known and (then.until_ms, then.registered_at_ms) == (seen.until_ms, seen.registered_at_ms):
                pauses[worker_id] = known[worker_id]  # not computed anew: a clock that was set since changes nothing
                continue
            left_s = min((seen.until_ms - now_ms) / 1000, self._pause_s_max)
            pauses[worker_id] = Pause(now_s + left_s, seen.registered_at_ms)
        return pauses


def _fair(worker_ids: Iterable[str], ailing: Mapping[str, CircuitBreaker], now_s: float) -> list[str]:
    """Return the workers in the order in which they get a place in a view without room for all: backed-off workers
    first, unreachable ones last. Within each group, tenants alternate."""
    ranked: list[tuple[int, int, str]] = []
    ranks = Counter[tuple[int, str]]()
    for worker_id in sorted(worker_ids):
        breaker = ailing[worker_id]
        group = 2 if _is_away(breaker) else int(not breaker.is_shut(now_s))
        ranks[group, tenant_of(worker_id)] += 1
        ranked.append((group, ranks[group, tenant_of(worker_id)], worker_id))
    return [worker_id for *_, worker_id in sorted(ranked)]


def _is_away(breaker: CircuitBreaker) -> bool:
    """Return whether this daemon cannot reach the worker, or may not connect to it."""
    return breaker.unreached or bool(breaker.barred)


def _read(setting: Setting) -> WorkerView:
    return _decoder.decode(setting.body)
