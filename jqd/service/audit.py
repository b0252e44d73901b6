"""Noting who does what, before it is done: nothing is done that is not noted. What was done without a token is not."""

import json
from typing import Any

import msgspec

from jqd.domain.audit import Note, notes
from jqd.domain.tokens import Role
from jqd.service.services import Services
from jqd.service.settings import save


async def noted(services: Services, act: str, what: str) -> None:
    """Note an act on jobs; it is on disk when this returns. Raises NotYet, Invalid, JournalRefused.

    What pushers and workers do with single jobs of their own is their daily work, and stands in the job log.
    """
    if services.principal.token and services.principal.may(Role.OPERATOR) and not services.principal.scopes:
        await save(services, dict, act=act, what=services.qualified_name(what))


def meant(wanted: Any) -> str:
    """A filter, as far as it says something."""
    fields = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value}
    return json.dumps(fields, ensure_ascii=False, default=str)


def found(
    services: Services, *, token: str = "", act: str = "", since_ms: int = 0, before: str = "", limit: int
) -> list[tuple[str, Note]]:
    """The newest notes that fit, of the service's principal. `before`: the name of one; later ones are left out."""
    fit = []
    for name, note in notes(services.workers.settings, before):
        if not services.principal.can_see(note.tenant) or note.at_ms < since_ms:
            continue
        if (token and note.token != token) or (act and act not in note.act):
            continue
        fit.append((name, note))
        if len(fit) == limit:
            break
    return fit
