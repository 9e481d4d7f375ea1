"""Blocks of schedulers as NVLink domains, where the GPUs of their nodes can form such a domain.

Slurm means blocks for nodes that NVLink joins; OCI and others write parts of the RDMA network there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cluster_models.cluster.catalogue import node_kinds
from cluster_models.wording import named
from readers.frame.findings import Finding, note
from readers.proposal.claims import BLOCK, Claim, answered, believed
from readers.proposal.values import Answers, Notes

_DOMAIN: Final = "nvlink_domain"
_MOST_NAMES: Final = 3

Claims = Mapping[str, dict[str, list[Claim]]]
"""By node and field."""


def keep_nvlink_blocks(claims: Claims, answers: Answers, notes: Notes) -> None:
    """Drop claims of blocks that are not NVLink domains, or of nodes whose domain a ClusterUUID tells."""
    blocks: dict[tuple[str, str], list[Claim]] = {}
    for fields in claims.values():
        said = fields.pop(_DOMAIN, [])
        told = [claim for claim in said if claim.weight != BLOCK]
        if told:
            fields[_DOMAIN] = told
        if not any(claim.weight > BLOCK for claim in told):
            for claim in said:
                if claim.weight == BLOCK:
                    blocks.setdefault((claim.origin.file, claim.value), []).append(claim)
    labels: dict[tuple[str, str], list[Claim]] = {}
    for (file, _), members in blocks.items():
        if why := _why_none(members, claims, answers):
            labels.setdefault((file, why), []).append(members[0])
        else:
            for claim in members:
                claims[claim.node].setdefault(_DOMAIN, []).append(claim)
    for (_, why), firsts in labels.items():
        notes.doubts.append(_doubt(firsts, why))


def _why_none(members: Sequence[Claim], claims: Claims, answers: Answers) -> str:
    """Why NVLink cannot be taken to join the nodes of a block; empty where it can."""
    sizes: dict[str, int] = {}
    gpus = 0
    for claim in members:
        kind, largest, count = _gpus(claim.node, claims[claim.node], answers)
        sizes[kind] = largest
        gpus += count
    if "" in sizes:
        return "no file says the GPU kind of all their nodes"
    if inside := [kind for kind, largest in sizes.items() if not largest]:
        return f"NVLink of {inside[0]} ends with the node"
    if len(sizes) > 1:
        return f"their nodes have GPUs of several kinds: {', '.join(sizes)}"
    if gpus > (largest := min(sizes.values())):
        return f"{gpus} GPUs are more than the {largest} that NVLink joins"
    return ""


def _gpus(node: str, fields: Mapping[str, list[Claim]], answers: Answers) -> tuple[str, int, int]:
    """GPU kind of a node, the GPUs of the largest domain over several nodes that it is sold in, its own GPUs."""
    unnoted = Notes()
    said = {
        field: believed(fields[field], answers, unnoted) for field in ("gpu_kind", "gpu_count") if field in fields
    }
    said |= answered(node, said, answers)
    known = {field: said[field].value for field in ("gpu_kind", "gpu_count", "node_kind") if field in said}
    kinds = node_kinds()
    sold = kinds.get(known.get("node_kind", ""))
    kind = known.get("gpu_kind") or (sold.gpu_kinds[0] if sold is not None else "")
    domains = [
        each.scale_up_domain_gpus
        for each in kinds.values()
        if kind in each.gpu_kinds and each.scale_up_domain_gpus > each.gpu_count
    ]
    count = known.get("gpu_count") or (sold.gpu_count if sold is not None else 0)
    return kind, max(domains, default=0), count if isinstance(count, int) else 0


def _doubt(firsts: Sequence[Claim], why: str) -> Finding:
    names = named([claim.value for claim in firsts], _MOST_NAMES)
    what = f"{len(firsts)} blocks ({names}) are labels, not NVLink domains"
    if len(firsts) == 1:
        what = f"block {names} is a label, not an NVLink domain"
    first = min((claim.origin for claim in firsts), key=lambda origin: origin.first_line)
    remedy = "send the ClusterUUID and clique id of each host (nvidia-smi -q) if NVLink joins them"
    return note("block-is-label", first, f"{what}: {why}", remedy)
