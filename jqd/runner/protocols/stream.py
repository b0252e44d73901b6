"""Splits a worker's answer into values while it arrives. Pure.

MessagePack: values one after another, arrays of values, or both. JSON: an array, one object, or objects one after
another with any white space between, as in NDJSON. A value is handed on as soon as its last byte has come, so a slow
job never delays the outcomes of other jobs. At most one unfinished value is kept."""

import re
from collections.abc import Iterator, Sequence
from itertools import repeat

import msgpack

from jqd.domain import decode_errors
from jqd.domain.errors import AnswerGarbled
from jqd.domain.json_ext import READ_BYTES
from jqd.runner.protocols.outcome import Encoding, decode_answer, encoding_of
from jqd.runner.protocols.protocol import MEND, READ_AT_ONCE_BYTES, Answer, ItemFailures

QUOTE_BYTES = 20  # of an unreadable answer that are quoted in the job's message
NESTING_MAX = 500  # levels of arrays and maps in one JSON value; MessagePack has its own limit of the same order


def quote(data: bytes) -> str:
    return repr(data.decode("utf-8", "replace"))


class AnswerReader:
    """Reads the answer to one request. An answer without a body means that every job succeeded."""

    is_decided = False

    def __init__(self, content_type: str, *, value_bytes_max: int, values_max: int, status: int = 200) -> None:
        """`value_bytes_max`: limit for one outcome. `values_max`: limit for the number of outcomes and of arrays around
        them. `status`: the status of all jobs if the answer has no body."""
        self._content_type = content_type
        self._limit, self._status = value_bytes_max, status
        self._counted = _Counted(values_max)
        self._encoding: Encoding = "msgpack"
        self._cutter: _MessagePackCutter | _JsonCutter | None = None

    @property
    def held(self) -> int:
        return 0 if self._cutter is None else self._cutter.held

    def is_costly(self, data: bytes) -> bool:
        """Return whether `data` means much JSON to decode; see Reader. MessagePack is cheap, as only the fields of an
        outcome are decoded."""
        return isinstance(self._cutter, _JsonCutter) and self._cutter.held + len(data) > READ_AT_ONCE_BYTES

    def feed(self, data: bytes) -> Iterator[Answer]:
        if self._cutter is None:
            self._encoding = encoding_of(self._content_type)
            kind = _MessagePackCutter if self._encoding == "msgpack" else _JsonCutter
            self._cutter = kind(self._limit, self._counted)
        return map(decode_answer, self._cutter.cut(data), repeat(self._encoding))

    def end(self) -> Sequence[Answer]:
        if self._cutter is None:
            return [ItemFailures(status=self._status)]
        self._cutter.end()
        return []


class _Counted:
    """Limits the number of values in an answer, or 64 MiB might be 64 million values of one byte."""

    def __init__(self, values_max: int) -> None:
        self._max = self._left = values_max

    def take(self, values: int = 1, *, announced: int = 0) -> None:
        """Count `values` that came. Raises AnswerGarbled if they, or `announced` further values, are too many."""
        self._left -= values
        if self._left < announced:
            raise AnswerGarbled(f"the answer has more than {self._max} values, which is many times what was asked for")


_ARRAYS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))  # MessagePack: first bytes of arrays


