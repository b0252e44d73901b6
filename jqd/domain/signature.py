"""Signs requests to workers by the Standard Webhooks specification, so that a worker knows who sent a request.

    webhook-id          id of the message; the same if it is sent again
    webhook-timestamp   Unix seconds
    webhook-signature   v1,BASE64 …   HMAC-SHA256 of "id.timestamp.body", one for each secret

A secret is `whsec_` and base64. While a secret is being replaced, both secrets are in use, so there are two signatures.
The worker accepts a request if one of them matches.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from functools import lru_cache

PREFIX = "whsec_"
SECRETS_MAX = 4  # two while one is replaced, and two more if an old one was forgotten
MAKE_SECRET = f"make one with: echo {PREFIX}$(openssl rand -base64 32)"
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64  # of the decoded secret, by the specification


def why_no_secrets(secrets: Sequence[str]) -> str | None:
    """Return what is wrong with a list of secrets, in words that do not show them; None if nothing is."""
    if len(secrets) > SECRETS_MAX:
        return f"at most {SECRETS_MAX} secrets can be given, these are {len(secrets)}"
    try:
        for secret in secrets:
            key_of(secret)
    except ValueError as error:
        return str(error)
    return None


def signature(secrets: Sequence[str], message_id: str, at_s: int, body: bytes) -> list[tuple[str, str]]:
    """Return the headers that sign a body; no headers if there is no secret. `message_id` must not contain a dot,
    because dots separate the signed parts."""
    if not secrets:
        return []
    assert "." not in message_id, f"{message_id!r} cannot be told from the timestamp behind it"
    signed = b"%b.%d.%b" % (message_id.encode(), at_s, body)
    codes = [code_of(key_of(secret), signed) for secret in secrets]
    return [
        ("webhook-id", message_id),
        ("webhook-timestamp", str(at_s)),
        ("webhook-signature", " ".join(codes)),
    ]


def code_of(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


@lru_cache(maxsize=256)  # most stores have fewer workers with secrets
def key_of(secret: str) -> bytes:
    """Decode the key in a secret. Raises ValueError, whose text does not show the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        size = f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        raise ValueError(f"a secret is {PREFIX} and {size} bytes in base64; {MAKE_SECRET}")
    return key
