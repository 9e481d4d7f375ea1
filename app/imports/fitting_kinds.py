"""Node kinds of the catalogue with the GPUs that files show."""

from __future__ import annotations

from typing import Final

from app.imports.report_answers import ImportAnswer
from app.imports.unused_answers import PRODUCT
from cluster_models.cluster.catalogue import NodeKind, node_kinds

_SEEN: Final = "gpus-seen"
"""Code of the doubt that only a test tells the GPUs of a node."""


def shows_gpus(answer: ImportAnswer) -> bool:
    """Whether files say anything of the kind or number of GPUs."""
    return any({"gpu_kind", "gpu_count"} & node.fields.keys() for node in answer.nodes) or _names_others(answer)


def fitting_kinds(answer: ImportAnswer, *, or_larger: bool = False) -> tuple[NodeKind, ...]:
    """The kinds with as many GPUs of the kind that files show of all nodes, in the order of the catalogue.

    ``or_larger``: also those with more GPUs than took part in tests, where nothing but a test tells their number.
    """
    if _names_others(answer):
        return ()
    kinds, counts = _said(answer, "gpu_kind"), _said(answer, "gpu_count")
    seen = or_larger and any(doubt.code == _SEEN for doubt in answer.doubts)
    fitting = [
        sold
        for sold in node_kinds().values()
        if kinds <= set(sold.gpu_kinds)
        and (not counts or counts == {str(sold.gpu_count)} or (seen and max(map(int, counts)) < sold.gpu_count))
    ]
    return tuple(sorted(fitting, key=lambda sold: str(sold.gpu_count) not in counts))


def _names_others(answer: ImportAnswer) -> bool:
    """Whether some file names a GPU product that the catalogue does not have."""
    return any(question.key.startswith(PRODUCT) for question in answer.questions)


def _said(answer: ImportAnswer, field: str) -> set[str]:
    """The values that files give to all nodes; numbers that are none are left to the check of the cluster."""
    values = {said.value for node in answer.nodes if (said := node.fields.get(field)) is not None}
    return values if field == "gpu_kind" else {value for value in values if value.isascii() and value.isdigit()}