class _MessagePackCutter:
    def __init__(self, value_bytes_max: int, counted: _Counted) -> None:
        self._limit = value_bytes_max
        self._counted = counted
        # The Unpacker keeps its own copy and finds the ends; the values are cut from ours, undecoded.
        self._unpacker = msgpack.Unpacker(max_buffer_size=0, read_size=READ_BYTES)
        self._buffer = bytearray()
        self._base = 0  # position in the answer of the buffer's first byte
        self._in_header = False
        self._array_left = 0  # values of an outer array still to come

    @property
    def held(self) -> int:
        return len(self._buffer)

    def cut(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        self._unpacker.feed(data)
        buffer, unpacker, start = self._buffer, self._unpacker, 0
        try:
            while start < len(buffer):
                if self._in_header or (not self._array_left and buffer[start] in _ARRAYS):
                    self._in_header = True
                    self._array_left = unpacker.read_array_header()
                    self._in_header = False
                    self._counted.take(announced=self._array_left)
                    start = unpacker.tell() - self._base
                    continue
                unpacker.skip()
                end = unpacker.tell() - self._base
                value = bytes(buffer[start:end])
                start = end
                self._counted.take()
                if self._array_left:
                    self._array_left -= 1
                if len(value) > self._limit:
                    raise AnswerGarbled(f"one outcome has {len(value)} bytes, {self._limit} are read")
                yield value
        except msgpack.OutOfData:
            if len(buffer) - start > self._limit:
                raise AnswerGarbled(f"one outcome has more than the {self._limit} bytes that are read") from None
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            why = decode_errors.DEEP if isinstance(error, msgpack.StackError) else decode_errors.why(error)
            begin = bytes(buffer[start : start + QUOTE_BYTES])
            raise AnswerGarbled(f"the worker's answer is no MessagePack at {quote(begin)}: {why}; {MEND}") from error
        finally:
            del buffer[:start]
            self._base += start

    def end(self) -> None:
        if self._buffer or self._array_left:
            raise AnswerGarbled(
                f"the worker's answer stops inside a value, of which {len(self._buffer)} bytes came; {MEND}"
                if self._buffer
                else f"the worker's answer ends, and its array announced {self._array_left} more outcomes; {MEND}"
            )


# Brackets change the depth and quotes hide brackets; the regex engine passes over everything else.
_STRUCTURE = re.compile(rb'[\[\]{}"]')
_IN_STRING = re.compile(rb'["\\]')
_NO_SPACE = re.compile(rb"[^ \t\r\n\x1e]")  # 0x1e begins the texts of application/json-seq


class _JsonCutter:
    """Finds where JSON objects begin and end. Whether they are valid is left to the decoder."""

    def __init__(self, value_bytes_max: int, counted: _Counted) -> None:
        self._limit = value_bytes_max
        self._counted = counted
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer looked at already
        self._depth = 0
        self._in_string = False
        self._in_array = False  # inside the outer array
        self._need_comma = False

    @property
    def held(self) -> int:
        return len(self._buffer)

    def cut(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while True:
            if not self._depth and not self._skip_between():
                return
            end = self._value_end()
            if (len(self._buffer) if end is None else end) > self._limit:
                raise AnswerGarbled(f"one outcome has more than the {self._limit} bytes that are read")
            if end is None:
                return
            value = bytes(memoryview(self._buffer)[:end])
            del self._buffer[:end]
            self._seen = 0
            self._need_comma = self._in_array
            self._counted.take()
            yield value

    def end(self) -> None:
        if self._depth or self._in_array:
            raise AnswerGarbled(f"the worker's answer stops before its JSON is complete; {MEND}")

    def _skip_between(self) -> bool:
        """Drop the separators before the next object from the buffer. Returns False if no object has begun."""
        buffer = self._buffer
        at = 0
        try:
            while found := _NO_SPACE.search(buffer, at):
                at, byte = found.start(), found.group()
                if byte == b"{" and not self._need_comma:
                    self._depth, self._seen = 1, 1
                    return True
                if byte == b"[" and not self._in_array:
                    self._counted.take()
                    self._in_array = True
                elif byte == b"]" and self._in_array:
                    self._in_array = self._need_comma = False
                elif byte == b"," and self._need_comma:
                    self._need_comma = False
                else:
                    begin = quote(bytes(buffer[at : at + QUOTE_BYTES]))
                    raise AnswerGarbled(
                        f"the worker's answer has {begin} where an outcome, a map, should stand; {MEND}"
                    )
                at += 1
            at = len(buffer)
            return False
        finally:
            del buffer[:at]

    def _value_end(self) -> int | None:
        """Return the length of the object at the beginning of the buffer; None: it is incomplete."""
        buffer, at = self._buffer, self._seen
        while True:
            found = (_IN_STRING if self._in_string else _STRUCTURE).search(buffer, at)
            if found is None:
                self._seen = len(buffer)
                return None
            at = found.end()
            match found.group():
                case b'"':
                    self._in_string = not self._in_string
                case b"\\":
                    if at == len(buffer):
                        self._seen = at - 1  # look again when the escaped byte is here
                        return None
                    at += 1
                case b"{" | b"[":
                    self._depth += 1
                    if self._depth > NESTING_MAX:
                        raise AnswerGarbled(
                            f"an outcome of the worker is nested deeper than {NESTING_MAX} levels; {MEND}"
                        )
                case _:
                    self._depth -= 1
                    if not self._depth:
                        return at
