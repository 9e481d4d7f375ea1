"""Names that the nodes of a stored cluster also go by, kept so that the next files need no answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from app.db.tables import NodeAliasRow
from app.documents.reading import FieldProblem, InvalidDocument, close_name
from app.services.clusters import clusters
from cluster_models.cluster.topology import Cluster
from readers.proposal.aliases import AliasTable, is_host, spellings


@dataclass(frozen=True, slots=True)
class StoredAlias:
    """``alias`` is another name of ``node``; ``kind`` a value of ``NameKind`` (facts)."""

    alias: str
    kind: str
    node: str


def read_aliases(session: Session, *, cluster_id: str) -> AliasTable:
    """The stored names of a cluster, to resolve those in files."""
    return table_of(_stored(session, cluster_id))


def list_aliases(session: Session, *, reference: str) -> tuple[StoredAlias, ...]:
    """The aliases of the nodes that a cluster has now, by node and name; raises ``NotFound``."""
    stored = clusters.get_cluster(session, reference=reference)
    return present(_stored(session, stored.id), stored.cluster)


def replace_aliases(session: Session, *, reference: str, aliases: Sequence[StoredAlias]) -> tuple[StoredAlias, ...]:
    """Store these aliases in place of all; the cluster keeps its version.

    Raises ``InvalidInput`` where a node is unknown, or a name is another's already.
    """
    row = clusters.lock(session, reference=reference, expected_version=None)
    cluster = clusters.get_cluster(session, reference=row.id).cluster
    if problems := list(_problems(aliases, cluster)):
        raise InvalidDocument(problems)
    session.execute(delete(NodeAliasRow).where(NodeAliasRow.cluster_id == row.id))
    _insert(session, row.id, aliases)
    return present(aliases, cluster)


def learn(session: Session, *, cluster_id: str, aliases: Iterable[StoredAlias], cluster: Cluster) -> int:
    """Add names that are new and that nothing contradicts; returns how many.

    The cluster's row must be locked.
    """
    taken = {alias.alias.casefold() for alias in _stored(session, cluster_id)}
    nodes = {node.name for node in cluster.nodes}
    taken |= {name.casefold() for name in nodes}
    owners: dict[str, set[str]] = {}
    for alias in (aliases := tuple(aliases)):
        owners.setdefault(alias.alias.casefold(), set()).add(alias.node)
    fresh = {
        key: alias
        for alias in aliases
        if (key := alias.alias.casefold()) not in taken
        and len(owners[key]) == 1
        and alias.node in nodes
        and is_host(alias.alias)
    }
    _insert(session, cluster_id, tuple(fresh.values()))
    return len(fresh)


def present(aliases: Iterable[StoredAlias], cluster: Cluster) -> tuple[StoredAlias, ...]:
    """Aliases of nodes that the cluster has, by node and name."""
    names = {node.name for node in cluster.nodes}
    return tuple(sorted((a for a in aliases if a.node in names), key=lambda alias: (alias.node, alias.alias)))


def table_of(aliases: Iterable[StoredAlias]) -> AliasTable:
    """The table; the first label of an FQDN stands for its node where it is no other's."""
    exact: dict[str, str] = {}
    short: dict[str, set[str]] = {}
    for alias in aliases:
        name, *others = spellings(alias.alias)
        exact.setdefault(name, alias.node)
        for spelling in others:
            short.setdefault(spelling, set()).add(alias.node)
    single = {spelling: min(nodes) for spelling, nodes in short.items() if len(nodes) == 1}
    return AliasTable(single | exact)


def _problems(aliases: Sequence[StoredAlias], cluster: Cluster) -> Iterator[FieldProblem]:
    nodes = [node.name for node in cluster.nodes]
    known, by_name = set(nodes), {name.casefold(): name for name in nodes}
    seen: dict[str, int] = {}
    for index, alias in enumerate(aliases):
        where, key = f"aliases[{index}]", alias.alias.casefold()
        if alias.node not in known:
            problem = "names a node that the cluster does not have"
            yield FieldProblem(f"{where}.node", alias.node, problem, close_name(alias.node, nodes))
        if not is_host(alias.alias):
            problem = "cannot be the name of one host"
            yield FieldProblem(f"{where}.alias", alias.alias, problem, "give a name of at most 200 characters")
        if by_name.get(key, alias.node) != alias.node:
            problem = f"is the name of the node {by_name[key]}"
            yield FieldProblem(f"{where}.alias", alias.alias, problem, "rename the node, or leave the alias out")
        if (first := seen.setdefault(key, index)) != index:
            problem = f"is given twice: aliases[{first}] has it, too"
            yield FieldProblem(f"{where}.alias", alias.alias, problem, "give each name once")


def _stored(session: Session, cluster_id: str) -> tuple[StoredAlias, ...]:
    columns = (NodeAliasRow.alias, NodeAliasRow.kind, NodeAliasRow.node)
    query = select(*columns).where(NodeAliasRow.cluster_id == cluster_id).order_by(NodeAliasRow.alias)
    return tuple(StoredAlias(*row) for row in session.execute(query))


def _insert(session: Session, cluster_id: str, aliases: Sequence[StoredAlias]) -> None:
    rows = [
        {"cluster_id": cluster_id, "alias": alias.alias, "kind": alias.kind, "node": alias.node}
        for alias in aliases
    ]
    if rows:
        session.execute(insert(NodeAliasRow), rows)
