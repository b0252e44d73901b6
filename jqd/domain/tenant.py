"""Tenants: whose a job, a name or a rule is. Within jqd a tenant's name stands before each name that it gives.

    mail              of the tenant "", as ever
    acme US mail      of acme; US is one character, and no name that comes from outside may have it

So what goes by a name keeps tenants apart without a thought of them (docs/adr/0054).
"""

import re
from typing import Annotated

from msgspec import Meta

SEPARATOR = "\x1f"  # it cannot be printed, and names of all kinds are printable
TENANT_LENGTH_MAX = 32  # characters: with a jobtype of 128 still a short key
NAME = f"[a-z0-9][a-z0-9_-]{{0,{TENANT_LENGTH_MAX - 1}}}"
IN_WORDS = f"1 to {TENANT_LENGTH_MAX} small letters, digits, - and _, beginning with a letter or digit"
Tenant = Annotated[
    str,
    Meta(
        pattern=rf"^{NAME}$(?!\n)",
        description=IN_WORDS,
    ),
]


_NAME = re.compile(NAME)


def is_tenant(text: str) -> bool:
    """Whether a tenant may be called so."""
    return _NAME.fullmatch(text) is not None


def annotate(tenant: str, name: str) -> str:
    """A name as jqd knows it."""
    return f"{tenant}{SEPARATOR}{name}" if tenant else name


def tenant_of(name: str) -> str:
    return name.partition(SEPARATOR)[0] if SEPARATOR in name else ""


def bare(name: str) -> str:
    """As its tenant wrote it."""
    return name.partition(SEPARATOR)[2] if SEPARATOR in name else name


def of_tenant(name: str) -> str:
    """Whose it is, to be said behind its bare name; empty for the tenant ""."""
    return f" of tenant {tenant!r}" if (tenant := tenant_of(name)) else ""


def any_of(tenant: str) -> str:
    """What stands for all jobtypes of a tenant, where a jobtype is named; empty for the tenant ""."""
    return annotate(tenant, "")
