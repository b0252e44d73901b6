import pytest

# Sizes of the suite's form; the long forms are named in the tests' docstrings. A flip takes eight runs a byte.
SIZES = {"--journal-bytes": 8_192, "--flip-bytes": 1_024, "--power-cuts": 150}


def pytest_addoption(parser: pytest.Parser) -> None:
    for option, size in SIZES.items():
        parser.addoption(option, type=int, default=size)


def size_of(request: pytest.FixtureRequest, option: str) -> int:
    # Options are known only when this directory was named on the command line.
    size: int = request.config.getoption(option, SIZES[option])
    return size


@pytest.fixture
def journal_bytes(request: pytest.FixtureRequest) -> int:
    """Of the journal that is cut."""
    return size_of(request, "--journal-bytes")


@pytest.fixture
def flip_bytes(request: pytest.FixtureRequest) -> int:
    """Of the journal whose bits are flipped."""
    return size_of(request, "--flip-bytes")


@pytest.fixture
def power_cuts(request: pytest.FixtureRequest) -> int:
    """Random walks that end in a power cut."""
    return size_of(request, "--power-cuts")
