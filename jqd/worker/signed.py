"""Checks the Standard Webhooks signature of requests, which proves that a daemon that has one of the worker's secrets
sent them."""

import hmac
from collections.abc import Mapping, Sequence

from jqd.domain.signature import code_of, key_of

FRESH_S = 300  # an older request is refused, as it may be a replay; value of the specification
NOT_SIGNED = (
    "no daemon signed this with a secret of this worker in the last five minutes (docs/use/WORKERS.md, Signatures)"
)
REMEMBERED_MAX = 50_000  # requests, some 10 MB: five minutes at 166 a second
SENT_BEFORE = (
    "this very request came before; a daemon signs each anew, so somebody who can read the network kept it and sends "
    "it again: only TLS keeps it from being read"
)
CANCEL = "-cancel"  # a message whose id is a job's id with this suffix cancels the job


def is_ours(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether one of the keys signed this body within the last FRESH_S. `headers`: names in lower case."""
    try:
        message, sent_at = headers["webhook-id"], headers["webhook-timestamp"]
        # With the timestamp's own spelling: another spelling would pass as another request.
        signed = f"{message}.{sent_at}.".encode() + body
        sent_at_s = int(sent_at)
        given = [code.encode() for code in headers["webhook-signature"].split()]
    except (KeyError, ValueError):  # ValueError also for characters that cannot be encoded
        return False
    if not (sent_at.isascii() and sent_at.isdigit()):
        return False
    wanted = [code_of(key, signed).encode() for key in keys]
    fits = [hmac.compare_digest(each, code) for each in wanted for code in given]
    # In integers: a float overflows for the hundreds of digits that anybody may send.
    return abs(int(now_s) - sent_at_s) < FRESH_S and any(fits)


class SignedRequests:
    """Accepts requests that are signed with one of the secrets, and each of them only once. Without secrets, accepts
    all requests.

    It remembers accepted requests in memory for as long as their signature is valid, at most REMEMBERED_MAX of them.
    Raises ValueError for a malformed secret.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self.keys = [key_of(secret) for secret in secrets]
        self._taken: dict[tuple[str, str], float] = {}

    def why_not(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str | None:
        """Return why the worker must refuse a request; None: it is valid. `now_s`: Unix time."""
        if not self.keys:
            return None
        if not is_ours(self.keys, headers, body, now_s):
            return NOT_SIGNED
        return SENT_BEFORE if _which(headers) in self._taken else None

    def take(self, headers: Mapping[str, str], now_s: float) -> None:
        """Remember an accepted request, so that it is refused if it comes again. `now_s`: by a monotonic clock."""
        if self.keys:
            self._taken[_which(headers)] = now_s
            while len(self._taken) > REMEMBERED_MAX or next(iter(self._taken.values())) <= now_s - 2 * FRESH_S:
                del self._taken[next(iter(self._taken))]


def cancel_id(message_id: str) -> str | None:
    """Return the id of the job that a request cancels, from its `webhook-id`; None: it cancels no job."""
    return message_id.removesuffix(CANCEL) if message_id.endswith(CANCEL) else None


def _which(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return what identifies a request: its id and time, both signed. If a daemon repeats a request, its time
    differs."""
    return headers["webhook-id"], headers["webhook-timestamp"]
