"""Audit notes, written before an act is done: what cannot be noted is not done. Acts without a token are not noted."""

import json
from typing import Any

import msgspec

from jqd.domain.tokens import Role
from jqd.service.services import Services
from jqd.service.settings import save


async def record(services: Services, act: str, what: str) -> None:
    """Write an audit note of an act on jobs; it is on disk when this returns. Raises NotYet, Invalid, JournalRefused.

    What pushers and workers do with single jobs of their own is their daily work, and stands in the job log.
    """
    if services.principal.token and services.principal.may(Role.OPERATOR) and not services.principal.scopes:
        await save(services, dict, act=act, what=services.qualified_name(what))


def describe(wanted: Any) -> str:
    """Return the fields of a filter that are set, as JSON."""
    fields = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value}
    return json.dumps(fields, ensure_ascii=False, default=str)
