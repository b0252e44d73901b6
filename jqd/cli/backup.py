"""`jqd backup` and `jqd restore`: copy the data of a running daemon, and restore a daemon's data from such a copy.

    DIR/   store-0.rdb …   what each server of the store held when the copy began
           journal/        the daemon's journal, copied after the store: it has the records that the store's copy lacks
           process-1/ …    the journals of the other processes of `jqd serve --processes`
           backup.json     written last; without it the copy is incomplete

The store is copied first: otherwise its copy could have jobs that the copy of the journal lacks.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from jqd.cli.common import ConfigFile, DataDir, Flag, OutputFlag, StoreUrls
from jqd.cli.config import daemon_settings
from jqd.cli.exits import Exit, Usage
from jqd.cli.render import show
from jqd.cli.segments import living
from jqd.config import Config
from jqd.domain.clock import SystemClock
from jqd.domain.dates import iso
from jqd.domain.synced_files import begin_directory, copy_synced, end_directory, sync_directory
from jqd.journal import Files
from jqd.journal.inspect import snapshot
from jqd.journal.recover import RETIRED
from jqd.processes import NAME, directories, journals
from jqd.store import HIDDEN, StoreConfig, copy_rdb, place_rdb, socket_of

FORMAT = 1
DONE = "backup.json"
JOURNAL = "journal"


class Made(msgspec.Struct):
    """The content of `backup.json`."""

    format: int
    at: str | None
    own_store: bool
    """Whether the daemon ran its own store."""
    stores: dict[str, int]
    """Name of each file with the copy of a server of the store, in the order of their URLs → its size in bytes."""
    journal: dict[str, int]
    """Name of each file of the journal → its size in bytes."""
    processes: dict[int, dict[str, int]] = {}
    """Number of each further process (`--processes`) → the files of its journal, as in `journal`."""

    def journals(self, target: Path) -> dict[int, tuple[Path, dict[str, int]]]:
        """Return for each process number the directory of its journal below `target` (the backup), and the names and
        sizes of the files there. 0 is the daemon itself, or the first of several processes."""
        others = {number: (target / f"{NAME}{number}", files) for number, files in self.processes.items()}
        return {0: (target / JOURNAL, self.journal), **others}


def backup(
    target: Path,
    /,
    *,
    store: StoreUrls = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    journal_only: Flag = False,
    output: OutputFlag = "table",
) -> int:
    """Copy a running daemon's store and journal into a new directory, without stopping it.

    Parameters
    ----------
    target
        The new directory; it must not exist yet.
    journal_only
        Copy only the journal: for further daemons of a store that is copied already.
    """
    settings = daemon_settings(config, store, data_dir)
    source = settings.journal.directory
    if not source.is_dir():
        raise Usage(f"{source} is no journal of a daemon; name its --data-dir")
    servers = {
        f"store-{number}.rdb": server for number, server in enumerate(_servers(settings) if not journal_only else ())
    }
    try:
        with _for_owner_alone():
            target.mkdir(mode=0o700, parents=True)
            stores = {name: copy_rdb(server, target / name) for name, server in servers.items()}
            made = Made(FORMAT, iso(SystemClock().wall_ms()), settings.store.is_own, stores, {})
            made.journal = _copy_journal(source, target / JOURNAL)
            for number, journal in journals(source).items():
                made.processes[number] = _copy_journal(journal, target / f"{NAME}{number}")
            _write(target / DONE, made)
            sync_directory(target)
    except FileExistsError as error:
        raise Usage(f"{target} is there already; name a new directory") from error
    except OSError as error:
        raise Usage(f"{target} cannot be written: {error.strerror or error}; what is there is not whole") from error
    others = {f"{NAME}{number}": sum(files.values()) for number, files in made.processes.items()}
    show({"backup": str(target), **made.stores, "journal": sum(made.journal.values()), **others}, output)
    return Exit.DONE


def restore(
    source: Path,
    /,
    *,
    data_dir: Path | None = None,
    config: ConfigFile = None,
    store_dir: Annotated[list[Path] | None, Parameter(negative="")] = None,
    journal_only: Flag = False,
    output: OutputFlag = "table",
) -> int:
    """Restore a daemon's data from a backup. Stop all daemons of that store before, and start them afterwards.

    Parameters
    ----------
    source
        Directory that `jqd backup` made.
    data_dir
        Data directory for the daemon; it must not have a journal yet. Default ./.jqd, or what the configuration says.
    store_dir
        If the store is not the daemon's own: data directory of its server, which you start afterwards with
        `appendonly yes`. If there are several servers, give one for each, in the order of their URLs.
    journal_only
        Restore only the journal: the store is restored already.
    """
    made = _read(source)
    settings = daemon_settings(config, None, data_dir)
    goals = {number: directories(number, settings)[1] for number in (0, *made.processes)}
    for goal in goals.values():
        if (process := living(goal)) is not None:
            raise Usage(f"a daemon (process {process}) lives in {goal}; stop it, and all others of that store")
        if goal.exists() and any(goal.iterdir()):
            raise Usage(f"{goal} has a journal already; name another --data-dir, or move that away")
    stores = [] if journal_only else list(made.stores)
    places = list(store_dir or ([settings.data_dir / "store"] if made.own_store and stores else []))
    if len(places) != len(stores):
        raise Usage(f"there are {len(stores)} servers to put back: give --store-dir for each, or --journal-only")
    try:
        with _for_owner_alone():
            parts = [place_rdb(source / name, place) for name, place in zip(stores, places, strict=True)]
            parts.append(part := begin_directory(goals[0]))
            for number, (copy, files) in made.journals(source).items():
                _put_journal(copy, files, part / goals[number].relative_to(goals[0]))
        for part in parts:  # the journals last: without them no daemon was restored
            end_directory(part)
    except FileExistsError as error:
        raise Usage(f"{error.filename} is there already: a server has data there; name an empty directory") from error
    except OSError as error:
        raise Usage(f"the backup cannot be put back: {error}") from error
    show({"made_at": made.at, "journal": str(goals[0]), "stores": [str(place) for place in places]}, output)
    return Exit.DONE


def _servers(settings: Config) -> Sequence[StoreConfig]:
    """Return the servers of the store, in the order of their URLs, each once even if it has several partitions. Raises
    Usage if they cannot be backed up."""
    if any("+cluster:" in part.url for part in settings.store.parts()):
        raise Usage(
            "a Cluster's nodes are backed up by its own means (the snapshot of each master), and put back so, too; "
            "behind that copy the journal of each daemon: --journal-only"
        )
    if not settings.store.is_own:
        return settings.store.parts()[: len(settings.store.urls) or 1]  # the first partition of each
    own = settings.data_dir / "store"
    if (path := socket_of(own)) is None:
        raise Usage(f"the daemon's own store does not run in {own} {HIDDEN}; start the daemon, or name --store")
    return [dataclasses.replace(settings.store, url=f"unix://{path}").parts()[0]]


def _copy_journal(source: Path, target: Path) -> dict[str, int]:
    """Copy a journal while a daemon writes it: first the file `retired`, then the segments, the oldest first. Returns
    the name of each file → its size.

    A segment may be deleted meanwhile: its jobs have ended, or were copied, perhaps into a new segment. Then the
    segments are listed again, and those are copied that are missing or have grown. The last segment may end in an
    incomplete frame, which a daemon cuts off at its start. Raises OSError, JournalRefused.
    """
    target.mkdir(mode=0o700)
    sizes: dict[str, int] = {}
    while (whole := _copy_once(source, target, sizes)) is None:
        pass
    for path in target.iterdir():
        if path.name not in whole:
            path.unlink()
    sync_directory(target)
    return whole


def _copy_once(source: Path, target: Path, sizes: dict[str, int]) -> dict[str, int] | None:
    """Copy the file `retired`, and the segments whose size differs from the one in `sizes` (name → bytes copied so
    far); update `sizes`. Returns name → size of all files of the journal; None if a segment was deleted meanwhile."""
    found: dict[str, int] = {}
    if (source / RETIRED).exists():
        (target / RETIRED).unlink(missing_ok=True)
        found[RETIRED] = copy_synced(source / RETIRED, target / RETIRED)
    try:
        for seen in snapshot(Files(), source):
            name = seen.path.name
            if sizes.get(name) != seen.size:
                (target / name).unlink(missing_ok=True)
                sizes[name] = copy_synced(seen.path, target / name)
            found[name] = sizes[name]
    except FileNotFoundError:
        return None
    return found


def _write(path: Path, made: Made) -> None:
    with path.open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _read(source: Path) -> Made:
    """Read and check `backup.json`. Raises Usage if the backup is incomplete."""
    try:
        made = msgspec.json.decode((source / DONE).read_bytes(), type=Made)
        copies = [(source, made.stores), *made.journals(source).values()]
        files = {copy / name: size for copy, names in copies for name, size in names.items()}
        wrong = [path.name for path, size in files.items() if path.stat().st_size != size]
    except (OSError, msgspec.MsgspecError) as error:
        raise Usage(f"{source} is no whole backup: {error}") from error
    if made.format != FORMAT:
        raise Usage(f"{source} was made by another release: its format is {made.format}, not {FORMAT}")
    if wrong:
        raise Usage(f"{source} is no whole backup: {wrong[0]} has another size than when it was made")
    return made


def _put_journal(source: Path, names: dict[str, int], goal: Path) -> None:
    goal.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        copy_synced(source / name, goal / name)
    sync_directory(goal)
    sync_directory(goal.parent)


@contextmanager
def _for_owner_alone() -> Iterator[None]:
    """Make files that only their owner can read: they hold jobs and tokens, and may be moved out of their directory."""
    umask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(umask)
