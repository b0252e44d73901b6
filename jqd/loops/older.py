"""Takes over what an earlier version kept of workers: a file `workers.json` in the data directory, once."""

from pathlib import Path

import msgspec

from jqd.runner import Worker
from jqd.runner.workers import KIND, body_of
from jqd.words.errors import Invalid
from jqd.words.log import get_logger
from jqd.words.rules import Rules

NAME = "workers.json"
VERSION = 1

log = get_logger("workers")


class _File(msgspec.Struct):
    version: int
    workers: list[Worker]


def read_older(directory: Path, rules: Rules) -> dict[tuple[str, str], bytes]:
    """What is to be said of the workers in that file, but for those that a rule knows. A damaged file is put aside."""
    path = directory / NAME
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        if file.version != VERSION:
            raise Invalid(f"it has format version {file.version}, this jqd reads {VERSION}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        log.error("workers.not_taken_over", path=str(path), error=str(error))
        return {}
    except (msgspec.MsgspecError, Invalid, RecursionError) as error:
        log.error("workers.not_taken_over", path=str(path), error=str(error))
        _rename(path, ".damaged")
        return {}
    return {(KIND, one.id): body_of(one) for one in file.workers if rules.get(KIND, one.id) is None}


def drop_older(directory: Path) -> None:
    """What stood there is in the journal now."""
    if (directory / NAME).exists():
        _rename(directory / NAME, ".taken_over")
        log.info("workers.taken_over", path=str(directory / NAME))


def _rename(path: Path, suffix: str) -> None:
    try:
        path.replace(path.with_suffix(suffix))
    except OSError as error:
        # It is read again at the next start: what a rule knows by then is passed over.
        log.error("workers.not_renamed", path=str(path), error=str(error))
