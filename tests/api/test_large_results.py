"""A large result, as it is read: piece by piece in MessagePack, whole where it has to be rendered."""

import msgspec
import pytest

from jqd.domain.job import Fate, Held
from jqd.domain.results import PIECE_BYTES, LargeResult
from jqd.store import JobView
from tests.api.edge import JSON, MSGPACK
from tests.api.fakes import outcome
from tests.api.whole import OTHER_ID, Whole

VALUE = [{"n": number, "text": "x" * 1_000} for number in range(PIECE_BYTES // 400)]
PACKED = msgspec.msgpack.encode(VALUE)


async def ended() -> tuple[Whole, str]:
    """A job whose result has some pieces."""
    whole = await Whole().begin()
    job_id = await whole.push(keep_result=True)
    (held,) = await whole.claim(limit=1)
    await keep(whole, held)
    return whole, job_id


async def keep(whole: Whole, held: Held) -> None:
    """It succeeds with that result."""
    fields = {"jobtype": held.job.jobtype, "keep_result": True, "result": PACKED, "attempt": 1}
    told = msgspec.structs.replace(outcome(held.job.id, fence=held.fence, fate=Fate.SUCCEEDED), **fields)
    await whole.whole.apply_outcomes(OTHER_ID, 0, 1, await whole.whole.put_results(OTHER_ID, 0, [told]))


async def is_kept(whole: Whole, job_id: str) -> bool:
    """Whether the store has the result."""
    view = await whole.whole.get_job(job_id)
    assert isinstance(view, JobView)
    return view.result is not None


@pytest.mark.parametrize("language", [MSGPACK, JSON])
async def test_it_is_told_whole_in_both_languages(language: str) -> None:
    whole, job_id = await ended()
    told = await whole.call("GET", f"/v1/jobs/{job_id}/result", accept=language)
    assert (told.status, told.headers["content-type"]) == (200, language)
    assert int(told.headers["content-length"]) == len(told.raw)
    assert told.body == {"result": VALUE}
    assert whole.api._bodies.bytes == 0


async def test_a_job_tells_how_large_its_result_is() -> None:
    whole, job_id = await ended()
    told = (await whole.call("GET", f"/v1/jobs/{job_id}")).body
    assert told["result_bytes"] == len(PACKED)
    assert "result" not in told


@pytest.mark.parametrize("language", [MSGPACK, JSON])
async def test_what_is_consumed_is_told_once(language: str) -> None:
    whole, job_id = await ended()
    assert (await whole.call("GET", f"/v1/jobs/{job_id}/result?consume=1", accept=language)).body == {"result": VALUE}
    assert not await is_kept(whole, job_id)
    assert (await whole.call("GET", f"/v1/jobs/{job_id}/result?consume=1", accept=language)).body == {"result": None}


async def test_lightjq_tells_it_with_the_job() -> None:
    whole, job_id = await ended()
    for path in (f"/job/{job_id}", f"/job/{job_id}/polling"):
        told = await whole.call("GET", path)
        assert (told.status, told.body["status"], told.body["result"]) == (200, "done", VALUE)


async def test_one_that_goes_while_it_is_read_is_cut_and_not_told_short(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, job_id = await ended()
    get_piece = whole.whole.get_piece

    async def dropped(large: LargeResult, at: int) -> bytes | None:
        if at == 1:
            await whole.whole.drop_result(job_id)
            while (await whole.whole.purge(9)).rows:
                continue
        return await get_piece(large, at)

    monkeypatch.setattr(whole.whole, "get_piece", dropped)
    with pytest.raises(RuntimeError, match=f"the result of job {job_id} could not be read to its end: .* was dropped"):
        await whole.call("GET", f"/v1/jobs/{job_id}/result", accept=MSGPACK)


async def test_without_room_it_is_refused_for_a_moment_and_told_piece_by_piece_all_the_same() -> None:
    whole, job_id = await ended()
    whole.api._bodies.bytes_max = len(PACKED)
    told = await whole.call("GET", f"/v1/jobs/{job_id}/result", accept=JSON)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert whole.api._bodies.bytes == 0
    assert (await whole.call("GET", f"/v1/jobs/{job_id}/result", accept=MSGPACK)).body == {"result": VALUE}
