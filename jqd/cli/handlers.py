"""Commands about handlers, which run a jobtype by URL or as code, without a worker that registers."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.text import Text

from jqd.cli.argument import argument
from jqd.cli.common import Common, Flag
from jqd.cli.exits import Exit, Usage
from jqd.cli.render import show, table, tenants_of, whose
from jqd.cli.show import deleted, rows_of

BODY_SHOWN = 48  # characters of a body in the list: most URLs, or the beginning of code

Name = Annotated[str, Parameter(help="Jobtype of the handler.")]


def ls(*, common: Common = Common()) -> int:
    """List the handlers, each with its newest version and the version that gets its jobs."""
    none = "there is no handler; `jqd handlers set` makes one"
    return rows_of(common, lambda client: client.handlers(), _table, none)


def get(name: Name, /, *, version: int | None = None, common: Common = Common()) -> int:
    """Show a handler.

    Parameters
    ----------
    version
        Version to show instead of the newest.
    """
    with common.client() as client:
        show(client.handler(name, version=version), common.output)
    return Exit.DONE


def set_(
    name: str,
    body: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    lang: Literal["http", "python", "node", "sh"] = "http",
    eid: str | None = None,
    before: str | None = None,
    before_each: str | None = None,
    after_each: str | None = None,
    options: str | None = None,
    server_only: Flag = False,
    common: Common = Common(),
) -> int:
    """Set the URL or code that runs a jobtype: a new version of its handler, which gets the jobs from now on.

    Parameters
    ----------
    name
        The jobtype.
    body
        URL to which the jobs are posted; with --lang python, node or sh the code, - for stdin, or @FILE.
    lang
        http: the body is a URL. python, node or sh: it is code, which code workers run; needs runner.allow_code.
    eid
        For code: a name. Handlers with the same name and the same --before may share a process.
    before
        For code: more code, or @FILE, that runs once in each process.
    before_each
        For code: more code, or @FILE, that runs before each batch.
    after_each
        For code: more code, or @FILE, that runs after each batch, even if jobs failed.
    options
        JSON object, or @FILE: how the handler is called, and settings of its jobs: '{"style": "lines", "timeout": 20}'.
    server_only
        Take jobs of this type only if they are pushed with the master key, by a schedule or by another job.
    """
    fields = argument(options) if options is not None else {}
    if not isinstance(fields, dict):
        raise Usage(f"""--options is a map in JSON, like '{{"timeout": 20}}', not {options!r}""")
    with common.client() as client:
        answer = client.set_handler(
            name,
            argument(body, as_text=True),
            fields,
            lang=lang,
            eid=eid,
            before=argument(before, as_text=True),
            before_each=argument(before_each, as_text=True),
            after_each=argument(after_each, as_text=True),
            server_only=server_only,
        )
    show(answer, common.output)
    return Exit.DONE


def rm(name: Name, /, *, common: Common = Common()) -> int:
    """Delete a handler with all its versions. Its jobs in flight may still end."""
    return deleted(common, lambda client: client.delete_handler(name), name=name)


def _table(rows: list[dict[str, Any]]) -> Text:
    cells = [
        (row["name"], row["version"], row["lang"], _brief(row["body"]), _takes(row["versions"]), row["set_at"])
        for row in rows
    ]
    return table(*whose(("NAME", "VERSION", "LANG", "BODY", "JOBS TO", "SET"), cells, tenants_of(rows), 1), {})


def _brief(body: str) -> str:
    line, _, more = body.strip().partition("\n")
    return line[:BODY_SHOWN] + ("…" if more or len(line) > BODY_SHOWN else "")


def _takes(versions: list[dict[str, Any]]) -> str:
    """Return the newest version of a handler that is in use, as `@NUMBER`: it gets the jobs. Returns `none` if no
    version is in use. `versions`: all versions, the oldest first."""
    return next((f"@{one['version']}" for one in reversed(versions) if not one["out"]), "none")
