"""What `GET /v1/jobs/{id}` says of the jobs that a job has to do with. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jqd.domain.flow import Flow, unique_text
from jqd.domain.tenant import bare
from jqd.service.walk import NEAR_MAX

_then_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])


class JobLinks(Struct, frozen=True, kw_only=True):
    """What a job has to do with others; left out of lists."""

    parents: Annotated[Sequence[str], Meta(description=f"it waits for them: the first {NEAR_MAX}")] | UnsetType = UNSET
    parents_count: int | UnsetType = UNSET
    parent: Annotated[str, Meta(description="the job whose outcome made it")] | UnsetType = UNSET
    group: str | UnsetType = UNSET
    unique: str | UnsetType = UNSET
    then: Annotated[Sequence[str], Meta(description="names of the jobs that follow its success")] | UnsetType = UNSET


def links_body(links: Flow | None) -> Mapping[str, Any]:
    """Return the fields of `JobLinks`."""
    if links is None:
        return {}
    return {
        "parents": [bare(parent) for parent in links.after[:NEAR_MAX]] or UNSET,
        "parents_count": len(links.after) or UNSET,
        "parent": links.parent or UNSET,
        "group": bare(links.group) or UNSET,
        "unique": unique_text(links.unique) or UNSET,
        "then": [_name(item) for item in _then_decoder.decode(links.then)] if links.then else UNSET,
    }


def _name(item: Mapping[str, Raw]) -> str:
    return str(msgspec.msgpack.decode(item["name"]))
