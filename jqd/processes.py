"""The processes of one `jqd serve --processes N`: which there are, and how the configuration of each differs."""

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
from jqd.journal.inspect import Good, SegmentView, snapshot, walk
from jqd.loops.settings import is_stale
from jqd.loops.systemd import Manager

NAME = "process-"  # and a number: of directories
LEFT = ".left"  # behind the name of a journal that is needed no more
JOBS = frozenset(Lane) - {Lane.RULES}


@dataclass(frozen=True, slots=True)
class Fit:
    """How the configuration of a process differs from that of all."""

    process: Process
    bind: str
    store_url: str
    """Of the own store, which the supervisor keeps; empty: servers are named."""
    manager: Manager

    def fit(self, config: Config) -> Config:
        """Return the configuration of this process. A surplus one listens where nobody comes."""
        data_dir, directory = directories(self.process.number, config)
        at = "127.0.0.1:0" if self.process.surplus else self.bind
        return replace(
            config,
            data_dir=data_dir,
            journal=replace(config.journal, directory=directory),
            # It asks for a token where the others do, wherever it listens: they pass on what their callers showed.
            http=replace(config.http, bind=at, tokens="required" if config.needs_tokens else config.http.tokens),
            store=replace(config.store, url=self.store_url) if self.store_url else config.store,
            manager=self.manager,
            process=self.process,
        )


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is told before all else; pickled."""

    config: Config
    """Of all, with what was reloaded since the start."""
    file: Path | None
    flags: Mapping[str, Any]
    fit: Fit
    own_fd: int
    """Listens where the others reach it alone."""
    root: str

    def load(self) -> Config:
        """Return the configuration again, as it is for this process. Raises ConfigError."""
        return self.fit.fit(load(file=self.file, flags=self.flags))


def directories(number: int, config: Config) -> tuple[Path, Path]:
    """Return data directory and journal of a process. Process 0 has those that a single daemon has.

    Its journal has those of the others below it: whoever moves it takes them along.
    """
    if number == 0:
        return config.data_dir, config.journal.directory
    name = f"{NAME}{number}"
    return config.data_dir / name, config.journal.directory / name


def journals(directory: Path) -> dict[int, Path]:
    """Return the journals of other processes that there are in the directory of that of process 0."""
    texts = {path.name.removeprefix(NAME): path for path in directory.glob(f"{NAME}*") if path.is_dir()}
    found = {int(text): path for text, path in texts.items() if text.isdecimal() and int(text) < PROCESSES_MAX}
    return dict(sorted(found.items()))


def surplus(config: Config) -> list[int]:
    """Return the numbers of processes beyond those that are wanted whose journals may be needed yet.

    A journal that is not is put aside: should there be so many processes again, settings would come back from it whose
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
            shutil.rmtree(left, ignore_errors=True)  # of an earlier time
            journal.replace(left)
    except (JqdError, OSError):  # a daemon lives there, or the disk is bad: its own process says so
        return False
    return True


def _is_needed(journal: Path, stay: Sequence[Path]) -> bool:
    """Return whether a job, an end that a job in another journal needs, or what cannot be read stands in a journal; or
    a setting that stands in none of those that stay."""
    settings, now_ms = dict[tuple[str, str], Setting](), SystemClock().wall_ms()
    for seen in snapshot(Files(), journal):
        found = chain(seen.places, walk(Files(), seen, kinds=JOBS))
        if seen.header is None or any(isinstance(each, Good) or each.kind.is_damage for each in found):
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
    """Raises JournalDamaged."""
    for each in walk(Files(), seen, kinds=[Lane.RULES]):
        if isinstance(each, Good):
            yield from decode_rules(each.body)
