"""Parameters that several addresses share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel

from app.conditional_requests import ANY_TAG, tags_in
from app.resources import Service, service_of
from app.services.idempotency import fingerprint
from app.services.pagination import MAX_LIMIT
from app.services.preconditions import ExpectedTags, ExpectedVersions
from cluster_models.errors import InvalidInput

_Answer = TypeVar("_Answer", bound=BaseModel)

_VERSION: Final = re.compile(r'"\d{1,18}"')


async def _service(request: Request) -> Service:
    """``service_of``, without a thread of its own."""
    return service_of(request)


ServiceDep = Annotated[Service, Depends(_service)]

ClusterPath = Annotated[
    str, Path(alias="cluster", description="Name or id of the cluster.", examples=["h100-17-nodes"], max_length=200)
]
NodePath = Annotated[str, Path(alias="node", description="Name of the node.", examples=["cnode2-001"])]
ModelPath = Annotated[str, Path(alias="model", description="Name of the model.", examples=["llama-3-70b"])]
CalibrationPath = Annotated[
    str, Path(alias="calibration", description="Name of the calibration.", examples=["our-h100"], max_length=200)
]
RoutingPath = Annotated[
    str,
    Path(description="Name of the routing statistics.", examples=["deepseek-r1"], max_length=200),
]
PlanPath = Annotated[str, Path(alias="plan", description="Id of the plan.", examples=["0f4d2c8e6b7a4c55"])]
PortfolioPath = Annotated[
    str, Path(alias="portfolio", description="Id of the portfolio.", examples=["0f4d2c8e6b7a4c55"])
]
JobPath = Annotated[
    str, Path(alias="job", description="Name or id of the job.", max_length=200, examples=["pretrain-a"])
]
RunningPlanPath = Annotated[
    str, Path(alias="running_plan", description="Id of the running plan.", examples=["0f4d2c8e6b7a4c55"])
]
ReplanPath = Annotated[str, Path(alias="replan", description="Id of the replan.", examples=["0f4d2c8e6b7a4c55"])]
SweepPath = Annotated[str, Path(alias="sweep", description="Id of the sweep.", examples=["0f4d2c8e6b7a4c55"])]
WebhookPath = Annotated[str, Path(alias="webhook", description="Id of the webhook.", examples=["0f4d2c8e6b7a4c55"])]
SnapshotPath = Annotated[
    str, Path(alias="snapshot", description="Id of the snapshot.", examples=["7f6d1c0f9a3b2e45"])
]

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Entries of a page at most.", examples=[50])]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="Where the page begins: next_cursor of the page before.")
]

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="A repeated request with the same key and body finds what the first one made, for a week; "
        "with another body it is refused.",
        examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
    ),
]

_IfMatch = Annotated[
    str | None,
    Header(
        description="ETag of what was read, or several; when the thing is another by now, the answer is 412.",
        examples=['"3"'],
        json_schema_extra={"pattern": r'^\s*(\*|(W/)?"[!#-~]*"(\s*,\s*(W/)?"[!#-~]*")*)\s*$'},
    ),
]


async def _expected_tags(if_match: _IfMatch = None) -> ExpectedTags:
    """The tags of which the thing must have one to be changed; ``None`` where any will do.

    Weak ones are equal to none here (RFC 9110, section 13.1.1).
    """
    tags = (ANY_TAG,) if if_match is None else tags_in(if_match)
    if tags is None:
        raise InvalidInput("header.If-Match", if_match, "is not a list of ETags", 'send it as received: "3"')
    return None if ANY_TAG in tags else frozenset(tag for tag in tags if not tag.startswith("W/"))


ExpectedTag = Annotated[ExpectedTags, Depends(_expected_tags)]


async def _expected_versions(tags: ExpectedTag) -> ExpectedVersions:
    """The same for things whose ETag is their version; a tag that is not a version of ours matches nothing."""
    if tags is None:
        return None
    return frozenset(int(tag[1:-1]) for tag in tags if _VERSION.fullmatch(tag))


ExpectedVersion = Annotated[ExpectedVersions, Depends(_expected_versions)]


def describe(description: dict[str, Any]) -> None:
    """Say in a description that parameters which may be left out are never null, which no address holds."""
    for path in description["paths"].values():
        for parameter in (each for operation in path.values() for each in operation.get("parameters", ())):
            kinds = [kind for kind in parameter["schema"].pop("anyOf", ()) if kind != {"type": "null"}]
            parameter["schema"] |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}


def etag(version: int) -> str:
    """The ETag of a version."""
    return f'"{version}"'


def content_tag(answer: BaseModel) -> str:
    """The ETag of an answer that has no version: one for each content."""
    return f'"{fingerprint(answer.model_dump_json().encode())[:32]}"'


def tagged(response: Response, answer: _Answer) -> _Answer:
    """The answer as it is, with the ETag of its content as a header of the response."""
    response.headers["ETag"] = content_tag(answer)
    return answer
