"""How each daemon sees the workers: whom it reaches, and whom it gives no jobs for now. And where it is reached itself.

A daemon's *view* is a rule under its own name, which stands in no journal: it says it to the store with its questions
what is new (`loops/rules.py`), so all daemons have all views, and show the same. Only workers that are not well have
a row in it.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from jqd.runner.endpoint import host_of
from jqd.runner.gates import Gates
from jqd.runner.reach import Standing, machine, standing_of
from jqd.runner.workers import Workers
from jqd.words import address
from jqd.words.clock import Clock
from jqd.words.rules import Rule

VIEW = "view"  # a kind of rule
ROWS_MAX = 100  # workers in one view: about 30 kB, said again at most twice a second while it changes
WHY_MAX = 200  # characters of a complaint
AGAIN_S = 3_600.0  # a view that did not change is said again, or it might be taken for one of a daemon that is gone
RECENT_S = 2 * AGAIN_S  # who lives has said it since
SAME_MS = 100  # an end of a pause that differs by less is the one that was said
KEPT_S = 86_400.0  # what was not said again for so long is of a daemon that is gone

Health = Literal["ok", "backed_off", "unreachable"]


class Seen(NamedTuple):
    """How one daemon sees one worker."""

    state: Health
    since_ms: int
    """0: it is well."""
    complaint: str = ""
    """What somebody has to mend at it."""
    why: str = ""
    """How its last request ended."""
    until_ms: int = 0
    """It gets nothing before that; then one job, to try it."""


WELL = Seen("ok", 0)


class View(msgspec.Struct, frozen=True):
    """What one daemon says to all."""

    rows: dict[str, Seen]
    """By worker's id."""
    url: str = ""
    """Where clients and workers reach it; empty: it does not know."""
    machine: str = ""
    """On which machine a loopback address of `url` leads to it."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(View)


class Views:
    """Ours, and those of the others as far as they were told."""

    def __init__(self, daemon: str, workers: Workers, gates: Gates, clock: Clock) -> None:
        self._daemon = daemon
        self._workers = workers
        self._rules = workers.rules
        self._gates = gates
        self._clock = clock
        self.url = ""
        """Where this daemon is reached, from when it listens."""
        self._known: dict[str, View] = {}
        self._rules.read(VIEW, _read)
        self._rules.watch(VIEW, self._ruled)

    def look(self) -> Rule:
        """Ours as it is now: another rule where something changed since the last look."""
        now_ms = self._clock.wall_ms()
        body = _encoder.encode(View(self._rows(now_ms), self.url, machine()))
        rule = self._rules.get(VIEW, self._daemon)
        if rule is None or bytes(rule.body) != body or now_ms - rule.at_ms > AGAIN_S * 1000:
            (rule,) = self._rules.make({(VIEW, self._daemon): body}, now_ms=now_ms, origin=0)
            self._rules.take([rule])
        return rule

    def of(self, worker_id: str, daemons: Iterable[str]) -> dict[str, Seen]:
        """How these daemons see a worker; those whose view is not known here are left out."""
        views = ((daemon, self._known.get(daemon)) for daemon in sorted(daemons))
        return {daemon: view.rows.get(worker_id, WELL) for daemon, view in views if view is not None}

    def urls(self, daemons: Iterable[str], peer: str | None) -> list[str]:
        """Where these daemons are reached by somebody at `peer`: a loopback address leads elsewhere from elsewhere."""
        views = [view for daemon in daemons if (view := self._known.get(daemon)) is not None and view.url]
        near = standing_of(peer) is Standing.LOOPBACK
        here = [not address.is_loopback(host_of(view.url)) or (near and view.machine == machine()) for view in views]
        return [view.url for view, is_reached in zip(views, here, strict=True) if is_reached]

    def recent(self) -> list[str]:
        """Daemons that said theirs not long ago, whether they live or not: while the store is away nobody knows."""
        now_ms = self._clock.wall_ms()
        return sorted(rule.name for rule in self._rules.all(VIEW) if now_ms - rule.at_ms < RECENT_S * 1000)

    def stale(self) -> list[Rule]:
        """Views of daemons that are gone."""
        now_ms = self._clock.wall_ms()
        return [rule for rule in self._rules.all(VIEW) if now_ms - rule.at_ms > KEPT_S * 1000]

    def _rows(self, now_ms: int) -> dict[str, Seen]:
        ailing = self._gates.ailing()
        known = {worker.id for worker in self._workers.list()} if ailing else ()
        known_view = self._known.get(self._daemon)
        before = known_view.rows if known_view else {}
        rows: dict[str, Seen] = {}
        for worker_id in sorted(ailing.keys() & known)[:ROWS_MAX]:
            gate = ailing[worker_id]
            ill: Health = "unreachable" if gate.unreached or gate.barred else "backed_off"
            state: Health = ill if gate.failures or gate.barred else "ok"
            then = before.get(worker_id, WELL)
            since_ms = then.since_ms if then.since_ms and then.state == state else now_ms
            until_ms = round(now_ms + (gate.open_until_s - self._clock.mono_s()) * 1000) if gate.failures else 0
            if abs(until_ms - then.until_ms) < SAME_MS:
                until_ms = then.until_ms  # said once, also where two clocks do not run alike
            rows[worker_id] = Seen(
                state, since_ms, gate.complaint[:WHY_MAX], (gate.barred or gate.why)[:WHY_MAX], until_ms
            )
        return rows

    def _ruled(self, rule: Rule) -> None:
        if rule.is_deleted:
            self._known.pop(rule.name, None)
        else:
            self._known[rule.name] = _read(rule)


def _read(rule: Rule) -> View:
    return _decoder.decode(rule.body)
