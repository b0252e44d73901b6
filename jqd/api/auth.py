"""Authentication: finds out who sends a request, and checks that this principal's role may make the call. Each route
names the roles that may call it; health checks name none."""

import re
from collections.abc import Mapping
from hmac import compare_digest
from typing import NamedTuple

from jqd.api.problems import Problem
from jqd.api.route import Route
from jqd.domain.tenant import IN_WORDS, is_tenant
from jqd.domain.tokens import Role, Tokens, same_secret
from jqd.service.principal import EVERYBODY, Principal

TENANT = "jqd-tenant"  # header: names the tenant for which a principal acts that sees all tenants
ALL = "*"  # value of this header that stands for all tenants
AUTHORIZATION = "authorization"
ROOT = "root"  # the token id of a caller with the daemon's root token

OWN_LOOKS = "a tenant finds its own in GET /v1/types, /v1/workers, /v1/jobs and /v1/errors"
LEAVE_OUT = "leave the header out (at the command line --tenant and JQD_TENANT)"


MASTER = Principal(sees_all=True, token="master_key")  # noqa: S106 - a token's id, no secret
CLIENT = Principal(role=Role.PUSH, token="client_key")  # noqa: S106
NOBODY = Principal("?", Role.VIEWER)  # "?" cannot be a tenant's name
_BEARER = re.compile(r"bearer +(\S.*)", re.IGNORECASE)


class ApiKeys:
    """The master key and the client key from the configuration. An empty key is not set."""

    def __init__(self, master: str = "", client: str = "") -> None:
        self._master, self._client = master.encode(), client.encode()
        self.everybody = EVERYBODY._replace(is_server=False) if master else EVERYBODY
        """The principal of requests without a token, where no token is needed."""

    def principal(self, given: str) -> Principal | None:
        """Return the principal that a key stands for; None for any other text. Takes the same time for any text, even
        if no key is set."""
        key = given.encode("utf-8", "surrogatepass")
        is_master, is_client = compare_digest(key, self._master), compare_digest(key, self._client)
        return (MASTER if is_master else CLIENT if is_client else None) if key else None

    def is_server(self, who: Principal, authorization: str) -> bool:
        """Return whether the caller may push and change `server_only` jobs. If a master key is set, the caller needs it
        as bearer token, or a token of the role master. Otherwise any operator may."""
        if not self._master:
            return who.may(Role.OPERATOR)
        if who.token and who.may(Role.MASTER):
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.principal(given.strip()) is MASTER


class Authenticator(NamedTuple):
    """Decides who may make which call."""

    tokens: Tokens
    required: bool = False
    """Whether calls need a token. If not, anybody may do everything, because only this machine can connect."""
    root: str = ""
    """The daemon's root token, which is in a file of its data directory. Whoever can read the file is a master."""
    keys: ApiKeys = ApiKeys()
    """The keys of the configuration, which count as tokens."""

    def principal(self, headers: Mapping[str, str], route: Route) -> Principal:
        """Return the principal of a request; check that it may call the route. Raises Problem 401, 403, 422."""
        header = headers.get(AUTHORIZATION)
        named = headers.get(TENANT)
        if header is None and named is None and not self.required:
            return self.keys.everybody
        needs = route.needs
        if not needs:
            return self._looking(header)
        # If no token is needed, a token that is not jqd's is ignored: it may be a key, or meant for a proxy.
        for_us = header is not None and " jqd_" in header
        who = self.by_token(_bearer(header)) if self.required or for_us else EVERYBODY
        if named is not None:
            who = speaking_for(who, named)
        if named == ALL and route.one_tenant:
            raise Problem(422, "JQD-Tenant: '*' is for lists and for acts on jobs; this call is of one tenant: name it")
        if who.tenant and route.all_tenants:
            raise Problem(403, f"{route.path} is of all tenants together, and for tokens of no tenant; {OWN_LOOKS}")
        if not who.may(*needs):
            raise Problem(403, f"this token is of the role {who.role}; the call is for {' or '.join(needs)}")
        return who if self.keys.is_server(who, header or "") else who._replace(is_server=False)

    def tenant(self, header: str) -> str:
        """Return the tenant of the token in an Authorization header; empty if the token is unknown, or belongs to no
        tenant."""
        try:
            return self.by_token(_bearer(header)).tenant
        except Problem:
            return ""

    def _looking(self, header: str | None) -> Principal:
        """Return the principal of a health check. If tokens are needed and the header has no valid one, it is a
        principal that sees no details."""
        if not self.required:
            return EVERYBODY
        try:
            return self.by_token(_bearer(header))
        except Problem:
            return NOBODY

    def by_token(self, text: str) -> Principal:
        """Return the principal of a token or key. Raises Problem 401, which does not say why the token is invalid."""
        if same_secret(text, self.root):
            return Principal(sees_all=True, token=ROOT)
        if (who := self.keys.principal(text)) is not None:
            return who
        found = self.tokens.of(text)
        if found is None:
            raise _unknown("this token is none that is known here: it is mistyped, revoked or over")
        token_id, token = found
        sees_all = not token.tenant and token.role in (Role.OPERATOR, Role.MASTER)
        return Principal(token.tenant, token.role, sees_all, token_id, token.scopes)


def speaking_for(who: Principal, tenant: str) -> Principal:
    """Return the principal acting for the tenant that the request names; ALL stands for all tenants. Raises Problem 403
    if the principal may not, 422 for an invalid name."""
    if tenant == (ALL if who.sees_all else who.tenant):
        return who
    if tenant not in ("", ALL) and not is_tenant(tenant):
        raise Problem(422, f"JQD-Tenant: the name of a tenant is {IN_WORDS}, not {tenant[:64]!r}")
    if not who.sees_all:
        raise Problem(
            403, f"JQD-Tenant: this token is of the tenant {who.tenant!r} and speaks for no other; {LEAVE_OUT}"
        )
    return who._replace(tenant=tenant, sees_all=False, speaks_for=True)


def _bearer(header: str | None) -> str:
    if header is None:
        raise _unknown("a token is needed here: send it as `Authorization: Bearer …`; `jqd tokens create` makes one")
    found = _BEARER.fullmatch(header.strip())
    if found is None:
        raise _unknown("Authorization is read as `Bearer …` with a token; this is another scheme, or none")
    return found[1]


def _unknown(detail: str) -> Problem:
    return Problem(401, detail, headers={"www-authenticate": 'Bearer realm="jqd"'})
