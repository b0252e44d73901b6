"""The processes of one `jqd serve --processes N`: which there are, and how the configuration of each differs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jqd.config import PROCESSES_MAX, Config, load
from jqd.domain.errors import JournalRefused
from jqd.domain.process import Process
from jqd.domain.record import Lane
from jqd.journal import Files
from jqd.journal.inspect import Good, snapshot, walk
from jqd.loops.systemd import Manager

NAME = "process-"  # and a number: of directories


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
            # A token is needed here where it is at the shared address: loopback is open to all on the machine.
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

    A journal on a disk of its own has those of the others below it, on that disk.
    """
    data_dir, journal = config.data_dir, config.journal.directory
    if number == 0:
        return data_dir, journal
    mine = data_dir / f"{NAME}{number}"
    return mine, mine / "journal" if journal == data_dir / "journal" else journal / mine.name


def journals(config: Config) -> dict[int, Path]:
    """Return the journals of processes that there are beside that of process 0."""
    beside = [path.name for place in {config.data_dir, config.journal.directory} for path in place.glob(f"{NAME}*")]
    texts = {name.removeprefix(NAME) for name in beside}
    numbers = {int(text) for text in texts if text.isdecimal() and int(text) < PROCESSES_MAX}
    found = {number: directories(number, config)[1] for number in sorted(numbers)}
    return {number: journal for number, journal in found.items() if journal.is_dir()}


def surplus(config: Config) -> list[int]:
    """Return the numbers of processes beyond those that are wanted whose journals may be needed yet.

    Settings stand in the journals of all daemons. A job, and an end that a job in another journal needs, stands in its
    own until retention deletes it.
    """
    return [each for each, journal in journals(config).items() if each >= config.processes and _is_needed(journal)]


def _is_needed(journal: Path) -> bool:
    files, kinds = Files(), {lane.value for lane in Lane if lane is not Lane.RULES}
    try:
        for seen in snapshot(files, journal):
            found = [*seen.places, *walk(files, seen, kinds=kinds)]
            if seen.header is None or any(isinstance(each, Good) or each.kind.is_damage for each in found):
                return True
    except JournalRefused:
        return True  # its own process says what is wrong
    return any(journal.glob("*.damaged"))
