"""A real daemon against the OpenAPI that it serves."""

from tests.live.harness import Daemon, short_directory
from tests.wire.conform import ENV, run


def test_every_answer_is_one_that_the_document_has() -> None:
    with short_directory() as base, Daemon(base / "d", env=ENV) as daemon:
        code, told = run(daemon.url, base, phases="fuzzing", examples=5, seed=1)
        assert code == 0, told
        assert daemon.stop() == 0
