"""A notice for several recipients, of whom the server takes only some: now, later or never."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.notify import rule
from jqd.notify.mail import MailSender
from jqd.notify.rule import Fate, Result
from tests.notify.server import mail_server
from tests.notify.test_mail import HELLO, answering, config, notice
from tests.notify.test_rule import HOUR_MS, SENT, Desk


def test_who_never_takes_a_notice_that_others_have_keeps_the_next_from_nobody() -> None:
    """A mailbox that was full for a week, and no later failure was told to anybody."""
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.LATER, "452 full", done=["a@x"], reached=True)
    desk.go(30)
    desk.result = desk.result._replace(done=())
    desk.go(1_200)
    assert (len(desk.arrived), desk.channel.trouble) == (1, "452 full")
    desk.fail(line="other")
    desk.go(60)
    assert desk.channel.notice is not None
    assert [row.line for row in desk.channel.notice.rows] == ["other"]


def test_who_is_greylisted_gets_a_notice_that_others_have_after_an_outage() -> None:
    """Four tries that reached no server closed it, as if the server had refused that recipient."""
    desk = Desk(resolved_s=86_400)
    desk.fail()
    desk.result = Result(Fate.LATER, "451 to b@x", done=["a@x"], reached=True)
    desk.go(30)
    desk.result = Result(Fate.LATER, "away")
    desk.go(3_000)
    assert desk.channel.notice is not None
    assert (desk.channel.notice.tries, desk.channel.notice.reached, desk.channel.notice.done) == (6, 1, ["a@x"])
    desk.result = SENT
    desk.go(3_600)
    assert len(desk.arrived) == 1


def test_tries_while_nobody_has_a_notice_take_none_from_the_last_recipient() -> None:
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.LATER, "451 to all", reached=True)
    desk.go(1_000)
    desk.result = Result(Fate.LATER, "451 to b@x", done=["a@x"], reached=True)
    desk.go(1_000)
    assert desk.channel.notice is not None
    assert (desk.channel.notice.tries, desk.channel.notice.reached) == (6, 1)


def test_one_that_was_refused_where_others_had_it_is_not_told_to_them_again() -> None:
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.LATER, "451 to b@x", done=["a@x"])
    desk.go(60)
    desk.result = Result(Fate.REFUSED, "550 to b@x", reached=True)
    desk.go(60)
    assert desk.channel.notice is None
    assert [group.notified for group in desk.channel.groups] == [1]
    assert desk.channel.trouble == "550 to b@x"


@pytest.mark.parametrize("trouble", ["535 wrong password", "a notice by mail cannot be written"])
def test_a_refusal_before_any_recipient_was_named_takes_the_failure_from_none(trouble: str) -> None:
    """One had the notice, another was greylisted; then the server refused the login, and that counted as sent."""
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.LATER, "451 to b@x", done=["a@x"], reached=True)
    desk.go(60)
    desk.result = Result(Fate.REFUSED, trouble)
    desk.go(60)
    assert [group.notified for group in desk.channel.groups] == [0]
    assert desk.channel.notice is None, "the next one may be writable"
    desk.result = SENT
    desk.go(300)
    assert [row.line for row in desk.arrived[-1].rows] == ["no"]


class TwoRecipients(Desk):
    """What each of two recipients was told, by a server that refuses none of them for good."""

    def __init__(self) -> None:
        super().__init__(hourly_max=1_000, resolved_s=86_400)
        self.lines: dict[str, set[str]] = {"a@x": set(), "b@x": set()}

    def answer(self, fate: Fate, takes: Sequence[str]) -> None:
        """Send the present notice. `takes`: recipients that the server takes the mail for, if it names them."""
        self.now_ms += 2 * HOUR_MS
        rule.compose(self.channel, self.config, lambda: "n", self.now_ms, self.now_ms)
        if (notice := self.channel.notice) is None:
            return
        if fate is not Fate.SENT:
            self.result = Result(fate, "before the recipients were named")
        else:
            left = [each for each in self.lines if each not in notice.done]
            taken = [each for each in left if each in takes]
            self.result = Result(Fate.SENT if taken == left else Fate.LATER, done=taken, reached=True)
            for each in taken:
                self.lines[each] |= {row.line for row in notice.rows}
        self.look()


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([Fate.SENT, Fate.SENT, Fate.LATER, Fate.REFUSED]),
            st.sampled_from([(), ("a@x",), ("b@x",), ("a@x", "b@x")]),
        ),
        max_size=rule.TRIES_MAX - 1,
    )
)
def test_each_recipient_is_told_each_failure(answers: list[tuple[Fate, Sequence[str]]]) -> None:
    desk = TwoRecipients()
    for step, (fate, takes) in enumerate(answers):
        desk.fail(line=f"error {step}")
        desk.answer(fate, takes)
    desk.fail(line="last")
    for _ in range(2):  # a notice that some have already, and the next
        desk.answer(Fate.SENT, [*desk.lines])
    every = {f"error {step}" for step in range(len(answers))} | {"last"}
    assert desk.lines == {"a@x": every, "b@x": every}


async def test_a_recipient_that_is_refused_takes_the_mail_from_no_other() -> None:
    to = ("a@example.org", "b@example.org", "c@example.org")
    with mail_server() as (box, port):
        box.refused = {"b@example.org": "550 no such user", "c@example.org": "451 greylisted"}
        sender, told = MailSender(config(port, mail_to=to)), notice()
        first = await sender.send(told)
        assert (first.fate, sorted(first.done)) == (Fate.LATER, ["a@example.org", "b@example.org"])
        assert (first.reached, "b@example.org: 550 no such user" in first.trouble) == (True, True)
        told.done = [*first.done]
        del box.refused["c@example.org"]
        assert (await sender.send(told)).fate is Fate.SENT
    assert [envelope.rcpt_tos for envelope in box.envelopes] == [["a@example.org"], ["c@example.org"]]


@pytest.mark.parametrize(("answers", "reached"), [(1, False), (2, True)])
async def test_a_server_that_answered_for_the_recipients_is_reached(
    answers: int, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.notify.mail.STEP_S", 0.2)
    with answering(*HELLO, *[b"250 ok\r\n"] * answers) as port:
        result = await MailSender(config(port)).send(notice())
    assert (result.fate, result.reached) == (Fate.LATER, reached)
