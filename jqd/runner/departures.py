"""Records which daemons and workers left or died within the last day, and how many of their jobs were handed back.

Each daemon publishes the departures that it saw in its view (`worker_health.py`). So all daemons show the same, even
departures that only a daemon saw that has left since. Each daemon or worker has one row: its last departure."""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from jqd.domain.clock import Clock

KEPT_MS = 86_400_000  # a day: in the morning one sees what left at night
ROWS_MAX = 100  # departures of one kind: some 10 kB of a daemon's view
SAME_MS = 60_000  # sightings so close together, by several partitions or daemons, are one departure
LOST_MAX = 1_000  # workers whose lost jobs are counted before it is known that they are gone

Kind = Literal["daemon", "worker"]


class Departure(NamedTuple):
    kind: Kind
    name: str
    """The sysid of a daemon, or the id of a worker."""
    died: bool
    """True: it fell silent. False: it left in good order."""
    at_ms: int
    """When it was found to be gone, by the clock of the daemon that noticed it."""
    last_seen_at_ms: int
    """Time of its last sign of life; 0: not known."""
    jobs: int = 0
    """Number of its jobs in flight that were handed back or tried again."""
    called: str = ""
    """The worker's name."""
    times: int = 1
    """How often it went within the last day, as far as this daemon saw."""


class Departures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[tuple[Kind, str], Departure] = {}
        self._lost: dict[str, tuple[int, int]] = {}

    def note(
        self,
        kind: Kind,
        name: str,
        *,
        died: bool,
        last_seen_at_ms: int = 0,
        at_ms: int | None = None,
        jobs: int = 0,
        called: str = "",
    ) -> None:
        """Record that a daemon or a worker died or left. `at_ms`: when; None: now. `jobs`: how many of its jobs were
        handed back. `called`: the worker's name."""
        now_ms = self._clock.wall_ms()
        at_ms = now_ms if at_ms is None else at_ms
        if now_ms - at_ms > KEPT_MS:
            return
        lost, lost_at_ms = self._lost.pop(name, (0, 0)) if kind == "worker" else (0, 0)
        jobs += lost if at_ms - lost_at_ms <= 10 * SAME_MS else 0
        before, times = self._rows.pop((kind, name), None), 1
        if before is not None and at_ms - before.at_ms <= SAME_MS:  # another partition saw the same
            jobs, died, times = jobs + before.jobs, died or before.died, before.times
            last_seen_at_ms = max(last_seen_at_ms, before.last_seen_at_ms)
        elif before is not None and died and before.died and 0 < last_seen_at_ms <= before.at_ms:  # silent since then
            jobs, times, at_ms = jobs + before.jobs, before.times, before.at_ms
            last_seen_at_ms = max(last_seen_at_ms, before.last_seen_at_ms)
        elif before is not None:
            times = before.times + 1
        self._rows[kind, name] = Departure(kind, name, died, at_ms, last_seen_at_ms, jobs, called, times)

    def lost(self, kind: Kind, name: str, jobs: int) -> None:
        """Count jobs that were handed back because a daemon or worker (`name`: its sysid or id) fell silent or its
        connection broke. They are added to its departure, if one is recorded at about the same time."""
        row, now_ms = self._rows.get((kind, name)), self._clock.wall_ms()
        if row is not None and now_ms - row.at_ms <= SAME_MS:
            self._rows[kind, name] = row._replace(jobs=row.jobs + jobs)
        elif kind == "worker":
            self._lost[name] = self._lost.pop(name, (0, 0))[0] + jobs, now_ms
            while len(self._lost) > LOST_MAX:
                del self._lost[next(iter(self._lost))]

    def resume(self, rows: Iterable[Departure]) -> None:
        """Add the departures (of daemons and workers) that an earlier process of this daemon recorded. If this process
        has recorded one of the same daemon or worker already, that one stays."""
        for row in rows:
            self._rows.setdefault((row.kind, row.name), row)

    def rows(self) -> list[Departure]:
        """Return the departures of the last day, newest first. Of daemons and of workers at most ROWS_MAX each are
        kept, deaths rather than others."""
        since_ms = self._clock.wall_ms() - KEPT_MS
        recent = [row for row in reversed(self._rows.values()) if row.at_ms > since_ms]
        recent.sort(key=_died_first)
        kept = [row for kind in get_args(Kind) for row in [each for each in recent if each.kind == kind][:ROWS_MAX]]
        kept.sort(key=lambda row: -row.at_ms)
        self._rows = {(row.kind, row.name): row for row in reversed(kept)}
        return kept


class Gone(NamedTuple):
    """The departure of a daemon or worker, merged from what all daemons saw of it."""

    row: Departure
    by: list[str]
    """Ids of the daemons that handed its jobs back; if none did, of those that noticed the departure."""


def together(seen: Iterable[tuple[str, Departure]], kind: Kind) -> list[Gone]:
    """Merge the departures that all daemons saw: one row for each daemon or worker of this kind, newest first. `seen`:
    pairs of a daemon, and a departure that it saw."""
    latest: dict[str, list[tuple[str, Departure]]] = {}
    for daemon, row in sorted(seen, key=lambda pair: -pair[1].at_ms):
        if row.kind == kind:
            rows = latest.setdefault(row.name, [])
            if not rows or rows[0][1].at_ms - row.at_ms <= SAME_MS:
                rows.append((daemon, row))
    found = []
    for rows in latest.values():
        returned_by = [daemon for daemon, row in rows if row.jobs]
        sightings = [row for _, row in rows]
        merged = sightings[0]._replace(
            died=any(row.died for row in sightings),
            jobs=sum(row.jobs for row in sightings),
            last_seen_at_ms=max(row.last_seen_at_ms for row in sightings),
            times=max(row.times for row in sightings),
        )
        found.append(Gone(merged, returned_by or sorted(daemon for daemon, _ in rows)))
    return found


def shown(found: Iterable[Gone]) -> list[Gone]:
    """Return at most ROWS_MAX of these departures, newest first. If there are more, departures of daemons or workers
    that left in good order are left out before deaths."""
    kept = sorted(found, key=lambda gone: _died_first(gone.row))[:ROWS_MAX]
    return sorted(kept, key=lambda gone: -gone.row.at_ms)


def _died_first(row: Departure) -> tuple[bool, int]:
    return not row.died, -row.at_ms
