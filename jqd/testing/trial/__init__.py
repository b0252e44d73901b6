"""Runs an app without a daemon, for `App.testing`. The real API and the Lua functions of the store run in memory, with
a manual clock."""

from jqd.testing.trial.trial import Mode, Trial

__all__ = ["Mode", "Trial"]
