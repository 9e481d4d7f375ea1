"""A proposal as the documents that users write: what stores those checks and stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from app.documents.cluster import ClusterDocument
from app.documents.measurements import MOST_SAMPLES, MeasurementDocument, MeasurementsDocument
from app.documents.nodes import NodeDocument
from app.documents.reading import InvalidDocument, problems_of_validation, read_document
from app.documents.switches import SwitchDocument
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.errors import InvalidInput
from cluster_models.units import GBIT
from cluster_models.wording import named
from readers.proposal.values import EVERY_NODE, Proposal, ProposedNode

_LABEL: Final = "labels."


def cluster_document(proposal: Proposal, *, name: str, known: Cluster | None = None) -> ClusterDocument:
    """The cluster with what the proposal adds and changes; what it does not speak of stays as ``known`` has it.

    Raises ``InvalidDocument`` with everything that no document can hold.
    """
    stored = {} if known is None else {node.name: NodeDocument.from_value(node) for node in known.nodes}
    before = None if known is None else ClusterDocument.from_cluster(known)
    nodes = [_node(node, stored.get(node.name)) for node in proposal.nodes]
    switches = [] if before is None else [switch.model_dump() for switch in before.switches]
    named = {(switch["label"], switch["name"]) for switch in switches}
    switches += [
        SwitchDocument.from_value(switch).model_dump()
        for switch, _ in proposal.switches
        if (switch.label, switch.name) not in named
    ]
    content = {
        "name": name,
        "source": "" if before is None else before.source,
        "nodes": nodes,
        "gpu_kinds": [] if before is None else [kind.model_dump() for kind in before.gpu_kinds],
        "switches": switches,
    }
    return read_document(ClusterDocument, content, what="cluster")


def _node(node: ProposedNode, stored: NodeDocument | None) -> dict[str, Any]:
    content: dict[str, Any] = {"name": node.name} if stored is None else stored.model_dump()
    labels: dict[str, str] = dict(content.get("labels", {}))
    for field, said in node.fields.items():
        if field.startswith(_LABEL):
            labels[field.removeprefix(_LABEL)] = said.value
        elif isinstance(said.value, NicGroup):
            content[field] = _cards(said.value)
        elif field == "nics":
            raise InvalidInput(
                f"nodes.{node.name}.nics", said.value, "cannot be read", 'write "8 x 400 infiniband"'
            )
        else:
            content[field] = said.value
    return {**content, "labels": labels}


def _cards(nics: NicGroup) -> dict[str, Any]:
    """The cards as ``NicsDocument`` has them; its limits are for the document's check to say."""
    return {"count": nics.count, "rate_gbits_per_s": nics.bytes_per_s / GBIT, "fabric": nics.fabric}


def measurements_document(proposal: Proposal) -> MeasurementsDocument:
    """All samples of the proposal; raises ``InvalidDocument`` with what no document can hold."""
    return _document_of(one.sample for one in proposal.samples)


def check_measurements(proposal: Proposal) -> None:
    """Raise what ``measurements_document`` raises, at the price of one sample for each run and size.

    ``Sample`` checks figures, and the cluster's document the names of nodes; all else is alike in a run.
    """
    if len(proposal.samples) > MOST_SAMPLES:
        measurements_document(proposal)
    samples = (one.sample for one in proposal.samples)
    alike = {(one.tool, one.ranks_per_node, one.pairs_active, one.message_bytes): one for one in samples}
    _document_of(alike.values())


def _document_of(samples: Iterable[Sample]) -> MeasurementsDocument:
    try:
        return MeasurementsDocument(samples=[MeasurementDocument.from_value(sample) for sample in samples])
    except ValidationError as error:
        raise InvalidDocument(problems_of_validation(error.errors(include_url=False), what="samples")) from error


def node_changes(proposal: Proposal, known: Cluster | None) -> tuple[str, ...]:
    """One sentence for each thing about the nodes that storing would change."""
    stored = {} if known is None else {node.name: node for node in known.nodes}
    sentences = []
    for node in proposal.nodes:
        before = stored.get(node.name)
        if before is None:
            sentences.append(f"Node {node.name} is new.")
            continue
        for field, said in node.fields.items():
            old = _old(before.labels, field) if field.startswith(_LABEL) else getattr(before, field, None)
            if old != said.value:
                sentences.append(f"{node.name}.{field}: {shown(old)} becomes {shown(said.value)}.")
    sentences += [_passed_over(field, names, stored) for field, names in proposal.passed_over.items()]
    return tuple(sentences)


def _passed_over(field: str, names: Sequence[str], stored: Mapping[str, Node]) -> str:
    """Sentence about stored nodes that keep their value although an answer gives new nodes another."""
    kept = dict.fromkeys(shown(getattr(stored[name], field, None)) for name in names if name in stored)
    value = f" {next(iter(kept))}" if len(kept) == 1 and not field.startswith(_LABEL) else " what is stored"
    answer = f"{EVERY_NODE}.{field}"
    return (
        f"{answer} is for nodes of which nothing is stored: {named(names, 3)} "
        f"{'keeps' if len(names) == 1 else 'keep'}{value}; to change that, answer {names[0]}.{field}."
    )


def _old(labels: Mapping[str, str], field: str) -> str | None:
    return labels.get(field.removeprefix(_LABEL))


def shown(value: object) -> str:
    """A field's value as people write it."""
    if isinstance(value, NicGroup):
        return f"{value.count} x {value.bytes_per_s / GBIT:g} Gb/s {value.fabric}"
    return "nothing" if value is None else str(value)
