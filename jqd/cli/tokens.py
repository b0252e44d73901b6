"""Commands for tokens, and for the audit log of what was done with them."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from rich.text import Text

from jqd.cli.common import Common, age
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import print_note
from jqd.cli.render import show, show_as, table
from jqd.cli.show import rows_of
from jqd.client import Client
from jqd.client.environ import is_from_environment
from jqd.domain import root_token
from jqd.domain.dates import ago

DataDir = Annotated[
    Path | None,
    Parameter(help="Ask the daemon that uses this data directory, with the root token that it keeps there."),
]


def ls(*, data_dir: DataDir = None, common: Common = Common()) -> int:
    """List the valid tokens, without their secrets."""
    none = "there is no token; `jqd tokens create` makes one"
    return rows_of(_asking(common, data_dir), lambda client: client.tokens(), _table, none)


def create(
    role: Literal["push", "worker", "viewer", "operator", "master"],
    /,
    *,
    of: str | None = None,
    scope: Annotated[list[str] | None, Parameter(negative="")] = None,
    note: str = "",
    expires: str | None = None,
    data_dir: DataDir = None,
    common: Common = Common(),
) -> int:
    """Create a token and print it. It cannot be shown again.

    Parameters
    ----------
    role
        push (jobs), worker (runs jobs), viewer (only looks), operator (everything but tokens) or master (everything).
    of
        Tenant of the token; default: the tenant of the token that this command uses.
    scope
        Jobtype that the token is for, or the beginning of several: 'mail.*'. May be repeated; default: all jobtypes.
    note
        What the token is for, in your words.
    expires
        For how long it is valid: 30d, 12h; default: until it is revoked.
    """
    common = _asking(common, data_dir)
    with common.client() as client:
        answer = client.create_token(
            role, tenant=of, scopes=scope, note=note, expires_in=None if expires is None else age(expires, "--expires")
        )
    whose = f" of tenant {answer['tenant']}" if answer["tenant"] else ""
    return _show_token(answer, f"{answer['role']}{whose}; it is not shown again", common)


def derive(
    *,
    ttl: str = "12h",
    note: str = "",
    role: Literal["push", "worker", "viewer", "operator", "master"] | None = None,
    scope: Annotated[list[str] | None, Parameter(negative="")] = None,
    data_dir: DataDir = None,
    common: Common = Common(),
) -> int:
    """Create a token from your own and print it. It has your rights or fewer for --ttl, and ends when your token ends.

    Parameters
    ----------
    ttl
        For how long it may be used: 90m, 12h, 30d at most.
    note
        What the token is for, in your words.
    role
        Role of the token: yours (the default), or one with fewer rights.
    scope
        Jobtype that the token is for, or the beginning of several: 'mail.*'. It must be one that your token is for. May
        be repeated; default: the jobtypes of your token.
    """
    with _asking(common, data_dir).client() as client:
        answer = client.derive_token(ttl=age(ttl, "--ttl"), note=note, role=role, scopes=scope)
    return _show_token(answer, f"{answer['role']}, until {answer['expires_at']}", common)


def _show_token(answer: dict[str, Any], what: str, common: Common) -> int:
    show_as(answer["token"], answer, common.output)
    if common.output == "table":
        print_note(f"token {answer['token_id']}, {what}")
    return Exit.DONE


def revoke(*token_ids: str, data_dir: DataDir = None, common: Common = Common()) -> int:
    """Revoke tokens: all daemons refuse them from now on. Ends with 1 if a daemon could not be reached.

    Parameters
    ----------
    token_ids
        Ids of tokens, as `jqd tokens` lists them.
    """
    common = _asking(common, data_dir)
    if not token_ids:
        raise Usage("which token? `jqd tokens` lists them")
    code = Exit.DONE
    with common.client() as client:
        for token_id in token_ids:
            not_reached = client.revoke_token(token_id)
            show({"token_id": token_id, "revoke": "done"}, common.output)
            for url in not_reached:
                why = "does not answer, or not to this token; it hears of it when it reaches the store"
                print_note(f"{token_id}: {url} {why}")
                code = Exit.FAILED
    return code


def audit(
    *,
    by: str = "",
    act: str = "",
    newer: str | None = None,
    limit: int = 100,
    data_dir: DataDir = None,
    common: Common = Common(),
) -> int:
    """Show who changed what with a token, newest first. Entries are kept for 90 days, of each tenant the newest 5,000.

    Parameters
    ----------
    by
        Show only what was done with the token of this id.
    act
        Show only what has this text in its column ACT: 'token', 'jobs delete', 'schedule'.
    newer
        Show only what was done in this time: 2h, 7d.
    limit
        Most rows to show.
    """
    since = None if newer is None else timedelta(seconds=age(newer, "--newer"))
    none = "nothing was changed with a token"

    def ask(client: Client) -> list[dict[str, Any]]:
        return client.audit(token=by, act=act, since=since, limit=limit)

    return rows_of(_asking(common, data_dir), ask, _notes, none)


def _notes(rows: list[dict[str, Any]]) -> Text:
    cells = [(row["at"], row["token"], row["role"], row["tenant"], row["act"], row["what"]) for row in rows]
    return table(("AT", "TOKEN", "ROLE", "TENANT", "ACT", "WHAT"), cells)


def _asking(common: Common, data_dir: Path | None) -> Common:
    """Return the options, changed so that they ask the daemon of `data_dir` with the root token that it wrote there;
    unchanged if `data_dir` is None. Raises Usage if there is no root token.

    If --url names a daemon, this one is asked with the token; a URL from JQD_URL is ignored.
    """
    if data_dir is None:
        return common
    try:
        left = root_token.read(data_dir)
    except (OSError, msgspec.MsgspecError) as error:
        raise Usage(f"{data_dir / root_token.FILE} cannot be read: {error}; run this as who runs the daemon") from error
    if left is None:
        raise Usage(
            f"there is no {data_dir / root_token.FILE}: no daemon runs on that directory, or it is still starting;"
            " start it with `jqd serve`"
        )
    url = None if is_from_environment(common.url) else common.url
    return replace(common, url=url or left.url, token=left.token)


def _table(rows: list[dict[str, Any]]) -> Text:
    cells = []
    for row in rows:
        scopes = " ".join(row["scopes"]) or "all"
        ending = ago(row.get("expires_at")) or "never"
        note = f"{row['note']} (derived from {row['derived_from']})" if row.get("derived_from") else row["note"]
        cells.append((row["token_id"], row["role"], row["tenant"], scopes, ago(row.get("made_at")), ending, note))
    return table(("ID", "ROLE", "TENANT", "JOBTYPES", "MADE", "ENDS", "NOTE"), cells)
