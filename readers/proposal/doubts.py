"""Findings across files: a fallback to TCP, a network's figure given for NVLink."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.cluster.topology import NicGroup
from cluster_models.links.wire_flows import LARGE_BYTES, WireFlow, wire_flow
from cluster_models.units import GBYTE
from readers.frame.facts import Fact, JointKind, WiringFact
from readers.frame.findings import Finding, doubt, note, reject
from readers.proposal.values import ProposedNode, ProposedSample

FALLBACK_RATIO: Final = 10.0
"""Published fallbacks to TCP are 14 to 25 times slower than the fabric (docs/links.md, section on suspicions)."""
_SAME: Final = 0.03
"""Within this share two figures are those of one link."""
_NO_CARD: Final = 200 * GBYTE
"""Twice what the fastest cards carry (800 Gb/s): such figures between nodes are those of one NVLink domain."""
_HALF: Final = 0.6


def doubts_across(
    facts: Sequence[Fact],
    nodes: Sequence[ProposedNode],
    samples: Sequence[ProposedSample],
    accepted: Collection[str],
) -> tuple[tuple[Finding, ...], tuple[ProposedSample, ...]]:
    """Doubts, and the samples left without those that are rejected and not ``accepted``."""
    by_name = {node.name: node for node in nodes}
    flows = [(one, flow) for one in samples if (flow := wire_flow(one.sample)) is not None]
    slow = list(_fallbacks(flows, by_name))
    dropped = {
        (one.sample.source, one.sample.destination, one.origin.file)
        for one, found in slow
        if found.key not in accepted
    }
    left = tuple(
        one
        for one in samples
        if one.sample.status is SampleStatus.FAILED
        or (one.sample.source, one.sample.destination, one.origin.file) not in dropped
    )
    doubts = [found for _, found in slow]
    doubts += _nic_figures(flows)
    doubts += _links_missing(facts)
    doubts += _partial_wirings(facts)
    return tuple(doubts), left


def _fallbacks(
    flows: Sequence[tuple[ProposedSample, WireFlow]], nodes: Mapping[str, ProposedNode]
) -> Iterator[tuple[ProposedSample, Finding]]:
    """Pairs of nodes whose best large transfer is a tenth of their cards' rate, or of another file's figure."""
    best: dict[tuple[str, str, str], tuple[ProposedSample, WireFlow]] = {}
    for one, flow in flows:
        ends = (one.sample.source, one.sample.destination)
        if ends[0] == ends[1] or flow.message_bytes < LARGE_BYTES:
            continue
        key = (min(ends), max(ends), one.origin.file)
        if key not in best or flow.bytes_per_s > best[key][1].bytes_per_s:
            best[key] = (one, flow)
    by_pair: dict[tuple[str, str], dict[str, float]] = {}
    for (first, second, file), (_, flow) in best.items():
        by_pair.setdefault((first, second), {})[file] = flow.bytes_per_s
    for (first, second, file), (one, flow) in sorted(best.items()):
        others = [rate for other, rate in by_pair[first, second].items() if other != file]
        nominal = _card_rate(nodes, (first, second), flow.flows)
        bar = max([rate for rate in (nominal, *others) if rate is not None], default=None)
        if bar is not None and flow.bytes_per_s * FALLBACK_RATIO <= bar:
            yield one, _fallback(one, flow, bar, by_data_sheet=bar == nominal)


def _fallback(one: ProposedSample, flow: WireFlow, bar: float, *, by_data_sheet: bool) -> Finding:
    against = "the network cards could carry" if by_data_sheet else "another file has for the same pair"
    sentence = (
        f"{one.sample.source} and {one.sample.destination} reach {flow.bytes_per_s / GBYTE:.3g} GB/s per flow,"
        f" {bar / flow.bytes_per_s:.0f} times less than {against} ({bar / GBYTE:.3g} GB/s): the transfer has"
        " probably fallen back to TCP without a word."
    )
    remedy = "check NCCL_DEBUG=INFO for NET/Socket and measure again, or accept the figures"
    return reject("tcp-fallback", one.origin, sentence, remedy)


def _card_rate(nodes: Mapping[str, ProposedNode], ends: tuple[str, str], flows: int) -> float | None:
    """Rate that one of ``flows`` flows can get of the cards; ``None`` in one scale-up domain or without cards."""
    rates: list[float] = []
    domains = [nodes[end].fields.get("nvlink_domain") for end in ends if end in nodes]
    if (
        len(domains) == 2
        and domains[0] is not None
        and domains[1] is not None
        and domains[0].value == domains[1].value
    ):
        return None
    for end in ends:
        said = nodes[end].fields.get("nics") if end in nodes else None
        if said is None or not isinstance(said.value, NicGroup):
            return None
        rates.append(min(said.value.bytes_per_s, said.value.count * said.value.bytes_per_s / flows))
    return min(rates)


def _nic_figures(flows: Sequence[tuple[ProposedSample, WireFlow]]) -> Iterator[Finding]:
    """Figures inside a node that equal those between nodes: the transfer went out and in again."""
    large = [(one, flow) for one, flow in flows if flow.message_bytes >= LARGE_BYTES]
    between: dict[tuple[object, ...], list[float]] = {}
    for one, flow in large:
        if one.sample.source != one.sample.destination:
            between.setdefault(_test(one.sample), []).append(flow.bytes_per_s)
    for one, flow in large:
        if one.sample.source != one.sample.destination:
            continue
        rates = between.get(_test(one.sample))
        if rates and flow.bytes_per_s < _NO_CARD and abs(flow.bytes_per_s / median(rates) - 1) <= _SAME:
            sentence = (
                f"inside {one.sample.source} {flow.bytes_per_s / GBYTE:.4g} GB/s were measured, as much as between"
                " nodes: the transfer may have gone over the network card and not over NVLink."
            )
            yield doubt("nic-figure-for-nvlink", one.origin, sentence, "run nvbandwidth")


def _test(sample: Sample) -> tuple[object, ...]:
    """Fields that samples of one test share."""
    return sample.tool, sample.collective, sample.message_bytes, sample.ranks_per_node


def _links_missing(facts: Sequence[Fact]) -> Iterator[Finding]:
    """Hosts of one kind whose GPUs have far fewer links than those of the others."""
    wired = [(fact, links) for fact in facts if isinstance(fact, WiringFact) and (links := _links(fact))]
    most: dict[tuple[str, ...], int] = {}
    for fact, links in wired:
        key = (str(fact.expected_gpus), *sorted(set(fact.gpu_products)))
        most[key] = max(most.get(key, 0), links)
    for fact, links in wired:
        top = most[(str(fact.expected_gpus), *sorted(set(fact.gpu_products)))]
        if links <= _HALF * top:
            sentence = (
                f"the GPUs of {fact.host or fact.origin.file} have {links} links to a neighbour where those of an"
                f" equal node have {top}: part of NVLink is missing."
            )
            remedy = "look at nvidia-smi nvlink -s on that node"
            yield doubt("links-missing", fact.origin, sentence, remedy)


def _partial_wirings(facts: Sequence[Fact]) -> Iterator[Finding]:
    """Tables of which rows are missing, and how many pairs of GPUs the others still draw."""
    for fact in facts:
        if isinstance(fact, WiringFact) and fact.partial:
            gpus = set(fact.gpus)
            drawn = len({frozenset((j.first, j.second)) for j in fact.joints if {j.first, j.second} <= gpus})
            sentence = f"rows are missing: {drawn} of {len(gpus) * (len(gpus) - 1) // 2} pairs of GPUs are drawn"
            yield note("partial", fact.origin, sentence, "send the whole output")


def _links(fact: WiringFact) -> int:
    joints = [
        joint.links for joint in fact.joints if joint.kind in {JointKind.NVLINK, JointKind.XGMI} and joint.links
    ]
    return max(joints, default=0)
