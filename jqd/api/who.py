"""Who makes a request: the principal that the desk acts for."""

import re

from jqd.api.message import Request
from jqd.api.problems import Problem
from jqd.desk.principal import EVERYBODY, Principal
from jqd.words.tenant import PATTERN, TENANT_LENGTH_MAX

HEADER = "jqd-tenant"  # by which one who sees all speaks for one tenant
_TENANT = re.compile(PATTERN)


def principal_of(request: Request, who: Principal = EVERYBODY) -> Principal:
    """`who`, or who speaks for the tenant that the request names. Raises Problem 403, 422."""
    named = request.headers.get(HEADER)
    if named is None or (named == who.tenant and not who.sees_all):
        return who
    if named and not _TENANT.fullmatch(named):
        what = f"1 to {TENANT_LENGTH_MAX} small letters, digits, - and _, beginning with a letter or digit"
        raise Problem(422, f"JQD-Tenant: the name of a tenant is {what}, not {named[:64]!r}")
    if not who.sees_all:
        raise Problem(403, "JQD-Tenant: this token is for its own tenant alone; leave the header out")
    return who._replace(tenant=named, sees_all=False)
