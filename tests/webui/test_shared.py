"""What open pages ask is asked once: answers that are shared, feeds that tick, sessions that end. In memory."""

from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from jqd.client import ClientClosed, Forbidden, JobEvent, JqdClientError, NotFound, Unavailable
from jqd.domain.dates import ago, lasting
from jqd.testing.clock import ManualClock
from jqd.webui.api import SHARED_S, Answers, Api, together
from jqd.webui.config import SESSION_S, SESSIONS_MAX
from jqd.webui.feed import QUIET_S, Feeds
from jqd.webui.sessions import Me, Session, Sessions
from jqd.webui.values import link, read_value, value


class Asked:
    """A question that is answered when it may be."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times, self.may, self.error = 0, trio.Event(), error

    async def __call__(self) -> dict[str, Any]:
        self.times += 1
        await self.may.wait()
        if self.error is not None:
            raise self.error
        return {"times": self.times}


async def test_pages_that_ask_the_same_at_once_share_an_answer_for_a_second() -> None:
    clock, ask, found = ManualClock(), Asked(), []
    answers = Answers(clock)

    async def page() -> None:
        found.append(await answers.get("key", ask))

    async with trio.open_nursery() as nursery:
        for _ in range(500):
            nursery.start_soon(page)
        await wait_all_tasks_blocked()
        ask.may.set()
    assert found == [{"times": 1}] * 500
    clock.advance(SHARED_S + 0.1)
    assert await answers.get("key", ask) == {"times": 2}
    answers.forget()
    assert await answers.get("key", ask) == {"times": 3}, "after an act nothing older is shown"


async def test_a_page_that_leaves_takes_no_answer_from_the_others_and_a_refusal_is_shared() -> None:
    ask, found = Asked(), []
    answers = Answers(ManualClock())

    async def page() -> None:
        found.append(await answers.get("key", ask))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as leaving:
            nursery.start_soon(page)
            await wait_all_tasks_blocked()
        first = trio.CancelScope()

        async def leaver() -> None:
            with first:
                await answers.get("other", ask)

        nursery.start_soon(leaver)
        await wait_all_tasks_blocked()
        nursery.start_soon(answers.get, "other", ask)
        await wait_all_tasks_blocked()
        first.cancel()
        await wait_all_tasks_blocked()
        assert ask.times == 3, "who waited asks by itself"
        ask.may.set()
    assert not leaving.cancelled_caught
    refusing = Asked(NotFound("there is no such job", status=404))
    refusing.may.set()
    for _ in range(2):
        with pytest.raises(NotFound):
            await answers.get("refused", refusing)
    assert refusing.times == 1


async def test_answers_are_dropped_by_age_and_by_size_and_not_by_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One viewer had 1,000 of a megabyte kept, for good."""
    monkeypatch.setattr("jqd.webui.api.ANSWERS_CHARS_MAX", 1_000, raising=False)
    clock = ManualClock()
    answers = Answers(clock)

    async def ask() -> dict[str, Any]:
        return {"rows": "x" * 90}

    def kept() -> set[object]:
        return set(answers._kept)

    for number in range(20):
        await answers.get(number, ask, 30)
    assert kept() == set(range(11, 20))
    clock.advance(20)
    await answers.get("late", ask, 30)
    await answers.get("soon", ask)
    clock.advance(SHARED_S + 0.1)
    await answers.get("next", ask)
    assert kept() == {*range(13, 20), "late", "next"}
    clock.advance(10)
    await answers.get("last", ask)
    assert kept() == {"late", "last"}


@pytest.mark.parametrize("error", [Forbidden("it was revoked", status=401), ClientClosed("its login has ended")])
async def test_a_login_that_has_ended_ends_no_login_of_others_with_the_same_rights(error: JqdClientError) -> None:
    answers, refusing, good = Answers(ManualClock()), Asked(error), Asked()
    found, refused = [], []

    async def revoked() -> None:
        try:
            await answers.get("key", refusing)
        except (ClientClosed, Forbidden) as error:
            refused.append(error)

    async def other() -> None:
        found.append(await answers.get("key", good))

    good.may.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(revoked)
        await wait_all_tasks_blocked()
        nursery.start_soon(other)
        await wait_all_tasks_blocked()
        refusing.may.set()
    assert (found, len(refused)) == ([{"times": 1}], 1)


