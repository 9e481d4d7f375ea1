"""Rates of links and products for sparse layers: as given, of a measured cluster, or usual ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.experts.wanted import NodeTerms
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.links.model import effective_links
from cluster_models.model.architecture import Architecture
from cluster_models.units import GBIT, MIB
from solver.experts.dispatch import LayerRates, RouterRule, token_bytes
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice
from solver.experts.nodewise import usual_rates
from solver.experts.transitions import EVERY_CHANGE, ChangePrices

PRODUCTS, NVLINK = 0.5, 0.8
"""Shares of the data sheet that products of experts and dispatch reach, as in ``usual_rates``."""
_DISPATCHED_BYTES: Final = 8 * MIB
"""Bytes that a GPU sends to a node in one dispatch: hundreds of tokens of several KiB."""
USUAL_KIND: Final = "H100-SXM5-80GB"
_USUAL_ACTIVE, _FEW_EXPERTS, _FEW_ACTIVE = 8, 8, 2


@dataclass(frozen=True, slots=True)
class Given:
    """Router and links as a request gives them; ``None`` where it does not."""

    model: Architecture | None = None
    rule: RouterRule | None = None
    cluster: ClusterSnapshot | None = None
    between_gbit_per_s: float | None = None
    inside_gbit_per_s: float | None = None
    gpu: str | None = None
    tokens: float | None = None

    @property
    def says_something(self) -> bool:
        """Whether anything is known by which crossing nodes can be weighed."""
        known = (self.model, self.rule, self.cluster, self.between_gbit_per_s)
        return any(each is not None for each in known)


def terms_of(
    given: Given, layout: ExpertLayout, experts: int, choice: CopyChoice | None = None
) -> tuple[NodeTerms | None, tuple[str, ...]]:
    """Cost of crossing nodes, and a sentence for each assumption; ``None`` where nothing is known.

    ``choice``: which copy of an expert serves a token; ``None`` where either may.

    Raises ``InvalidInput`` where the model has other experts.
    """
    if given.model is not None:
        check_model(given.model, experts)
    idle = _choice_without_effect(choice) if layout.slots == experts else ()
    if layout.nodes == 1 or not given.says_something:
        return None, (*_unweighed(layout), *idle)
    rule, assumed = rule_of(given, experts)
    rates, known, words = rates_of(given)
    if not known:
        words = (*words, "a balance of 0.99 comes first, because the speed between nodes is not known")
    if layout.slots == experts:
        words = (*words, *idle)
    elif choice is None:
        words = (*words, "which copy of an expert serves a token was not said: the map guards against both choices")
    return NodeTerms(rule, rates, known, choice), (*assumed, *words)


def prices_of(given: Given, layout: ExpertLayout, experts: int) -> tuple[ChangePrices, tuple[str, ...]]:
    """Prices of a change of rank between layers, inside a node and between nodes, and the assumptions made.

    Raises ``InvalidInput`` where the model has other experts.
    """
    if given.model is not None:
        check_model(given.model, experts)
    if layout.nodes == 1:
        return EVERY_CHANGE, ()
    if not given.says_something:
        sentence = "a change of GPU between layers was taken to cost the same inside a node as between nodes"
        return EVERY_CHANGE, (f"{sentence}: nothing was said of the links",)
    rates, _, assumed = rates_of(given)
    between = 1.0 / rates.between_bytes_per_s
    told = tuple(sentence for sentence in assumed if "no model" not in sentence)
    return ChangePrices(min(1.0 / rates.inside_bytes_per_s, between), between), told


def rates_of(given: Given) -> tuple[LayerRates, bool, tuple[str, ...]]:
    """Rates of a layer, whether the speed between nodes is known, and a sentence for each thing assumed."""
    kind, assumed = kind_of(given)
    usual = usual_rates()
    measured = None if given.cluster is None else _of_cluster(given.cluster)
    rates = replace(
        usual, inside_bytes_per_s=kind.scale_up_bytes_per_s * NVLINK, tokens=given.tokens or usual.tokens
    )
    if given.model is not None and given.model.experts is not None:
        dispatch, combine = token_bytes(given.model.hidden)
        flops = 6 * given.model.hidden * given.model.experts.hidden
        seconds = flops / (_peak(kind) * PRODUCTS)
        rates = replace(rates, selection_s=seconds, dispatch_bytes=dispatch, combine_bytes=combine)
    else:
        assumed.append("no model given: experts and hidden size as in DeepSeek-V3")
    known_inside = _speed(given.inside_gbit_per_s, measured, 1)
    if known_inside is not None:
        rates = replace(rates, inside_bytes_per_s=known_inside)
    between = _speed(given.between_gbit_per_s, measured, 0)
    if between is None:
        speed = usual.between_bytes_per_s / GBIT
        assumed.append(f"no speed between nodes given: {speed:g} Gb/s per GPU")
    else:
        rates = replace(rates, between_bytes_per_s=between)
    return rates, between is not None, tuple(assumed)


def check_model(model: Architecture, experts: int) -> None:
    """Raise ``InvalidInput`` unless the model's layers have so many experts."""
    if model.experts is None:
        raise InvalidInput("model", model.name, "has no experts", "name the model that was recorded")
    if model.experts.count != experts:
        problem = f"has {model.experts.count} experts in a layer, the statistics {experts}"
        raise InvalidInput("model", model.name, problem, "name the model that was recorded")


