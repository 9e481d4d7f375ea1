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
_Flow = tuple[ProposedSample, WireFlow]


def doubts_across(
    facts: Sequence[Fact],
    nodes: Sequence[ProposedNode],
    samples: Sequence[ProposedSample],
    accepted: Collection[str],
) -> tuple[tuple[Finding, ...], tuple[ProposedSample, ...]]:
    """Doubts, and the samples left without those that are rejected and not ``accepted``."""
    by_name = {node.name: node for node in nodes}
    flows = [(one, flow) for one in samples if (flow := wire_flow(one.sample)) is not None]
    large = [(one, flow) for one, flow in flows if flow.message_bytes >= LARGE_BYTES]
    inside = [(one, flow) for one, flow in large if one.sample.source == one.sample.destination]
    between = [(one, flow) for one, flow in large if one.sample.source != one.sample.destination]
    slow = list(_fallbacks(between, by_name))
    dropped = {
        (one.sample.source, one.sample.destination, one.origin.file)
        for one, found in slow
        if found.key not in accepted
    }
    left = tuple(
        one
        for one in samples
        if not dropped
        or one.sample.status is SampleStatus.FAILED
        or (one.sample.source, one.sample.destination, one.origin.file) not in dropped
    )
    doubts = [found for _, found in slow]
    doubts += _nic_figures(inside, between)
    doubts += _links_missing(facts)
    doubts += _partial_wirings(facts)
    return tuple(doubts), left


def _fallbacks(
    flows: Sequence[_Flow], nodes: Mapping[str, ProposedNode]
) -> Iterator[tuple[ProposedSample, Finding]]:
    """Pairs of nodes whose best large transfer is a tenth of their cards' rate, or of another file's figure."""
    best: dict[tuple[str, str], dict[str, _Flow]] = {}
    for one, flow in flows:
        first, second, file = one.sample.source, one.sample.destination, one.origin.file
        of_pair = best.setdefault((first, second) if first < second else (second, first), {})
        if (known := of_pair.get(file)) is None or flow.bytes_per_s > known[1].bytes_per_s:
            of_pair[file] = (one, flow)
    for pair, of_pair in sorted(best.items()):
        for file, (one, flow) in sorted(of_pair.items()):
            nominal = _card_rate(nodes, pair, flow.flows)
            others = [rival.bytes_per_s for other, (_, rival) in of_pair.items() if other != file]
            bar = max(others if nominal is None else [nominal, *others], default=None)
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


def _nic_figures(inside: Sequence[_Flow], between: Sequence[_Flow]) -> Iterator[Finding]:
    """Figures inside a node that equal those between nodes: the transfer went out and in again."""
    rates_of: dict[tuple[object, ...], list[float]] = {}
    for one, flow in between if inside else ():
        rates_of.setdefault(_test(one.sample), []).append(flow.bytes_per_s)
    for one, flow in inside:
        rates = rates_of.get(_test(one.sample))
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
