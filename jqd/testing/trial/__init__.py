"""An app without a server, for `App.testing`: a real API and a real store's functions in memory, and time made up."""

from jqd.testing.trial.trial import Mode, Trial

__all__ = ["Mode", "Trial"]
