"""Counts as two published studies save them: Fiddler's popularity, and AllenAI's counts of OLMoE by domain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from readers.frame.findings import Finding, note_in
from readers.frame.trees import items, mapping
from readers.routing.numbers import Rows, array_of, check_workloads, layer_numbers, rows_of, workload
from readers.routing.reading import RoutingContents, RoutingFormat, RoutingSource

_POPULARITY: Final = "expert_popularity"
_COUNTS: Final = "expert_counts"
_CROSSED: Final = "expert_counts_crosslayer"
_FIRST: Final = "expert_counts_top1"


def _popularity_fits(source: RoutingSource) -> bool:
    return _POPULARITY in mapping(source.tree)


def _read_popularity(source: RoutingSource) -> RoutingContents:
    """``total_input_tokens`` is not used: the counts hold generated tokens too."""
    rows = rows_of(source, _POPULARITY, source.tree[_POPULARITY])
    return RoutingContents((workload(source, source.stem, rows),), notices=rows.notices)


def _domains_fit(source: RoutingSource) -> bool:
    domains = mapping(mapping(source.tree).get("domains"))
    return any(_COUNTS in mapping(content) for content in domains.values())


def _read_domains(source: RoutingSource) -> RoutingContents:
    """One workload for each domain; a domain that cannot be used gets a notice unless none can."""
    workloads: list[RoutedWorkload] = []
    notices: list[Finding] = []
    errors: list[InvalidInput] = []
    check_workloads(source, len(source.tree["domains"]))
    for domain, content in source.tree["domains"].items():
        try:
            workloads.append(_of_domain(source, str(domain), mapping(content), notices))
        except InvalidInput as error:
            errors.append(error)
            place = error.field.removeprefix(f"{source.name}: ")
            notices.append(note_in("domain-left-out", source.name, place, error.problem, error.remedy))
    if not workloads:
        raise errors[0]
    return RoutingContents(tuple(workloads), notices=tuple(notices))


def _of_domain(
    source: RoutingSource, domain: str, content: Mapping[Any, Any], notices: list[Finding]
) -> RoutedWorkload:
    place = f"domains.{domain}"
    numbers = layer_numbers(source.tree.get("layers_counted"))
    rows = rows_of(source, f"{place}.{_COUNTS}", content.get(_COUNTS), numbers)
    notices.extend(rows.notices)
    transitions = _transitions(source, f"{place}.{_CROSSED}", content, rows, notices)
    first = array_of(content.get(_FIRST))
    whole = first is not None and first.ndim == 2 and np.isfinite(first).all()
    tokens = float(first[0].sum()) if whole and first is not None else None
    return workload(source, f"{source.stem}:{domain}", rows, tokens=tokens or None, transitions=transitions)


def _transitions(
    source: RoutingSource, place: str, content: Mapping[Any, Any], rows: Rows, notices: list[Finding]
) -> dict[int, Counts]:
    """The tables between layers that follow each other among those counted."""
    found: dict[int, Counts] = {}
    following: set[tuple[int, ...]] = set(pairwise(rows.layers))
    pairs = items(source.tree.get("layer_pairs"))
    for index, value in enumerate(items(content.get(_CROSSED))):
        pair = layer_numbers(pairs[index]) if index < len(pairs) else None
        table = array_of(value)
        experts = rows.counts.shape[1]
        if (
            pair is None
            or pair not in following
            or table is None
            or table.shape != (experts, experts)
            or not np.isfinite(table).all()
            or (table < 0).any()
        ):
            sentence = "is not a table of counts between two of the layers, one after the other"
            remedy = "name the layers in layer_pairs, and count every pair of experts"
            notices.append(note_in("transitions-left-out", source.name, f"{place}[{index}]", sentence, remedy))
            continue
        found[rows.layers.index(pair[0])] = table.astype(np.float64)
    if found:
        sentence = "pairs were matched by their rank in the router: one for each selection, not all pairs"
        notices.append(note_in("pairs-by-rank", source.name, place, sentence))
    return found


FORMATS: Final = (
    RoutingFormat("domains", "counts by domain (AllenAI's OLMoE analysis)", _domains_fit, _read_domains),
    RoutingFormat("popularity", "expert_popularity (Fiddler)", _popularity_fits, _read_popularity),
)