async def test_of_several_calls_the_first_error_comes_out_in_no_group() -> None:
    async def fails() -> None:
        raise NotFound("nobody", status=404)

    with pytest.raises(NotFound):
        await together(one=fails, other=trio.sleep_forever)


class Counting:
    """Counters of a daemon that end, or are refused."""

    def __init__(self) -> None:
        self.send, self._receive = trio.open_memory_channel[object](100)
        self.began = 0

    async def counters(self) -> Any:
        self.began += 1
        async for told in self._receive:
            if told == "refuse":
                raise Unavailable("16 listen already", status=429, retry_after=None)
            if told == "break":
                raise KeyError("unforeseen")
            yield JobEvent("counters", {"store": told})


async def test_a_feed_ticks_when_counters_change_and_by_time_while_it_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Counting()
    api = Api(cast("Any", source), Answers(ManualClock()), "me")
    async with trio.open_nursery() as nursery:
        feeds = Feeds(nursery)
        async with feeds.listen(api) as feed, feeds.listen(api) as same:
            assert feed is same
            assert feeds.listeners == 2
            source.send.send_nowait({"waiting": 1, "used_memory": 6})
            with trio.fail_after(1):
                await feed.wait_tick()
            with trio.move_on_after(1) as quiet:
                source.send.send_nowait({"waiting": 1, "used_memory": 7})
                await feed.wait_tick()
            assert quiet.cancelled_caught, "nothing that a page shows has changed"
            source.send.send_nowait("refuse")
            with trio.fail_after(1):
                await feed.wait_tick()
            source.send.send_nowait("refuse")
            with trio.fail_after(QUIET_S + 1):
                await feed.wait_tick()
            assert source.began == 2
            for _ in range(3):  # the daemon is silent now, as one is that hangs
                with trio.fail_after(QUIET_S + 1):
                    await feed.wait_tick()
            waiting = trio.Event()

            async def last() -> None:
                await feed.wait_tick()
                waiting.set()

            nursery.start_soon(last)
            await wait_all_tasks_blocked()
            feeds.close()
            await waiting.wait()
        assert feeds.listeners == 0


async def test_a_feed_that_breaks_ends_alone_and_its_listeners_get_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broken, other = Counting(), Counting()
    async with trio.open_nursery() as nursery:
        feeds = Feeds(nursery)
        one = Api(cast("Any", broken), Answers(ManualClock()), "me")
        two = Api(cast("Any", other), Answers(ManualClock()), "another")
        async with feeds.listen(two) as spared:
            async with feeds.listen(one) as feed:
                broken.send.send_nowait("break")
                with trio.fail_after(1), capture_logs() as lines:
                    await feed.wait_tick()
                assert feed.is_over
                async with feeds.listen(one) as fresh:
                    assert fresh is not feed
                    broken.send.send_nowait({"waiting": 1})
                    with trio.fail_after(1):
                        await fresh.wait_tick()
            with trio.fail_after(1):
                other.send.send_nowait({"waiting": 2})
                await spared.wait_tick()
            assert not spared.is_over
        assert feeds.listeners == 0
    assert [line["event"] for line in lines] == ["webui.feed_failed"]


async def test_a_listener_that_leaves_at_once_is_no_mistake() -> None:
    with capture_logs() as lines:
        await _leave_at_once()
    assert lines == []


async def _leave_at_once() -> None:
    async with trio.open_nursery() as nursery:
        feeds = Feeds(nursery)
        async with feeds.listen(Api(cast("Any", Counting()), Answers(ManualClock()), "me")):
            assert feeds.listeners == 1
        assert feeds.listeners == 0


