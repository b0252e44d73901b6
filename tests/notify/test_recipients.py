"""A notice for several recipients, of whom the server takes only some: now, later or never."""

import pytest

from jqd.notify.mail import MailSender
from jqd.notify.rule import Fate, Result
from tests.notify.server import mail_server
from tests.notify.test_mail import HELLO, answering, config, notice
from tests.notify.test_rule import SENT, Desk


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
    desk.result = Result(Fate.REFUSED, "550 to b@x")
    desk.go(60)
    assert desk.channel.notice is None
    assert [group.notified for group in desk.channel.groups] == [1]
    assert desk.channel.trouble == "550 to b@x"


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
