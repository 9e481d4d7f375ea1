"""Other names of a cluster's nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ExpectedTag, ServiceDep, content_tag, tagged
from app.db.engine import transaction
from app.documents.long_lists import long_list
from app.documents.reading import Document, Text
from app.services.clusters import aliases, clusters
from app.services.clusters.aliases import StoredAlias
from app.services.preconditions import check_tag
from readers.frame.facts import NameKind

MOST_ALIASES = 50_000

router = APIRouter(tags=["clusters"], route_class=BodyRoute)


class AliasDocument(Document):
    """Another name of a node."""

    alias: Text = Field(description="The name, as files write it.", examples=["n1.cluster.example"])
    kind: NameKind = Field(NameKind.HOST, description="Which naming it belongs to.", examples=["fqdn"])
    node: Text = Field(description="Name of the node.", examples=["n1"])


class AliasesDocument(Document):
    """All other names of a cluster's nodes."""

    aliases: Annotated[list[AliasDocument], Field(max_length=MOST_ALIASES), long_list(MOST_ALIASES)] = Field(
        description="Each name once."
    )


class AliasesAnswer(BaseModel):
    """All other names of a cluster's nodes."""

    aliases: list[AliasDocument] = Field(description="By node and name.")

    @classmethod
    def make(cls, stored: tuple[StoredAlias, ...]) -> AliasesAnswer:
        """The answer for stored names."""
        return cls(
            aliases=[
                AliasDocument.model_construct(alias=each.alias, kind=NameKind(each.kind), node=each.node)
                for each in stored
            ]
        )


@router.get("/clusters/{cluster}/aliases")
def list_aliases(cluster: ClusterPath, service: ServiceDep, response: Response) -> AliasesAnswer:
    """Host names, instance ids, addresses and the like by which files speak of the nodes; imports learn them."""
    with service.read_sessions() as session:
        return tagged(response, AliasesAnswer.make(aliases.list_aliases(session, reference=cluster)))


@router.put("/clusters/{cluster}/aliases")
def replace_aliases(
    cluster: ClusterPath,
    document: AliasesDocument,
    service: ServiceDep,
    response: Response,
    expected: ExpectedTag,
) -> AliasesAnswer:
    """Store these names in place of all; they are not part of the cluster, whose version stays."""
    wanted = [StoredAlias(each.alias, each.kind.value, each.node) for each in document.aliases]
    with transaction(service.sessions) as session:
        clusters.lock(session, reference=cluster, expected_version=None)
        before = AliasesAnswer.make(aliases.list_aliases(session, reference=cluster))
        check_tag("aliases of", cluster, expected=expected, current=content_tag(before))
        stored = aliases.replace_aliases(session, reference=cluster, aliases=wanted)
    return tagged(response, AliasesAnswer.make(stored))
