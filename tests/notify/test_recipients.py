"""A notice for several recipients, of whom the server takes only some: now, later or never."""

import socket
from typing import NamedTuple

import pytest
import trio
from hypothesis import example, given
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
    desk.result = Result(Fate.REFUSED, "550 to b@x", reached=True, each_refused=True)
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


OK = b"250 ok"
TO = ("a@example.org", "b@example.org")


class Answers(NamedTuple):
    """What a mail server answers in a session."""

    sender: bytes = OK
    a: bytes = OK
    b: bytes = OK
    data: bytes = b"354 go"
    text: bytes = OK

    def rcpt(self, to: str) -> bytes:
        return self.a if to == TO[0] else self.b


class TwoRecipients(Desk):
    """What each of two recipients was told, by a server that refuses neither for good."""

    def __init__(self) -> None:
        super().__init__(hourly_max=1_000, resolved_s=86_400)
        self.lines: dict[str, set[str]] = {each: set() for each in TO}

    def answer(self, answers: Answers) -> None:
        """Send the present notice, to a server that answers so."""
        self.now_ms += 2 * HOUR_MS
        rule.compose(self.channel, self.config, lambda: "n", self.now_ms, self.now_ms)
        if (notice := self.channel.notice) is None:
            return
        left = [each for each in TO if each not in notice.done]
        said = [b"220 hello", b"250 hello", answers.sender, *map(answers.rcpt, left), answers.data, answers.text]
        ours, theirs = socket.socketpair()
        with theirs, pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "create_connection", lambda *_: ours)
            theirs.sendall(b"".join(each + b"\r\n" for each in said))
            self.result = trio.run(MailSender(config(25, mail_to=TO)).send, notice)
        if (answers.sender, answers.data[:3], answers.text) == (OK, b"354", OK):
            for each in left:
                if answers.rcpt(each) == OK:
                    self.lines[each] |= {row.line for row in notice.rows}
        self.look()


REFUSALS = [b"451 later", b"554 never"]


@given(
    st.lists(
        st.builds(
            Answers,
            sender=st.sampled_from([OK, OK, *REFUSALS]),
            a=st.sampled_from([OK, b"451 greylisted"]),
            b=st.sampled_from([OK, b"451 greylisted"]),
            data=st.sampled_from([b"354 go", b"354 go", *REFUSALS]),
            text=st.sampled_from([OK, OK, *REFUSALS]),
        ),
        max_size=rule.TRIES_MAX - 1,
    )
)
@example([Answers(b=b"451 greylisted"), Answers(data=b"554 never")])
@example([Answers(b=b"451 greylisted"), Answers(text=b"554 never")])
@example([Answers(b=b"451 greylisted"), Answers(sender=b"554 never")])
def test_each_recipient_is_told_each_failure(answers: list[Answers]) -> None:
    """One had the notice, another was greylisted; then the server refused the text, and that counted as sent."""
    desk = TwoRecipients()
    for step, each in enumerate(answers):
        desk.fail(line=f"error {step}")
        desk.answer(each)
    desk.fail(line="last")
    for _ in range(2):  # a notice that some have already, and the next
        desk.answer(Answers())
    every = {f"error {step}" for step in range(len(answers))} | {"last"}
    assert desk.lines == dict.fromkeys(TO, every)


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
