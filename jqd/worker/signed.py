"""Checks that a daemon of ours sent a request, by its Standard Webhooks signature. Pure."""

import hmac
from collections.abc import Mapping, Sequence

from jqd.domain.signature import code_of, key_of

FRESH_S = 300  # a request that somebody kept is refused; as the specification has it
NOT_SIGNED = (
    "no daemon signed this with a secret of this worker in the last five minutes (docs/use/WORKERS.md, Signatures)"
)
REMEMBERED_MAX = 50_000  # requests, some 10 MB: those of five minutes at 166 a second
SENT_BEFORE = (
    "this very request came before; a daemon signs each anew, so somebody who can read the network kept it and sends "
    "it again: only TLS keeps it from being read"
)
CANCEL = "-cancel"  # behind the id of a job: the id of the message that cancels it


def is_ours(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Whether one of the keys signed this body lately. `headers`: looked up in any case of letters."""
    try:
        message, sent_at = headers["webhook-id"], headers["webhook-timestamp"]
        # As it stands: it has one spelling, or what is remembered of a request would not tell it from the same again.
        signed = f"{message}.{sent_at}.".encode() + body
        sent_at_s = int(sent_at)
        given = [code.encode() for code in headers["webhook-signature"].split()]
    except (KeyError, ValueError):  # also of a letter that cannot be encoded
        return False
    if not (sent_at.isascii() and sent_at.isdigit()):
        return False
    wanted = [code_of(key, signed).encode() for key in keys]
    fits = [hmac.compare_digest(each, code) for each in wanted for code in given]
    # Between integers, for a float has no room for the hundreds of digits that anybody may send.
    return abs(int(now_s) - sent_at_s) < FRESH_S and any(fits)


class SignedRequests:
    """Takes the requests that our secrets signed, each once; without a secret all of them, again and again.

    What was taken is remembered while it is fresh. Of more than REMEMBERED_MAX the oldest are forgotten; a start
    forgets all.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        """Raises ValueError for what is no secret."""
        self.keys = [key_of(secret) for secret in secrets]
        self._taken: dict[tuple[str, str], float] = {}

    def why_not(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str | None:
        """Why a request must not be taken; None when it may. `now_s`: since 1970."""
        if not self.keys:
            return None
        if not is_ours(self.keys, headers, body, now_s):
            return NOT_SIGNED
        return SENT_BEFORE if _which(headers) in self._taken else None

    def take(self, headers: Mapping[str, str], now_s: float) -> None:
        """Remember a request that may be taken. `now_s`: by any clock that does not go back."""
        if self.keys:
            self._taken[_which(headers)] = now_s
            while len(self._taken) > REMEMBERED_MAX or next(iter(self._taken.values())) <= now_s - 2 * FRESH_S:
                del self._taken[next(iter(self._taken))]


def cancel_id(message_id: str) -> str | None:
    """The job that a message with this id cancels; None when it cancels none."""
    return message_id.removesuffix(CANCEL) if message_id.endswith(CANCEL) else None


def _which(headers: Mapping[str, str]) -> tuple[str, str]:
    """Both are signed: whoever keeps a request can change neither. A daemon says the same again at another time."""
    return headers["webhook-id"], headers["webhook-timestamp"]
