"""A list of the jobs of very many jobtypes goes by parts, and says so: by the API, on the page, and in the command."""

import httpx2
import pytest

from jqd.cli import run
from jqd.cli.show import IN_PARTS
from jqd.client import Client
from jqd.store.listing import LIST_SOURCES
from tests.directories import short_directory
from tests.live.harness import Daemon, ingested
from tests.webui.conftest import UiProcess

HINT = "one part of them comes after the other"


@pytest.mark.parametrize("partitions", ["1", "2"])
def test_a_list_of_very_many_jobtypes_says_that_it_goes_by_parts(
    partitions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        short_directory() as base,
        Daemon(base / "d", env={"JQD_STORE__PARTITIONS": partitions}) as daemon,
        UiProcess(base / "ui.log", "--url", daemon.url) as ui,
        Client(daemon.url) as client,
    ):
        many = int(partitions) * LIST_SOURCES
        for job_id in client.push_many([{"name": f"type-{number}"} for number in range(4 * many)]):
            ingested(client, job_id)

        def told(query: str) -> tuple[bool, bool]:
            answer = httpx2.get(f"{daemon.url}/v1/jobs?{query}", timeout=20).json()
            return answer.get("in_parts", False), HINT in httpx2.get(f"{ui.url}/jobs?{query}", timeout=20).text

        assert told("state=waiting") == (True, True)
        assert told("name=type-1") == told("state=failed") == (False, False)
        for words, said in ((["--state", "waiting"], True), (["--name", "type-1"], False)):
            assert run(["jobs", *words, "--url", daemon.url]) == 0
            assert (IN_PARTS in capsys.readouterr().err) is said
