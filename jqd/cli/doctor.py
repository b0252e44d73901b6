"""`jqd doctor`: examines whether a daemon could lose jobs with this store and this disk."""

import contextlib
import dataclasses
from collections.abc import Sequence

import msgspec

from jqd.cli.common import ConfigFile, DataDir, OutputFlag, StoreUrls, worded
from jqd.cli.config import daemon_settings
from jqd.cli.exits import Exit
from jqd.cli.printing import print_note
from jqd.cli.render import show
from jqd.cli.segments import living
from jqd.config import Config
from jqd.domain import log
from jqd.domain.clock import SystemClock
from jqd.domain.diagnostic import Diagnostic, Severity, refusals
from jqd.domain.errors import ConfigError, StoreAway
from jqd.http import Certificate, ListenerConfig
from jqd.journal.disk import examine_disk
from jqd.store import HIDDEN, StoreConfig, examine, server_binary, socket_of

NO_STORE = (
    f"no store is named, and the daemon's own does not run {HIDDEN}: only the disk was looked at. Whether "
    "store.partitions is the number it was begun with shows when it runs: `jqd serve` looks before it takes a job"
)


async def doctor(
    *,
    store: StoreUrls = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    output: OutputFlag = "table",
) -> int:
    """Say which settings of the store or the data directory could lose jobs, and how to correct them.

    Ends with 0 if a daemon could start here, as far as could be examined; with 1 if it would refuse to start; with 4
    if the store does not answer.
    """
    settings = daemon_settings(config, store, data_dir)
    log.configure(level="error")
    findings = examine_disk(settings.journal.directory) + _examine_certificate(settings)
    with worded():
        more, code, seen = await _examine_stores(settings)
    findings += more
    if findings or output != "table":
        show(findings, output)
    if refusals(findings):
        return Exit.FAILED
    if code is Exit.DONE:
        if (process := living(settings.journal.directory)) is not None:
            conclusion = f"a daemon runs here (process {process}), and nothing that was looked at is against it"
        elif seen:
            conclusion = "a daemon would start here"
        else:
            conclusion = "nothing that was looked at keeps a daemon from starting here"
        print_note(conclusion + (", with these warnings" if findings else ""))
    return code


def _examine_certificate(settings: Config) -> list[Diagnostic]:
    what, http = "the daemon's certificate", settings.http
    try:
        listener = ListenerConfig(certificate=http.certificate, clients=http.tls_clients)
        complaint = Certificate(listener, log.get_logger("doctor"), SystemClock()).complaint
    except ConfigError as error:
        mend = "name the files that belong together, and let the daemon's user read them"
        return [Diagnostic("certificate", Severity.REFUSE, what, str(error), mend)]
    mend = "have a certificate made that is valid today; the daemon starts with this one, and its clients refuse it"
    return [Diagnostic("certificate", Severity.WARN, what, complaint, mend)] if complaint else []


async def _examine_stores(settings: Config) -> tuple[list[Diagnostic], Exit, bool]:
    """Examine all servers of the store. Returns the findings (with the server's URL if there are several), the exit
    code, and whether all servers answered.

    A daemon's own store is examined only while it runs: the daemon sets it up itself.
    """
    store = settings.store
    if store.is_own:
        try:
            server_binary()
        except ConfigError as error:
            print_note(f"no daemon would start here: {error}")
            return [], Exit.FAILED, False
        with contextlib.suppress(StoreAway):
            if (path := socket_of(settings.data_dir / "store")) is not None:
                return await _examine_server(dataclasses.replace(store, url=f"unix://{path}").parts()), Exit.DONE, True
        print_note(NO_STORE)
        return [], Exit.DONE, False
    findings: list[Diagnostic] = []
    code = Exit.DONE
    for url in store.urls or (store.url,):
        where = f"{_bare(url)}: " if len(store.urls) > 1 else ""
        try:
            found = await _examine_server([part for part in store.parts() if part.url == url])
        except StoreAway as error:
            print_note(f"{where}{error.in_full}")
            code = Exit.UNREACHABLE
        else:
            findings += (msgspec.structs.replace(finding, what=f"{where}{finding.what}") for finding in found)
    return findings, code, code is Exit.DONE


async def _examine_server(parts: Sequence[StoreConfig]) -> list[Diagnostic]:
    """Return the findings about one server, for all partitions on it, each finding once. Raises StoreAway,
    ConfigError."""
    found: list[Diagnostic] = []
    for part in parts:
        for finding in await examine(part):
            # Show each warning once: it is about the whole server, and its numbers may differ between partitions.
            warned = finding.severity is Severity.WARN and finding.code in {one.code for one in found}
            if not warned and finding not in found:
                found.append(finding)
    return found


def _bare(url: str) -> str:
    kind, _, rest = url.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{kind}://{host.rpartition('@')[2]}{slash}{path}"
