"""The store's methods on kept results. A large result lies apart from its job, in pieces; each call has one piece."""

from collections.abc import Sequence

from msgspec.structs import replace

from jqd.domain.errors import StoreFull
from jqd.domain.job import Fate, Outcome
from jqd.domain.results import PIECE_BYTES, LargeResult, without_result
from jqd.store import codec
from jqd.store.methods import ScriptMethods, milliseconds

ORPHAN_S = 3_600.0  # pieces that no outcome names are then deleted; the next call names them, unless the daemon stopped


class ResultMethods(ScriptMethods):
    async def put_results(self, journal_id: str, start: int, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Store large results in pieces; return the outcomes with the names of these pieces in place of the results.

        The outcomes are then ready for `apply_outcomes`. A full store takes no large result: the outcome is marked
        (`without_result`). May be repeated, as pieces are named by their record; `start`: as in `apply_outcomes`.
        `purge` drops pieces that no outcome names."""
        given = outcomes
        for at, one in enumerate(outcomes):
            if len(one.result) > PIECE_BYTES and one.fate is Fate.SUCCEEDED and one.keep_result:
                given = [*given]
                given[at] = await self._put(f"{one.job_id}:{journal_id[:16]}.{start}.{at}", one)
        return given

    async def get_piece(self, large: LargeResult, at: int) -> bytes | None:
        """Return piece `at` of a large result, counted from 0; None if it was dropped meanwhile."""
        answer = await self._caller.call("get_piece", large.named, at)
        return answer if isinstance(answer, bytes) else None

    async def drop_result(self, job_id: str, read: bytes | LargeResult | None = None) -> None:
        """Drop a kept result. `read`: only if the job still has this result, as a new attempt may have left another."""
        row = codec.encode_large(read) if isinstance(read, LargeResult) else read or b""
        await self._caller.call("drop_result", job_id, row)

    async def _put(self, named: str, outcome: Outcome) -> Outcome:
        result = outcome.result
        pieces = range(0, len(result), PIECE_BYTES)
        try:
            for at, begin in enumerate(pieces):
                piece = result[begin : begin + PIECE_BYTES]
                await self._caller.call("put_piece", named, milliseconds(ORPHAN_S), at, piece)
        except StoreFull:
            await self._caller.call("drop_pieces", named)
            why = f"the store is full, and the result has {len(result)} bytes; raise its maxmemory, or store results"
            return without_result(outcome, f"{why} elsewhere and return where")
        return replace(outcome, result=codec.encode_large(LargeResult(named, len(result), len(pieces))))
