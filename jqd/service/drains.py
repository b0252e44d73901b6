"""Draining daemons, said at any daemon: what such a one has in hand goes on, and it begins nothing more."""

from collections.abc import Mapping

from jqd.domain.errors import NotFound
from jqd.domain.pauses import DRAIN, body_of
from jqd.domain.settings import NIL
from jqd.service.services import Services
from jqd.service.settings import save, wait_loaded

THIS = "this"
"""Stands for the daemon that is asked."""


async def drain(services: Services, name: str) -> tuple[str, int]:
    """Have that daemon begin nothing, through restarts, until it is resumed: its name, and since when in ms.

    Raises NotFound, NotYet.
    """
    await wait_loaded(services)
    daemon, since_ms = _named(services, name), list[int]()

    def make() -> Mapping[tuple[str, str], bytes]:
        # Said once more where it is so already: it may be resumed elsewhere, and this comes after that.
        known = daemon in services.drains.names
        by = services.drains.by.get(daemon, "") if known else services.principal.token
        since_ms.append(services.drains.since_ms.get(daemon, services.clock.wall_ms()))
        return {(DRAIN, daemon): body_of(since_ms[0], by)}

    await save(services, make)
    return daemon, since_ms[0]  # by now somebody else may have resumed it


async def resume(services: Services, name: str) -> tuple[str, bool]:
    """Have that daemon begin jobs again: its name, and whether it was drained. Raises NotFound, NotYet."""
    await wait_loaded(services)
    daemon = name if name in services.drains.names else _named(services, name)
    was_drained = daemon in services.drains.names
    await save(services, lambda: {(DRAIN, daemon): NIL})
    return daemon, was_drained


def _named(services: Services, name: str) -> str:
    for peer in services.control.daemons():
        if peer.sysid == name or (peer.is_this and name == THIS):
            return peer.sysid
    raise NotFound(f"there is no daemon {name[:64]!r} here; `jqd daemons` lists those of this store")
