"""What a process of several answers at the address that its siblings alone know."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from jqd.api.sibling_api import SiblingApi
from jqd.api.siblings import FOR_ITSELF, SETTINGS
from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import NIL, Setting
from jqd.domain.tokens import TOKEN
from jqd.http import RequestHead
from jqd.testing.trial.edge import Whole
from tests.api.tokened import ROOT, call, edge, make

__all__ = ["edge"]


@pytest.mark.parametrize("token", [ROOT, ""])
async def test_it_answers_what_siblings_ask_and_nothing_else(edge: Any, token: str) -> None:
    """`token`: of whom they answer. It counts as at the shared address."""
    edge.api = SiblingApi(edge.api, edge.api._parts)
    sibling = {FOR_ITSELF: ROOT}
    assert (await call(edge, token, "GET", "/readyz", **sibling)).status == 200
    assert (await call(edge, token, "GET", "/metrics", **sibling)).status == (200 if token else 401)
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("POST", "/readyz"), ("GET", SETTINGS)):
        assert (await call(edge, token, method, path, **sibling)).status == 404
    for nobody in ({}, {FOR_ITSELF: "alone"}):
        for method, path in (("GET", "/readyz"), ("GET", "/metrics"), ("POST", SETTINGS)):
            assert (await call(edge, token, method, path, **nobody)).status == 401


async def test_a_sibling_alone_tells_settings_which_are_journaled_and_hold(edge: Any) -> None:
    token = await make(edge, "operator")
    settings = edge.services.workers.settings
    held = settings.get(TOKEN, token["token_id"])
    assert held is not None
    revoked = msgspec.structs.replace(held, revision=held.revision + 1, body=Raw(NIL))
    older = Setting("kind", "name", 1, 1, Raw(b"\x01"))
    settings.take([msgspec.structs.replace(older, revision=2)])
    api, before = SiblingApi(edge.api, edge.api._parts), len(edge.journal.frames)

    async def send(by: str) -> int:
        head = RequestHead("POST", SETTINGS, SETTINGS, b"", {FOR_ITSELF: by})
        answer = await api(Whole(head, "127.0.0.1", encode_rules([older, revoked])))
        assert answer is not None
        return answer.status

    assert await send(token["token"]) == 401
    assert settings.get(TOKEN, token["token_id"]) == held
    assert [await send(ROOT), await send(ROOT)] == [204, 204]
    assert edge.services.tokens.of(token["token"]) is None
    assert edge.journal.frames[before:] == [(Lane.RULES, 1, encode_rules([revoked]))], "what is news, once"
