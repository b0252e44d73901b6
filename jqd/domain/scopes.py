"""Scopes of tokens: the jobtypes that a token is for, each as it is or with a * at its end. Pure."""

from collections.abc import Sequence


def in_scope(scopes: Sequence[str], name: str) -> bool:
    """Return whether a jobtype is one of these. Jobs for one version of a handler, `name@3`, are of that handler."""
    handler, _, number = name.rpartition("@")
    own = (name, handler) if number.isdecimal() else (name,)
    return any(name.startswith(one[:-1]) if one.endswith("*") else one in own for one in scopes)
