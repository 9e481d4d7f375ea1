"""The page of a stored cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.cluster import CLASS_COLUMNS, ClusterFigures, ClusterReport, NodeRow, cluster_report, node_row
from app.presentation.figures import capital, data_bytes
from app.presentation.links import SlowLinkRow, by_place, offered_flows, offered_sizes
from app.services.clusters.aliases import StoredAlias
from app.web.clusters.bandwidth import COLOURS, MOST_NODES, Colour, HeatMap, MapChoice, heat_map
from app.web.clusters.leaf_map import leaf_map
from app.web.clusters.link_curve import LinkCurve, link_curve
from app.web.clusters.node_groups import NodeGroup, node_groups
from app.web.drawing import Drawing
from cluster_models.cluster.topology import Cluster, Node, NodeState
from cluster_models.wording import named

_MOST_NAMES: Final = 6
MOST_SLOW: Final = 20
"""Links that stand out listed at first."""
_MOODS = {NodeState.READY: "good", NodeState.FAILED: "bad"}


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One line of the table of nodes; ``mood`` colours the state."""

    row: NodeRow
    aliases: str
    mood: str

    def matches(self, words: str) -> bool:
        """Whether all ``words`` occur in the line, whatever their case."""
        row = self.row
        line = f"{row.name} {self.aliases} {row.state} {row.gpus} {row.labels}".casefold()
        return all(word in line for word in words.casefold().split())


@dataclass(frozen=True, slots=True)
class MapForm:
    """Choices of the heat map with what is chosen; ``places`` are groups of nodes where not all fit."""

    flows: tuple[int, ...]
    sizes: tuple[tuple[str, str], ...]
    colours: tuple[tuple[str, str], ...]
    places: tuple[str, ...]
    chosen: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """A cluster as words, tables and drawings: the ``map`` of its nodes, in large ones the ``leaf_map`` of groups.

    ``nodes`` are those that ``searched`` names, ``MOST_NODES`` of them at most; ``more_nodes`` counts the others.
    """

    name: str
    report: ClusterReport
    class_columns: tuple[str, ...]
    form: MapForm
    leaf_map: Drawing | None
    map: HeatMap | None
    slow: tuple[SlowLinkRow, ...]
    more_slow: int
    curve: LinkCurve | None
    nodes: tuple[NodeLine, ...]
    more_nodes: int
    searched: str
    is_large: bool


def cluster_page(
    figures: ClusterFigures,
    *,
    version: int,
    aliases: Sequence[StoredAlias] = (),
    now: Cluster | None = None,
    query: Mapping[str, str] | None = None,
) -> ClusterPage:
    """The page of a cluster with the measurements known now; ``aliases`` are other names of its nodes.

    ``now`` has the nodes as failures left them, where that differs; ``query`` chooses what the drawings show, and
    what it has that cannot be is left out.
    """
    cluster, query = figures.snapshot.cluster, query or {}
    nodes = cluster.nodes if now is None else now.nodes
    groups = node_groups(cluster, by_place(cluster))
    is_large = len(cluster.nodes) > MOST_NODES
    choice = _choice(figures, query)
    chosen = {"flows": str(choice.flows), "size": f"{choice.message_bytes:.0f}", "colour": str(choice.colour)}
    slow = {(link.source, link.destination) for link in figures.slow}
    rows, columns = _sides(groups, query, is_large=is_large)
    report = cluster_report(figures, nodes=nodes, version=version)
    most = len(report.slow) if query.get("slow") == "all" else MOST_SLOW
    names: dict[str, list[str]] = {}
    for alias in aliases:
        names.setdefault(alias.node, []).append(alias.alias)
    searched = query.get("node", "").strip()
    matching = [line for node in nodes if (line := _line(node, names.get(node.name, ()))).matches(searched)]
    matching.sort(key=lambda line: line.mood == "good")
    source, _, destination = query.get("link", "").partition(">")
    return ClusterPage(
        name=cluster.name,
        report=report,
        class_columns=tuple(map(capital, CLASS_COLUMNS)),
        form=_form(figures, choice, groups if is_large else (), chosen | _named_sides(query)),
        leaf_map=leaf_map(figures.links, choice, groups, slow, chosen, figures.rates) if is_large else None,
        map=heat_map(figures.links, choice, rows, columns, measured=figures.rates, slow=slow, address="")
        if rows and columns
        else None,
        slow=report.slow[:most],
        more_slow=max(0, len(report.slow) - most),
        curve=link_curve(figures.links, figures.rates, figures.snapshot.samples, source, destination),
        nodes=tuple(matching[:MOST_NODES]),
        more_nodes=max(0, len(matching) - MOST_NODES),
        searched=searched,
        is_large=is_large,
    )


def _choice(figures: ClusterFigures, query: Mapping[str, str]) -> MapChoice:
    usual = figures.flows
    choice = MapChoice(usual)
    flows = next((each for each in offered_flows(figures.links, usual) if str(each) == query.get("flows")), usual)
    sizes = {f"{size:.0f}": size for size in offered_sizes(figures.links)}
    colour = query.get("colour", "")
    return MapChoice(
        flows,
        sizes.get(query.get("size", ""), choice.message_bytes),
        Colour(colour) if colour in set(Colour) else choice.colour,
    )


def _form(
    figures: ClusterFigures, choice: MapChoice, groups: Sequence[NodeGroup], chosen: Mapping[str, str]
) -> MapForm:
    return MapForm(
        flows=offered_flows(figures.links, choice.flows),
        sizes=tuple((f"{size:.0f}", data_bytes(size)) for size in offered_sizes(figures.links)),
        colours=tuple((str(colour), words) for colour, words in COLOURS.items()),
        places=tuple(group.name for group in groups),
        chosen=chosen,
    )


def _named_sides(query: Mapping[str, str]) -> dict[str, str]:
    return {side: query.get(side, "") for side in ("rows", "columns")}


def _sides(
    groups: Sequence[NodeGroup], query: Mapping[str, str], *, is_large: bool
) -> tuple[Sequence[int], Sequence[int]]:
    """Nodes that send and nodes that receive in the map: all of a small cluster, of a large one those asked for."""
    if not is_large:
        every = [position for group in groups for position in group.members]
        return every, every
    members = {group.name: group.members for group in groups}
    rows = members.get(query.get("rows", ""), ())
    return rows, members.get(query.get("columns", ""), rows)


def leaves(cluster: Cluster) -> dict[str, str]:
    """The leaf switch of every node that has one."""
    return {node.name: node.labels["leaf"] for node in cluster.nodes if "leaf" in node.labels}


def _line(node: Node, names: Sequence[str]) -> NodeLine:
    return NodeLine(node_row(node), named(names, _MOST_NAMES), _MOODS.get(node.state, "warn"))
