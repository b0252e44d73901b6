"""A Flask application that pushes jobs, and runs them in its own threads.

JOBS_SECRET=$SECRET flask --app examples.web.withflask run --port 8000
JOBS_SECRET=$SECRET flask --app examples.web.withflask jqd register http://127.0.0.1:8000/jqd
"""

import os
from typing import Any

from flask import Flask

from examples.web.jobs import app as jobs
from examples.web.jobs import deliver, thank
from jqd.contrib.flask import blueprint

web = Flask(__name__)
web.register_blueprint(blueprint(jobs, secret=os.environ["JOBS_SECRET"]), url_prefix="/jqd")


@web.post("/orders/<int:number>")
def order(number: int) -> tuple[dict[str, Any], int]:
    """The visitor may send this twice: under the order's own id the job counts once."""
    ref = deliver.options(id=f"order-{number}").push(number)
    thank.push(f"customer-{number}@example.org")
    return {"job_id": ref.job_id, "duplicate": ref.duplicate}, 202


@web.get("/orders/<int:number>")
def delivered(number: int) -> dict[str, Any]:
    """How it stands."""
    info = deliver.ref(f"order-{number}").status()
    return {"state": info.state, "result": info.result}
