"""Tenants, and scopes of tokens. Within jqd a tenant's name is before each name that it gives (a qualified name).

    mail              of the tenant "", as ever
    acme US mail      of acme; US is one character, and no name that comes from outside may have it

So all that goes by a name keeps tenants apart (docs/adr/0054).
"""

import re
from collections.abc import Sequence
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
    return _NAME.fullmatch(text) is not None


def annotate(tenant: str, name: str) -> str:
    return f"{tenant}{SEPARATOR}{name}" if tenant else name


def tenant_of(name: str) -> str:
    return name.partition(SEPARATOR)[0] if SEPARATOR in name else ""


def bare(name: str) -> str:
    return name.partition(SEPARATOR)[2] if SEPARATOR in name else name


def of_tenant(name: str) -> str:
    """Return ` of tenant …` for messages; empty for the tenant ""."""
    return f" of tenant {tenant!r}" if (tenant := tenant_of(name)) else ""


def any_of(tenant: str) -> str:
    """Return what stands for all jobtypes of a tenant; empty for the tenant ""."""
    return annotate(tenant, "")


def in_scope(scopes: Sequence[str], name: str) -> bool:
    """Return whether a jobtype is one of these, each as it is or with a * at its end. Jobs for one version of a
    handler, `name@3`, are of that handler."""
    handler, _, number = name.rpartition("@")
    own = (name, handler) if number.isdecimal() else (name,)
    return any(name.startswith(one[:-1]) if one.endswith("*") else one in own for one in scopes)
