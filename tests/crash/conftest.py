import pytest

SMALL_BYTES = 8_192


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal-bytes", type=int, default=SMALL_BYTES, help="size of the journal that is cut")
    parser.addoption("--power-cuts", type=int, default=150, help="random walks that end in a power cut")


@pytest.fixture
def journal_bytes(request: pytest.FixtureRequest) -> int:
    # Options are known only when this directory was named on the command line.
    size: int = request.config.getoption("--journal-bytes", SMALL_BYTES)
    return size


@pytest.fixture
def power_cuts(request: pytest.FixtureRequest) -> int:
    number: int = request.config.getoption("--power-cuts", 150)
    return number
