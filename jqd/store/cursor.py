"""The cursor of a list: where each place that it walks goes on.

It holds ids of whatever was looked at, of others' jobs, too, and is given to clients. So it is sealed with the life of
the store, which all daemons know and no client: it can be neither read nor made by another.
"""

import base64
import hashlib
import hmac
import zlib

import msgspec

CURSOR_BYTES_MAX = 1 << 20  # unpacked: a place in each of some 15,000 jobtypes
SEAL_BYTES = 12  # two cursors are not alike by chance, nor is one guessed

Walked = dict[str, tuple[float, str]]
"""Place → score and id before which the next page begins."""

_decoder = msgspec.msgpack.Decoder(Walked)


def encode_cursor(walked: Walked, life: str) -> str:
    # It travels in a URL and has a row for each jobtype with jobs: packed, these are a tenth.
    packed = zlib.compress(msgspec.msgpack.encode(walked))
    seal = _seal(packed, life)
    return base64.urlsafe_b64encode(seal + _masked(packed, seal, life)).decode()


def decode_cursor(cursor: str, life: str) -> Walked:
    """Return what a cursor holds. Raises ValueError for one that was not given in this life of the store."""
    if not cursor:
        return {}
    try:
        sealed = base64.b64decode(cursor, altchars=b"-_", validate=True)
        seal = sealed[:SEAL_BYTES]
        packed = _masked(sealed[SEAL_BYTES:], seal, life)
        if not hmac.compare_digest(seal, _seal(packed, life)):
            raise ValueError("its seal is not ours")
        return _decoder.decode(zlib.decompressobj().decompress(packed, CURSOR_BYTES_MAX))
    except (msgspec.MsgspecError, ValueError, zlib.error) as error:
        raise ValueError(f"the cursor {cursor[:32]!r} is none that was given here") from error


def _seal(packed: bytes, life: str) -> bytes:
    return hashlib.blake2b(packed, digest_size=SEAL_BYTES, key=life.encode()[: hashlib.blake2b.MAX_KEY_SIZE]).digest()


def _masked(content: bytes, seal: bytes, life: str) -> bytes:
    """Return content under a mask that its seal and the life make; once more, and it is what it was."""
    mask = hashlib.shake_256(seal + life.encode()).digest(len(content))
    return (int.from_bytes(content, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(content), "big")
