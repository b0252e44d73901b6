"""`jqd doctor`: would this store, and this disk, lose jobs?"""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from jqd import log
from jqd.cli.exits import Exit, Usage
from jqd.cli.render import Output, show
from jqd.config import Config, load, store_flags
from jqd.errors import ConfigError, StoreAway
from jqd.finding import Finding, refusals
from jqd.journal.disk import examine_disk
from jqd.store import examine


async def doctor(
    *,
    store: Annotated[list[str] | None, Parameter(negative="")] = None,
    data_dir: Path | None = None,
    config: Path | None = None,
    output: Annotated[Output, Parameter(alias="-o")] = "table",
) -> int:
    """Say what of the store's settings or of the data directory would lose jobs, and how to mend it.

    Ends with 0 when a daemon would start here, 1 when it would refuse to, 4 when the store does not answer.

    Parameters
    ----------
    store
        redis://, rediss:// or unix:// URL; may be given several times. Else the store that `jqd serve` would use.
    data_dir
        Data directory of the daemon. Default ./.jqd, or what the configuration says.
    config
        TOML file with settings; else JQD_CONFIG.
    output
        table, json or jsonl.
    """
    settings = _settings(store, data_dir, config)
    findings, code = examine_disk(settings.journal.directory), Exit.DONE
    try:
        findings += await _examine_store(settings)
    except ConfigError as error:
        raise Usage(str(error)) from error
    except StoreAway as error:
        print(f"jqd: {error}", file=sys.stderr)
        code = Exit.UNREACHABLE
    if findings or output != "table":
        show(findings, output)
    if refusals(findings):
        return Exit.FAILED
    if code is Exit.DONE:
        print("jqd: a daemon would start here" + (", with these warnings" if findings else ""), file=sys.stderr)
    return code


def _settings(store: list[str] | None, data_dir: Path | None, config: Path | None) -> Config:
    try:
        # Nothing is served here, so nobody need be kept out.
        settings = load(file=config, flags={**store_flags(store), "data_dir": data_dir, "insecure": True})
        log.configure(level="error")
    except ConfigError as error:
        raise Usage(str(error)) from error
    return settings


async def _examine_store(settings: Config) -> list[Finding]:
    """Raises StoreAway. A daemon's own store is looked at while it runs; it is set up well by the daemon itself."""
    if settings.store.url:
        return await examine(settings.store)
    own = settings.data_dir / "store" / "valkey.sock"
    try:
        return await examine(dataclasses.replace(settings.store, url=f"unix://{own.absolute()}"))
    except StoreAway:
        print("jqd: no store is named, and the daemon's own does not run: only the disk was looked at", file=sys.stderr)
        return []
