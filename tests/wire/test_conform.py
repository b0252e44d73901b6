"""A real daemon against the OpenAPI that it serves, and against LightJQ's own; a worker against its own."""

import pytest

from tests.directories import short_directory
from tests.wire.conform import LIGHTJQ, run, serving


@pytest.mark.long
def test_every_answer_is_one_that_the_document_has() -> None:
    with short_directory() as base, serving(base, worker=False) as target:
        code, told = run(target, base, phases="fuzzing", examples=2, seed=1)
        assert code == 0, told


@pytest.mark.long
def test_so_it_is_with_lightjqs_document() -> None:
    with short_directory() as base, serving(base, worker=False) as target:
        code, told = run(target, base, phases="coverage,fuzzing", examples=20, seed=1, **LIGHTJQ)
        assert code == 0, told


@pytest.mark.long
def test_so_it_is_with_a_worker() -> None:
    with short_directory() as base, serving(base, worker=True) as target:
        code, told = run(target, base, phases="coverage,fuzzing", examples=20, seed=1)
        assert code == 0, told
