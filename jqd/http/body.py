"""Reads chunked bodies strictly, to find their end. Pure.

llhttp reads on over the end of a request, so it cannot say where the next begins.
"""

import re

from jqd.http.request import Refused

CHUNK_LINE_MAX = 1_024  # bytes of a chunk's size and what may stand behind it
CHUNKS_FREE = 8_192  # of a body, however small they are: some 20 ms
CHUNK_BYTES_MIN = 16  # on average, of more: a line of a short job; a chunk takes some 2 µs, whatever is in it
TRAILER_BYTES_MAX = 4_096  # of headers behind the last chunk; they are read over
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t -~\x80-\xff]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")


class Chunked:
    """A body in chunks."""

    __slots__ = ("_chunks", "_content", "_left", "_trailer", "_within", "done")

    def __init__(self) -> None:
        self.done = False
        self._chunks = self._content = 0
        """Number of chunks, and the bytes of all."""
        self._left = 0
        self._within = False  # of a chunk, up to the line end behind it
        self._trailer = -1  # bytes of it; below 0 while chunks come

    def take(self, buffer: bytearray) -> bytes:
        """Remove from `buffer` what belongs to the body, and return its content. Raises Refused."""
        pieces: list[bytes] = []
        while not self.done and self._step(buffer, pieces):
            continue
        return b"".join(pieces)

    def _step(self, buffer: bytearray, pieces: list[bytes]) -> bool:
        """Take the next part of the body. Returns False when more must come first."""
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
