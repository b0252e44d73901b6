"""Reloads the configuration when the process receives SIGHUP.

Settings that can change while a daemon runs are put into force. Changes of other settings need a restart. The log and
the daemon's health name these changes until the daemon is restarted or they are undone, so that nobody relies on a
limit that is not in force. If the configuration has an error, nothing changes.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from jqd.config import Config, settings, value_of
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger
from jqd.domain.setting_text import SECRET, masked, text_of

# A running daemon can change these settings, and all settings in RELOADED_SECTIONS. The certificate's files are read
# again, too. Their paths need a restart, because whether the daemon uses TLS is part of the URL that workers know.
RELOADED = frozenset(
    {
        "drain_s",
        "http.hosts",
        "http.connections_max",
        "http.address_connections_max",
        "journal.retention_s",
        "journal.retention_bytes",
        "journal.others_s",
        "journal.others_bytes",
        "log.level",
        "log.form",
    }
)
RELOADED_SECTIONS = frozenset({"api", "pressure"})


def reloads(key: str) -> bool:
    """Return whether a change of this setting takes effect without a restart."""
    return key in RELOADED or key.partition(".")[0] in RELOADED_SECTIONS


class Reload:
    """Holds the configuration in force. It stays the same object when a daemon starts again with a new journal id
    (serve.py)."""

    def __init__(self, config: Config, load: Callable[[], Config] | None) -> None:
        """`load`: a function that reads the configuration from the same sources as at the start, and raises
        ConfigError; None if it cannot be read again."""
        self.config = config
        self.complaints: Sequence[str] = ()
        """Texts for `/readyz`: what is wrong with the configuration, and which changes wait for a restart."""
        self.change: Callable[[Config], None] = lambda config: None
        """The function that puts a configuration into force. If it raises ConfigError, nothing has changed."""
        self._load = load
        self._lock = trio.Lock()
        self._log = get_logger("config")

    @property
    def on_signal(self) -> Callable[[], Awaitable[None]] | None:
        """Return the handler of SIGHUP; None if the configuration cannot be loaded again."""
        return self.now if self._load is not None else None

    async def now(self) -> None:
        """Load the configuration, and put changed settings into force. Only one call at a time does this.

        An error in the configuration is not raised: it is logged, and kept in `complaints`.
        """
        assert self._load is not None, "on_signal says so"
        async with self._lock:
            try:
                # The file may be on a disk that hangs; nothing else waits for it.
                wanted = await trio.to_thread.run_sync(self._load, abandon_on_cancel=True)
            except ConfigError as error:
                self._refuse(error)
            else:
                self._take(wanted)

    def _take(self, wanted: Config) -> None:
        try:
            changed = [key for key, _ in settings(Config) if value_of(self.config, key) != value_of(wanted, key)]
            merged = _merged(self.config, wanted, [key for key in changed if reloads(key)])
            self.change(merged)
        except ConfigError as error:
            self._refuse(error)
            return
        self.config = merged
        waiting = [key for key in changed if not reloads(key)]
        self.complaints = (f"changed, and waiting for a restart: {', '.join(waiting)}",) if waiting else ()
        marks = {key: field.metadata.get(SECRET) for key, field in settings(Config)}
        values = ((key, value_of(merged, key)) for key in changed if reloads(key))
        now = {key: text_of(masked(value, marks[key]) if marks[key] else value, key) for key, value in values}
        note = self._log.warning if waiting else self._log.info
        note("config.reloaded", changed=now, needs_restart=waiting)

    def _refuse(self, error: ConfigError) -> None:
        self.complaints = (f"the configuration was not loaded again: {error}. What held before holds on",)
        self._log.error("config.not_reloaded", error=str(error))


def _merged(config: Config, wanted: Config, keys: Sequence[str]) -> Config:
    """Return a copy of `config` in which the settings `keys` are taken from `wanted`. Raises ConfigError if they
    contradict the other settings."""
    sections: dict[str, dict[str, Any]] = {}
    for key in keys:
        section, _, name = key.rpartition(".")
        sections.setdefault(section, {})[name] = value_of(wanted, key)
    whole = sections.pop("", {})
    try:
        parts = {name: dataclasses.replace(getattr(config, name), **values) for name, values in sections.items()}
        return dataclasses.replace(config, **whole, **parts)
    except ValueError as error:
        raise ConfigError(f"{error} (with what needs a restart as it was before)") from error
