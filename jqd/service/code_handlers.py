"""Handlers in code: who may set one, which options it may have, and why its jobs wait. No daemon runs code.

Whoever sets code runs it, as the user that the code worker is started as: so only the master of the tenant "" may,
where `runner.allow_code` is on; for other tenants only where code workers run it in a sandbox.
"""

import re

from jqd.domain.errors import Denied, Invalid
from jqd.domain.tenant import bare, tenant_of
from jqd.domain.tokens import Role
from jqd.runner.handler import Definition, HandlerOptions
from jqd.runner.registry import WorkerRegistry
from jqd.service.services import Services

LANGS = {"python": "python", "node": "node.js", "sh": "shell"}  # as people call them
OF_URLS = ("style", "format", "method", "headers", "secrets", "max_jobs", "priority_min", "priority_max")
"""Options that say how a URL is called, and for how many jobs at once."""
BROKEN = "handler"  # begins what a code worker says of a handler that it cannot run
SANDBOX = "bwrap"  # the one that keeps tenants' code apart from everything else

_USUAL = HandlerOptions()


def expect_may_set(services: Services) -> None:
    """Raise Denied where the principal may not set code."""
    who = services.principal
    if not services.allow_code:
        raise Denied(
            "handlers may not be code here: `runner.allow_code = true` (JQD_RUNNER__ALLOW_CODE=true) and a restart of"
            " this daemon allow that; whoever sets one runs code where code workers run"
        )
    if who.role is not Role.MASTER or not who.is_server or (who.tenant and not who.speaks_for):
        raise Denied(
            'handlers in code are set by the master of the tenant "" alone, with a token of the role master and no'
            " tenant, or the master key: whoever sets one runs code where code workers run"
        )
    if who.tenant and services.sandbox != SANDBOX:
        raise Denied(
            f"handlers of tenant {who.tenant!r} may not be code here: that is only where code workers run it apart from"
            f' everything else, by `runner.sandbox = "{SANDBOX}"`, which is {services.sandbox!r} at this daemon'
        )


def expect_fit(definition: Definition) -> None:
    """Raise Invalid for options that are of URLs."""
    for field in OF_URLS:
        if getattr(definition.options, field) != getattr(_USUAL, field):
            why = f"{field} says how a URL is called, and this handler is {LANGS[definition.lang]} code: leave it out"
            raise Invalid.at(f"/options/{field}", why)


def why_unserved(workers: WorkerRegistry, jobtype: str) -> str | None:
    """Return why jobs of a handler in code wait when no worker takes them; None for other jobtypes."""
    version = workers.code(jobtype)
    if version is None:
        return None
    broken = f"{BROKEN} {bare(jobtype).rpartition('@')[0] or bare(jobtype)}@{version.number} "
    troubles = [one.trouble for one in workers.list() if one.tenant == tenant_of(jobtype) and one.trouble]
    lines = (one for trouble in troubles for one in re.split(rf"; (?={BROKEN} )", trouble) if one.startswith(broken))
    waits = f"handler is {LANGS[version.lang]} code: waits for a code worker (`jqd worker --code`)"
    return next((f"a code worker says: {one}" for one in lines), waits)
