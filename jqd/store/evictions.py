"""Notices that a server deleted keys to make room for others, even if its settings are good again by then.

    maxmemory-policy   noeviction ──▶ allkeys-* ──▶ noeviction        a daemon may see the first and the last only
    evicted_keys            7               7…90          90          so the growth of this number counts

Nobody knows of the jobs whose keys were lost: they count as waiting or applied, and no journal brings them back. So the
finding stays until the store is emptied or this daemon is restarted. Evicted keys with an expiry do no harm: jqd has
none.
"""

from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.store.checks import Facts

VOLATILE, ALL = "volatile", "allkeys"


class Evictions:
    """Remembers earlier examinations of one server, to find out whether it deleted keys."""

    def __init__(self) -> None:
        self._run_id, self._evicted, self._policy = "", 0, ""  # of the server, at the last look
        self._keys = 0  # keys that were deleted since the store was emptied
        self._seal = ""  # of the store that lost them; it survives restarts, but not the emptying of the store

    def note(self, facts: Facts) -> list[Diagnostic]:
        """Compare an examination with the one before. Returns a finding as long as the store lacks keys."""
        if facts.misplaced:  # another store answers, whose seal says nothing of ours
            return [_lost(self._keys)] if self._keys else []
        run_id, evicted, policy = str(facts.info.get("run_id", "")), facts.evicted, facts.policy
        grown = evicted - self._evicted if run_id == self._run_id else 0
        policies = {policy, self._policy}
        by_expiry = any(one.startswith(VOLATILE) for one in policies) and not any(
            one.startswith(ALL) for one in policies
        )
        if grown > 0 and not by_expiry:
            self._keys, self._seal = self._keys + grown, facts.seal
        elif not self._seal:
            self._seal = facts.seal  # the seal was among the lost keys
        elif facts.seal != self._seal:
            self._keys, self._seal = 0, facts.seal
        self._run_id, self._evicted, self._policy = run_id, evicted, policy
        return [_lost(self._keys)] if self._keys else []


def _lost(keys: int) -> Diagnostic:
    return Diagnostic(
        "evicted",
        Severity.REFUSE,
        f"the server has deleted {keys} keys to make room for others",
        "what jqd kept in them is gone, and a job of which a part is gone may wait for ever",
        "CONFIG SET maxmemory-policy noeviction, start every daemon, and 20 s later, when each has looked, empty the "
        "store (FLUSHDB, where jqd has the server for itself): the journals rebuild it",
    )
