"""Tenants, and scopes of tokens. Within jqd, a name that a tenant gave has the tenant before it; this is a qualified
name:

    mail              a name of the tenant ""
    acme US mail      a name of acme; US is one character, which no name from outside may contain

So things of different tenants never have the same name (docs/adr/0054).
"""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

SEPARATOR = "\x1f"  # not printable, and all names must be printable
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
    return _NAME.fullmatch(text) is not None


def annotate(tenant: str, name: str) -> str:
    """Return the qualified name: the tenant, US, and the name; for the tenant "" just the name."""
    return f"{tenant}{SEPARATOR}{name}" if tenant else name


def tenant_of(name: str) -> str:
    """Return the tenant of a qualified name."""
    return name.partition(SEPARATOR)[0] if SEPARATOR in name else ""


def bare(name: str) -> str:
    """Return a qualified name without its tenant."""
    return name.partition(SEPARATOR)[2] if SEPARATOR in name else name


def of_tenant(name: str) -> str:
    """Return ` of tenant …` as a part of a message; empty for the tenant ""."""
    return f" of tenant {tenant!r}" if (tenant := tenant_of(name)) else ""


def any_of(tenant: str) -> str:
    """Return the name that stands for all jobtypes of a tenant; empty for the tenant ""."""
    return annotate(tenant, "")


def in_scope(scopes: Sequence[str], name: str) -> bool:
    """Return whether a jobtype is in one of a token's scopes. A scope is a jobtype, or a prefix with a * at the end. A
    handler in the scopes includes its versions, such as `name@3`."""
    handler, _, number = name.rpartition("@")
    own = (name, handler) if number.isdecimal() else (name,)
    return any(name.startswith(scope[:-1]) if scope.endswith("*") else scope in own for scope in scopes)
