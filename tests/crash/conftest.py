import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal-bytes", type=int, default=2_048, help="size of the journal that is cut and flipped")


@pytest.fixture
def journal_bytes(request: pytest.FixtureRequest) -> int:
    size: int = request.config.getoption("--journal-bytes")
    return size
