"""Why a job stands where it stands."""

import sys

from jqd.cli.common import Common
from jqd.cli.exits import Exit
from jqd.cli.render import CONTROLS, show


def why(job_id: str, /, *, common: Common | None = None) -> int:
    """Say in one sentence what keeps a job: its date, a pause, no worker, jobs before it …, and until when.

    Parameters
    ----------
    job_id
        The job's id.
    """
    common = common or Common()
    with common.client() as client:
        told = client.why(job_id)
    if common.output != "table":
        show(told, common.output)
    else:
        print(f"{job_id}: {told['text']}".translate(CONTROLS))
        sys.stdout.flush()
    return Exit.DONE
