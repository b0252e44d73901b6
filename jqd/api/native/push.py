"""POST /v1/jobs: body → a batch → one call of the desk → ids. Plain data in and out, whatever listens before it."""

from typing import get_args
from urllib.parse import quote

from jqd.api.message import Request, Response, answer
from jqd.api.native.body import read_push
from jqd.api.parts import Parts
from jqd.api.problems import Problem, errors_of
from jqd.desk import take
from jqd.desk.take import Ack, Level

ACKS: tuple[Level, ...] = get_args(Level)
REPLICAS_MAX = 100  # nobody has more; a number above it is a mistake


async def push(parts: Parts, request: Request) -> Response:
    """Take one job or many. 201 means: on this daemon's disk, synced (unless `?ack=memory` asked for less).

    200: the same was pushed before. 207: some of an array are refused. Raises Problem 415, 422; as `desk.take.push`.
    """
    wanted, atomic = _ack_wanted(request), request.flag("atomic")
    take.expect_open(parts.desk)
    batch = read_push(request, parts.config)
    pushed = await take.push(parts.desk, batch, wanted, atomic=atomic)
    language, ids = request.answer_language(), pushed.job_ids
    reached: dict[str, object] = {}
    if pushed.ack is not None:
        reached["ack"] = pushed.ack.level
        if pushed.ack.replicas:
            reached["replicas"] = pushed.ack.replicas
    if batch.single:
        location = {"location": f"/v1/jobs/{quote(str(ids[0]), safe='')}"}
        told = {"duplicate": True} if pushed.duplicates else reached
        return answer(200 if pushed.duplicates else 201, {"job_id": ids[0], **told}, language, location)
    body: dict[str, object] = {"job_ids": ids, **reached}
    if pushed.duplicates:
        body["duplicates"] = pushed.duplicates
    if pushed.refused:
        body["errors"] = errors_of(pushed.refused)
    return answer(207 if pushed.refused else 201 if pushed.ack else 200, body, language)


def _ack_wanted(request: Request) -> Ack:
    """Raises Problem 422."""
    query = request.query()
    replicas = query.get("replicas", "0")
    if not (replicas.isascii() and replicas.isdecimal()) or int(replicas[:9]) > REPLICAS_MAX:
        raise Problem(422, f"replicas is a whole number from 0 to {REPLICAS_MAX}, not {replicas[:32]!r}")
    asked = query.get("ack", "store" if int(replicas) else "fsync")
    level = next((level for level in ACKS if level == asked), None)
    if level is None:
        raise Problem(422, f"there is no ack level {asked[:32]!r}; there are {', '.join(ACKS)}")
    if int(replicas) and level != "store":
        raise Problem(422, f"replicas={replicas} is about the store: ask for ack=store, not ack={level}")
    return Ack(level, int(replicas))