class Closing:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_sessions_end_by_time_and_by_number() -> None:
    clock, api = ManualClock(), Closing()
    sessions = Sessions(clock)
    me = Me("viewer")
    first, _ = sessions.begin(cast("Api", api), me)
    assert sessions.find(first.session_id) is first
    assert sessions.find("guessed") is None
    assert not sessions.is_over(first)
    clock.advance(SESSION_S + 1)
    assert sessions.is_over(first)
    assert sessions.find(first.session_id) is None
    assert api.closed == 1
    kept = [sessions.begin(cast("Api", api), me)[0] for _ in range(SESSIONS_MAX)]
    assert sessions.find(kept[0].session_id) is kept[0]
    assert sessions.begin(cast("Api", api), me)[1] == [kept[1]]
    assert sessions.find(kept[1].session_id) is None, "the one unused for longest"
    assert sessions.find(kept[0].session_id) is kept[0]
    sessions.close()
    assert len(sessions) == 0
    assert api.closed == SESSIONS_MAX + 1, "the one for whom there was no room is closed once its token is revoked"
    assert first.owns_form(first.form_token)
    assert not first.owns_form("ü")


def test_whoever_logs_in_most_ends_logins_of_his_own_kind() -> None:
    """Tokens of the lowest roles of a tenant, with whatever scopes, end none of an operator, nor of another tenant."""
    sessions, api = Sessions(ManualClock()), cast("Api", Closing())
    others = [Me("operator"), Me("operator", "acme"), Me("viewer", "other"), Me("push", "other", ("mail",))]
    kept = [sessions.begin(api, me)[0] for me in others for _ in range(2)]
    flood = (Me(role, "acme", (f"{number}",)) for number in range(SESSIONS_MAX) for role in ("push", "viewer"))
    ended = {session.session_id for me in flood for session in sessions.begin(api, me)[1]}
    assert len(sessions) == SESSIONS_MAX
    assert ended.isdisjoint(session.session_id for session in kept)


def test_values_are_text_that_can_be_read_again() -> None:
    for given in (None, 2**63, [1.5, "ü"], {"a": b"\x00"}, {"$bytes": "x"}):
        shown = value(given)
        assert shown.is_whole
        assert read_value(shown.text) == given or "$msgpack" in shown.text
    assert value("x" * 20_000).cut
    assert not value([[]] * 3).cut
    with pytest.raises(ValueError, match="no JSON"):
        read_value("{")
    with pytest.raises(ValueError, match="MessagePack"):
        read_value(str(10**30))
    for half in (r"\ud83d", r"\ud83d \ude00", r"\ude00", r"\ud83d\ud83d\ude00"):
        with pytest.raises(ValueError, match="no JSON"):
            read_value(f'{{"a": "{half}"}}')
    assert read_value(r'"\ud83d\ude00 \\ud83d"') == "\U0001f600 \\ud83d"


def test_addresses_and_ages() -> None:
    assert link("/job", id="../a?b&c#d'\"<%", done=None) == "/job?id=..%2Fa%3Fb%26c%23d%27%22%3C%25"
    assert lasting(5.25) == "5.2 s"
    assert lasting(200_000) == "2 d 7 h"
    assert ago("no date", cast("Any", None)) == ""


async def test_no_login_and_no_tenant_takes_the_streams_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.webui.feed.LISTENERS_MAX", 8)
    monkeypatch.setattr("jqd.webui.feed.OF_SESSION_MAX", 2)
    monkeypatch.setattr("jqd.webui.feed.OF_TENANT_MAX", 3)
    api = Api(cast("Any", Counting()), Answers(ManualClock()), "me")
    one, two, master = (Session(api, Me("viewer", tenant)) for tenant in ("acme", "acme", ""))
    everybody = Session(api, Me("master"), is_open=True)
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        feeds = Feeds(nursery)
        for session, most in ((one, 2), (two, 1), (master, 2), (everybody, 3)):
            for _ in range(most):
                assert feeds.has_room(session)
                await stack.enter_async_context(feeds.listen_for(session, api))
            assert not feeds.has_room(session)
        late = Session(api, Me("master"))
        assert feeds.has_room(late), "its first page, however many logins of one token have taken the others"
        await stack.enter_async_context(feeds.listen_for(late, api))
        assert not feeds.has_room(late)
        await stack.aclose()
        assert feeds.listeners == 0
        assert feeds.has_room(one)
        assert not feeds._of
