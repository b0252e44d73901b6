import pytest


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Ids must be the same in every process; those that would hold a memory address are not."""
    return argname if " object at 0x" in repr(val) else None
