"""The client's calls about tokens, quotas and the audit."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from jqd.client.answer import odd
from jqd.client.errors import JqdClientError
from jqd.client.http import Http, all_rows, encode, query
from jqd.client.job_info import date_given
from jqd.client.path import path_of
from jqd.domain.units import Duration, duration_s

PAGE = 1_000  # audit notes in one answer
Role = Literal["push", "worker", "viewer", "operator", "master"]


class Tokens:
    """`Client`'s methods about tokens, quotas and the audit. A token is returned as a dict: `token_id`, `role`,
    `tenant`, …"""

    _http: Http

    def create_token(
        self,
        role: Role,
        *,
        tenant: str | None = None,
        scopes: Sequence[str] | None = None,
        note: str = "",
        expires_in: Duration | None = None,
    ) -> dict[str, Any]:
        """Make a token with a role, which decides what it may do. Its secret, `token`, is only in this answer.

        `scopes`: jobtypes for which it is valid, perhaps with a * at the end; None: all. `tenant`: None: that of the
        caller; "": none. `note`: what it is for, in your words. `expires_in`: for how long it is valid; None: without
        end. Raises Invalid, Forbidden.
        """
        fields: dict[str, Any] = {"role": role, "note": note}
        if scopes is not None:
            fields["scopes"] = list(scopes)
        if tenant is not None:
            fields["tenant"] = tenant
        if expires_in is not None:
            fields["expires_in"] = duration_s(expires_in)
        return self._http.call_for_map(
            "a call about tokens", "POST", "/v1/tokens", body=encode(fields), repeatable=False
        )

    def me(self) -> dict[str, Any]:
        """Return the rights of the client's own token: `role`, `tenant`, `scopes`, `token_id`, `note`, `expires_at`,
        `derived_from`, `all_tenants`. `tokens_required` is False if the daemon requires no tokens."""
        return self._http.call_for_map("who asks", "GET", "/v1/me")

    def derive_token(
        self,
        *,
        ttl: Duration | None = None,
        note: str = "",
        role: Role | None = None,
        scopes: Sequence[str] | None = None,
        replace_oldest: bool = False,
    ) -> dict[str, Any]:
        """Derive a token from the client's own, with the same rights or fewer. Its secret, `token`, is only in this
        answer.

        `role`, `scopes`: None: those of the client's token. The new token ends after `ttl` (default: 12 hours), or when
        the client's token ends or is revoked. `replace_oldest`: if no more tokens may be valid, the oldest one with the
        same note is revoked. The call may then be repeated at another daemon, and leave a token that nobody has. Raises
        Invalid, Forbidden.
        """
        fields: dict[str, Any] = {"note": note, **({"replace_oldest": True} if replace_oldest else {})}
        if ttl is not None:
            fields["ttl"] = duration_s(ttl)
        if role is not None:
            fields["role"] = role
        if scopes is not None:
            fields["scopes"] = list(scopes)
        return self._http.call_for_map(
            "a call about tokens", "POST", "/v1/tokens/derive", body=encode(fields), repeatable=replace_oldest
        )

    def tokens(self) -> list[dict[str, Any]]:
        """Return the valid tokens, oldest first, without their secrets."""
        return all_rows(self._http, "tokens")

    def audit(
        self, *, token: str = "", act: str = "", since: datetime | float | timedelta | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return the audit notes (records of changes), newest first: `at`, `token`, `role`, `act`, `what`, `tenant`.

        `token`: only notes of changes with this token id. `act`: only notes whose `act` contains this text. `since`:
        only notes since a date, or not older than a timedelta. `limit`: the most notes to return.
        """
        found: list[dict[str, Any]] = []
        cursor = ""
        while len(found) < limit:
            asked = query(
                token=token or None,
                act=act or None,
                since=date_given("since", since),
                limit=min(limit - len(found), PAGE),
                cursor=cursor or None,
            )
            answer = self._http.call("GET", "/v1/audit", params=asked)
            fields = answer.body if isinstance(answer.body, dict) else {}
            if not isinstance(fields.get("notes"), list):
                raise odd("a question who changed what", answer)
            found += fields["notes"]
            cursor = fields.get("cursor") or ""
            if not cursor:
                break
        return found

    def set_quota(
        self,
        tenant: str,
        *,
        rate: float | None = None,
        bytes_per_s: float | None = None,
        queued: int | None = None,
        in_flight: int | None = None,
        dead: int | None = None,
    ) -> dict[str, Any]:
        """Set how much a tenant may push; None: no limit. Pushes beyond it raise `Unavailable` with status 429.

        `rate`: jobs per second. `queued`: waiting jobs. `in_flight`: jobs that have not ended. `dead`: failed jobs that
        are kept. Raises Invalid.
        """
        limits = {"rate": rate, "bytes": bytes_per_s, "queued": queued, "in_flight": in_flight, "dead": dead}
        fields = {name: limit for name, limit in limits.items() if limit is not None}
        return self._http.call_for_map("a call about tokens", "PUT", path_of("quotas", tenant), body=encode(fields))

    def quotas(self) -> list[dict[str, Any]]:
        """Return all quotas, by tenant."""
        return all_rows(self._http, "quotas")

    def tenants(self) -> list[dict[str, Any]]:
        """Return a row for each tenant: jobs by state, rates, quota, what waits for the quota, whether it is paused.

        `tenant` is "" in the row of jobs without a tenant. With a tenant's own token there is only its own row.
        """
        return all_rows(self._http, "tenants")

    def delete_quota(self, tenant: str) -> None:
        """Delete a tenant's quota. Raises NotFound."""
        self._http.call("DELETE", path_of("quotas", tenant), repeatable=False)

    def revoke_token(self, token_id: str) -> list[str]:
        """Revoke a token at each living daemon, because the store, from which they would learn it, may be unavailable.

        Returns the URLs of daemons that could not be reached: they learn it from the store. Raises NotFound.
        """
        path = path_of("tokens", token_id)
        answer = self._http.call_for_map("a call about tokens", "DELETE", path)
        not_reached = []
        for url in map(str, answer.get("urls") or ()):
            if self._http.url.startswith("https:") and not url.startswith("https:"):
                not_reached.append(url)  # a token given for a TLS daemon is never sent without TLS
                continue
            other = self._http.beside(url)
            try:
                other.call("DELETE", path)
            except JqdClientError:
                not_reached.append(url)
            finally:
                other.close()
        return not_reached
