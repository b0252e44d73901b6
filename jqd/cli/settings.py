"""The settings of a daemon, for commands that look at what it keeps. What it needs takes long to import."""

from pathlib import Path

from jqd.cli.common import worded
from jqd.config import Config, load, store_flags


def daemon_settings(file: Path | None, stores: list[str] | None, data_dir: Path | None) -> Config:
    """Nothing is served here, so no client need be kept out. Raises Usage."""
    with worded():
        return load(file=file, flags={**store_flags(stores), "data_dir": data_dir})
