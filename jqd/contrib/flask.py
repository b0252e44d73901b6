"""Runs jobs in a Flask application, behind a blueprint, in the threads of its server.

    web.register_blueprint(blueprint(jobs, secret=SECRET), url_prefix="/jqd")

and once after each deploy, from anywhere (`jqd unregister` reverses it):

    flask --app web jqd register http://10.0.0.5:8000/jqd
"""

from contextlib import suppress
from functools import partial

import click
from flask import Blueprint, Response, request

from jqd.client import NotFound
from jqd.contrib.mount import BODY_BYTES_MAX, MAX_JOBS_DEFAULT, Mount, Secret, register
from jqd.worker.app import App

CHUNK_BYTES = 65_536  # of a request's body that are read at once


def blueprint(app: App, *, secret: Secret, name: str = "jqd", body_bytes_max: int = BODY_BYTES_MAX) -> Blueprint:
    """Return a blueprint named `name` that runs the jobs of `app`. `secret`: one or several secrets with which daemons
    sign requests; None: accept unsigned requests. `body_bytes_max`: larger requests are refused with 413."""
    mount = Mount(app, secret=secret, body_bytes_max=body_bytes_max)
    found = Blueprint(name, __name__)

    @found.post("")
    def take() -> Response:
        chunks = iter(partial(request.stream.read, CHUNK_BYTES), b"")
        answer = mount.answer({name.lower(): value for name, value in request.headers}, chunks)
        return Response(answer.body, answer.status, answer.headers, content_type=answer.content_type)

    @found.cli.command("register")
    @click.argument("url")
    @click.option("--max-jobs", default=MAX_JOBS_DEFAULT, show_default=True, help="At once, of each job.")
    def register_jobs(url: str, max_jobs: int) -> None:
        """Make the daemons run the jobs of this app at URL, the address of this blueprint."""
        changed = register(app, url, secret=secret, max_jobs=max_jobs)
        click.echo(f"{', '.join(app.jobs)} at {url}{'' if changed else ', as before'}")

    @found.cli.command("unregister")
    def unregister_jobs() -> None:
        """Make the daemons send no more jobs of this app here. Further jobs wait until another worker or handler runs
        them."""
        for job in app.jobs:
            with suppress(NotFound):
                app.client.delete_handler(job)
                click.echo(job)

    return found
