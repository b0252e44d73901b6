"""The cursor of a list of jobs: where the next page begins in each set (place) that the list reads.

A cursor is given to clients and may hold ids of other tenants' jobs. So it is sealed with a key that lies in the store.
Every daemon has this key. Clients do not, and can neither read a cursor nor make one.
"""

import base64
import hashlib
import hmac
import zlib
from typing import TypeVar

import msgspec

from jqd.domain.errors import StoreAway

CURSOR_BYTES_MAX = 1 << 20  # unpacked: some 3 KiB of one partition, 20 KiB of thirty
SEAL_BYTES = 12  # nobody guesses a seal, and no two cursors have the same

T = TypeVar("T")
Walked = dict[str, tuple[float, str]]
"""Name of a set of jobs (place), as `listing` makes it → score and id before which the next page begins."""

_decoder = msgspec.msgpack.Decoder(Walked)


def encode_cursor(walked: Walked, key: str) -> str:
    return sealed(msgspec.msgpack.encode(walked), key)


def decode_cursor(cursor: str, key: str) -> Walked:
    """Return where the next page begins in each set, from a cursor; empty for the cursor "". `key`: the store's key,
    which sealed the cursor. Raises ValueError for a cursor that this store did not give."""
    return unsealed(cursor, key, _decoder) if cursor else {}


def sealed(content: bytes, key: str) -> str:
    # A cursor stands in a URL and has a row for each place walked side by side: packing saves nine tenths.
    packed = zlib.compress(content)
    seal = _seal(packed, _expect(key))
    return base64.urlsafe_b64encode(seal + _masked(packed, seal, key)).decode()


def unsealed(cursor: str, key: str, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Decode the content of a cursor that `sealed` made. Raises ValueError if the cursor was not sealed with this key,
    StoreAway if the key is ""."""
    _expect(key)
    try:
        held = base64.b64decode(cursor, altchars=b"-_", validate=True)
        seal = held[:SEAL_BYTES]
        packed = _masked(held[SEAL_BYTES:], seal, key)
        if not hmac.compare_digest(seal, _seal(packed, key)):
            raise ValueError("its seal is not ours")
        return decoder.decode(zlib.decompressobj().decompress(packed, CURSOR_BYTES_MAX))
    except (msgspec.MsgspecError, ValueError, zlib.error) as error:
        raise ValueError(f"the cursor {cursor[:32]!r} is none that was given here") from error


def _expect(key: str) -> str:
    if not key:
        raise StoreAway("the store was not looked at yet, and its cursors are not known before")
    return key


def _seal(packed: bytes, key: str) -> bytes:
    return hashlib.blake2b(packed, digest_size=SEAL_BYTES, key=key.encode()[: hashlib.blake2b.MAX_KEY_SIZE]).digest()


def _masked(content: bytes, seal: bytes, key: str) -> bytes:
    """Mask content by its seal and the key; a second call with the same seal unmasks it."""
    mask = hashlib.shake_256(seal + key.encode()).digest(len(content))
    return (int.from_bytes(content, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(content), "big")
