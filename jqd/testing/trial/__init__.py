"""Runs an app without a daemon, for `App.testing`: the real API and the store's own functions, in memory, with a manual
clock."""

from jqd.testing.trial.trial import Mode, Trial

__all__ = ["Mode", "Trial"]
