"""Parses chunked request bodies strictly, to find where they end.

llhttp is not used for this: it reads past the end of a request, so it cannot tell where the next request begins.
"""

import re

from jqd.http.request import Refused

CHUNK_LINE_MAX = 1_024  # bytes of the line with a chunk's size
CHUNKS_FREE = 8_192  # chunks of a body that may be of any size: some 20 ms
CHUNK_BYTES_MIN = 16  # the least average size of further chunks: each takes some 2 µs, whatever its size
TRAILER_BYTES_MAX = 4_096  # of headers after the last chunk, which are ignored
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t -~\x80-\xff]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")


class Chunked:
    """Parses the chunked body of one request."""

    __slots__ = ("_chunks", "_content", "_left", "_trailer", "_within", "done")

    def __init__(self) -> None:
        self.done = False
        self._chunks = self._content = 0
        """The number of chunks so far, and the number of bytes in them."""
        self._left = 0  # bytes of the present chunk that are still to come
        self._within = False  # in a chunk, up to the line end behind it
        self._trailer = -1  # bytes of the trailer so far; below 0 before it begins

    def take(self, buffer: bytearray) -> bytes:
        """Remove the bytes of the chunked body from the beginning of `buffer`, and return the content decoded from
        them. Sets `done` when the body ends. Raises Refused if they are malformed."""
        pieces: list[bytes] = []
        while not self.done and self._step(buffer, pieces):
            continue
        return b"".join(pieces)

    def _step(self, buffer: bytearray, pieces: list[bytes]) -> bool:
        """Parse the next line or chunk at the beginning of `buffer`. Returns False if more data is needed first."""
        if self._left:
            piece = bytes(buffer[: self._left])
            del buffer[: len(piece)]
            self._left -= len(piece)
            pieces.append(piece)
            return bool(piece)
        if self._within:
            if len(buffer) < 2 and b"\r\n".startswith(buffer):
                return False
            if buffer[:2] != b"\r\n":
                raise Refused(400, "a chunk is longer than its size says")
            del buffer[:2]
            self._within = False
            return True
        return self._line(buffer)

    def _line(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\n", 0, CHUNK_LINE_MAX) + 1
        if not end:
            if len(buffer) >= CHUNK_LINE_MAX:
                raise Refused(400, f"a line between chunks is longer than {CHUNK_LINE_MAX} bytes")
            return False
        line = bytes(buffer[:end])
        del buffer[:end]
        if self._trailer >= 0:
            self._trailer += end
            if line == b"\r\n":
                self.done = True
            elif self._trailer > TRAILER_BYTES_MAX or _TRAILER.fullmatch(line) is None:
                raise Refused(400, "what follows the last chunk is no header, or too much")
            return True
        size = _SIZE.fullmatch(line)
        if size is None:
            raise Refused(400, "a chunk does not begin with its size in hexadecimal")
        self._left = int(size[1], 16)
        self._within = self._left > 0
        self._chunks += 1
        self._content += self._left
        if self._chunks > CHUNKS_FREE + self._content // CHUNK_BYTES_MIN:
            raise Refused(
                400, f"the body has {self._chunks} chunks of {CHUNK_BYTES_MIN} bytes or less; send larger ones"
            )
        if not self._left:
            self._trailer = 0
        return True
