"""Describes the processes of one `jqd serve --processes N`: which processes there are, and how their configurations
differ.

A process is *surplus* if its number is N or more: an earlier start had a larger N, and the journal of the process may
still have jobs.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from jqd.config import PROCESSES_MAX, Config, load
from jqd.domain.clock import SystemClock
from jqd.domain.errors import JqdError
from jqd.domain.process import Process
from jqd.domain.record import Lane, decode_rules
from jqd.domain.settings import Setting
from jqd.journal import Files
from jqd.journal.files import holding
from jqd.journal.frame import Frame
from jqd.journal.inspect import SegmentView, snapshot, walk
from jqd.loops.settings import is_stale
from jqd.loops.systemd import Manager

NAME = "process-"  # followed by the process's number, the name of its directories
LEFT = ".left"  # appended to the name of a journal that is no longer needed
JOBS = frozenset(Lane) - {Lane.RULES}


@dataclass(frozen=True, slots=True)
class Fit:
    """What differs in the configuration of one process from the common configuration."""

    process: Process
    bind: str
    store_url: str
    """The URL of the store that the supervisor runs; empty if the configuration names servers."""
    manager: Manager

    def fit(self, config: Config) -> Config:
        """Return the configuration of this process, made from the common one (`config`). A surplus process listens at
        an address that no client knows."""
        data_dir, directory = directories(self.process.number, config)
        at = "127.0.0.1:0" if self.process.surplus else self.bind
        return replace(
            config,
            data_dir=data_dir,
            journal=replace(config.journal, directory=directory),
            # It requires a token if the others do, wherever it listens: they pass their callers' tokens on to it.
            http=replace(config.http, bind=at, tokens="required" if config.needs_tokens else config.http.tokens),
            store=replace(config.store, url=self.store_url) if self.store_url else config.store,
            manager=self.manager,
            process=self.process,
        )


@dataclass(frozen=True, slots=True)
class Start:
    """What the supervisor sends to a process that it starts, pickled, as the first data on its stdin."""

    config: Config
    """The common configuration, including settings that were reloaded since the supervisor started."""
    file: Path | None
    flags: Mapping[str, Any]
    fit: Fit
    own_fd: int
    """The file descriptor of a listening socket, at which the other processes reach this process alone."""
    root: str
    """The root token, which is the same in all processes."""

    def load(self) -> Config:
        """Read the configuration again, and apply what differs for this process. Raises ConfigError."""
        return self.fit.fit(load(file=self.file, flags=self.flags))


def directories(number: int, config: Config) -> tuple[Path, Path]:
    """Return the data directory and the journal directory of a process. Process 0 uses the same directories as a daemon
    with a single process.

    The journals of the other processes are inside the journal directory of process 0, so that they are moved together.
    """
    if number == 0:
        return config.data_dir, config.journal.directory
    name = f"{NAME}{number}"
    return config.data_dir / name, config.journal.directory / name


def journals(directory: Path) -> dict[int, Path]:
    """Return process number → journal directory for the other processes. They are inside the journal directory of
    process 0."""
    texts = {path.name.removeprefix(NAME): path for path in directory.glob(f"{NAME}*") if path.is_dir()}
    found = {int(text): path for text, path in texts.items() if text.isdecimal() and int(text) < PROCESSES_MAX}
    return dict(sorted(found.items()))


def surplus(config: Config) -> list[int]:
    """Return the numbers of the surplus processes: those beyond `--processes` whose journals may still be needed.
    Renames the journals that are no longer needed.

    If such a journal were used again by a later start with more processes, it would bring back deleted settings, whose
    deletions are forgotten by then.
    """
    there = journals(config.journal.directory)
    beyond = {number: journal for number, journal in there.items() if number >= config.processes}
    stay = [directories(number, config)[1] for number in range(config.processes)]
    return [number for number, journal in beyond.items() if not _is_put_aside(journal, stay)]


def _is_put_aside(journal: Path, stay: Sequence[Path]) -> bool:
    try:
        with holding(Files(), journal):
            if _is_needed(journal, stay):
                return False
            left = journal.with_name(journal.name + LEFT)
            shutil.rmtree(left, ignore_errors=True)  # a journal that was renamed long ago
            journal.replace(left)
    except (JqdError, OSError):  # a daemon uses the journal, or the disk is bad: its own process reports that
        return False
    return True


def _is_needed(journal: Path, stay: Sequence[Path]) -> bool:
    """Return whether a journal is still needed.

    It is needed if it contains a job, an outcome or cancel that a job in another journal needs, something unreadable,
    or a setting that no journal in `stay` has.
    """
    settings, now_ms = dict[tuple[str, str], Setting](), SystemClock().wall_ms()
    for seen in snapshot(Files(), journal):
        found = chain(seen.places, walk(Files(), seen, kinds=JOBS))
        if seen.header is None or any(isinstance(each, Frame) or each.kind.is_damage for each in found):
            return True
        for setting in _settings(seen):
            if setting.supersedes(settings.get(setting.key)):
                settings[setting.key] = setting
    if any(journal.glob("*.damaged")):
        return True
    lacking = {key: setting for key, setting in settings.items() if not is_stale(setting, now_ms)}
    for seen in (seen for each in stay if lacking and each.is_dir() for seen in snapshot(Files(), each)[::-1]):
        for setting in _settings(seen):
            if setting.key in lacking and not lacking[setting.key].supersedes(setting):
                del lacking[setting.key]
    return bool(lacking)


def _settings(seen: SegmentView) -> Iterator[Setting]:
    """Yield the settings in one segment of a journal. Raises JournalDamaged."""
    for each in walk(Files(), seen, kinds=[Lane.RULES]):
        if isinstance(each, Frame):
            yield from decode_rules(each.body)
