"""A real daemon against the OpenAPI that it serves, and against LightJQ's own."""

from tests.live.harness import Daemon, short_directory
from tests.wire.conform import ENV, LIGHTJQ, run, serving


def test_every_answer_is_one_that_the_document_has() -> None:
    with short_directory() as base, Daemon(base / "d", env=ENV) as daemon:
        code, told = run(daemon.url, base, phases="fuzzing", examples=5, seed=1)
        assert code == 0, told
        code, told = run(daemon.url, base, phases="fuzzing", examples=5, seed=1, **LIGHTJQ)
        assert code == 0, told
        assert daemon.stop() == 0


def test_so_it_is_with_a_worker() -> None:
    with short_directory() as base, serving(base, worker=True) as url:
        code, told = run(url, base, phases="fuzzing", examples=5, seed=1)
        assert code == 0, told
