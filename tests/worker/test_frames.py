"""What a worker and its processes say to each other, and how the end of one is told."""

import msgspec
import pytest

from jqd.worker.frames import Begin, Broken, Ended, Frames, Ready, Run, Stop, ToFront, ToProcess, frame
from jqd.worker.programs import ending
from jqd.worker.wire import JobIn


def test_messages_are_whole_wherever_the_stream_is_cut() -> None:
    sent: list[ToProcess | ToFront] = [
        Run(1, False, JobIn("name", "id", argument=msgspec.Raw(b"\xc0"), max_retry=5), b"\xc0" * 300),
        Stop(1, True),
        Begin("a:b", 3, "info"),
    ]
    data = b"".join(map(frame, sent))
    for at in range(len(data) + 1):
        frames = Frames(ToProcess)
        assert [*frames.feed(data[:at]), *frames.feed(data[at:])] == sent
    back: list[ToProcess | ToFront] = [Ready([]), Broken("why"), Ended(7, b"outcome")]
    assert list(Frames(ToFront).feed(b"".join(map(frame, back)))) == back
    with pytest.raises(msgspec.ValidationError):
        list(Frames(ToFront).feed(data))
    with pytest.raises(msgspec.DecodeError, match="1952807028 bytes"):
        list(Frames(ToFront).feed(b"text that a job wrote to the socket"))


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "it did not end"), (0, "it exited with 0"), (-9, "killed by SIGKILL"), (-40, "killed by signal 40")],
)
def test_how_a_process_ended_is_told_of_any_code(code: int | None, said: str) -> None:
    assert ending(code) == said