def _unweighed(layout: ExpertLayout) -> tuple[str, ...]:
    if layout.nodes == 1:
        return ()
    sentence = "nodes were not weighed: nothing was said of the model, the router or the links between nodes"
    return (sentence,)


def _choice_without_effect(choice: CopyChoice | None) -> tuple[str, ...]:
    return () if choice is None else (f"the choice of copies, {choice}, changes nothing without copies",)


def rule_of(given: Given, experts: int) -> tuple[RouterRule, list[str]]:
    """The router's rule, and a sentence where it was assumed."""
    if given.rule is not None:
        return given.rule, []
    if given.model is not None and given.model.experts is not None:
        return RouterRule.of(given.model.experts), []
    rule = RouterRule(_USUAL_ACTIVE if experts > _FEW_EXPERTS else min(_FEW_ACTIVE, experts))
    return rule, [f"neither model nor router given: each token selects {rule.active} of all {experts} experts"]


def kind_of(given: Given) -> tuple[GpuKind, list[str]]:
    """The GPU kind that was given, or the slowest of a cluster, and a sentence where it was assumed."""
    if given.gpu is not None:
        return gpu_kind(given.gpu), []
    if given.cluster is not None:
        kinds = {node.gpu_kind for node in given.cluster.cluster.nodes if node.usable}
        if kinds:
            found = [given.cluster.cluster.gpu_kinds[kind] for kind in sorted(kinds)]
            return min(found, key=_peak), []
    return gpu_kind(USUAL_KIND), [f"no GPU kind given: {USUAL_KIND}"]


def _peak(kind: GpuKind) -> float:
    """FLOP/s of FP8, else of BF16, else of what the kind has."""
    for precision in (Precision.FP8, Precision.BF16):
        if precision in kind.peak_flops:
            return kind.peak_flops[precision]
    return max(kind.peak_flops.values())


def _speed(given_gbit_per_s: float | None, measured: tuple[float | None, float] | None, part: int) -> float | None:
    """Bytes per second as given, else as measured, else ``None``."""
    if given_gbit_per_s is not None:
        return given_gbit_per_s * GBIT
    return None if measured is None else measured[part]


def _of_cluster(snapshot: ClusterSnapshot) -> tuple[float | None, float]:
    """Bytes per second of a GPU between nodes, ``None`` with one node alone, and inside its node.

    Medians of the usable nodes, as measured or, where nothing was, as estimated, while all GPUs of a node send.
    """
    links = effective_links(snapshot)
    usable = [index for index, node in enumerate(snapshot.cluster.nodes) if node.usable]
    if not usable:
        raise InvalidInput("cluster", snapshot.cluster.name, "has no usable node", "give the speeds themselves")
    flows = max(snapshot.cluster.nodes[index].gpu_count for index in usable)
    speeds = links.bytes_per_s(_DISPATCHED_BYTES, flows)[np.ix_(usable, usable)]
    apart = speeds[~np.eye(len(usable), dtype=bool)]
    return (float(np.median(apart)) if apart.size else None), float(np.median(np.diagonal(speeds)))
