"""An internal error: the client hears an id, the log has one line under it, and neither repeats what was sent."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from jqd.domain.errors import JqdError
from tests.api.edge import Edge

SECRET = "a-secret-in-the-request"


class Unknown(JqdError):
    """One that the table of statuses does not have."""


@pytest.mark.parametrize("error", [ValueError(SECRET), Unknown(SECRET), ExceptionGroup(SECRET, [KeyError(SECRET)])])
@pytest.mark.parametrize("path", ["/v1/jobs", "/job", "/v1/stats"])
async def test_a_500_is_one_line_of_the_log(error: Exception, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge()

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(edge.control, "stats", fail)
    monkeypatch.setattr(edge.control, "push_ready", fail)
    with capture_logs() as lines:
        if path == "/v1/stats":
            told = await edge.call("GET", path)
        else:
            told = await edge.call("POST", path, {"name": "mail", "argument": SECRET})
    assert (told.status, told.body["status"]) == (500, 500)
    (line,) = [line for line in lines if line["log_level"] == "error"]
    kind = "KeyError" if isinstance(error, ExceptionGroup) else type(error).__name__
    assert (line["event"], line["id"], line["error"]) == ("api.failed", told.body["id"], kind)
    assert told.body["id"] in told.body["detail"]
    if not isinstance(error, ExceptionGroup):
        assert "test_mistakes.py" in line["place"]
    assert SECRET not in str(lines) + str(told)
