"""Sentences about requests that no plan meets, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.presentation.sentences.formats import Words


def _by_counting(*, fitting: int, candidates: int, rules: Sequence[str], ruled_out: Sequence[int]) -> str:
    parts = "; ".join(f"{rule!r} rules out {count:,}" for rule, count in zip(rules, ruled_out, strict=True))
    return (
        f"No placement keeps every rule: {fitting:,} of {candidates:,} legal candidates fit into memory, and none "
        f"of them can keep what workload.placement asks ({parts} candidates, by counting places)."
    )


def _survival_needs(*, labels: Sequence[str], losses: Sequence[int], by_replicas: bool) -> str:
    asked = ", ".join(f"{label}: {count}" for label, count in zip(labels, losses, strict=True))
    needs = "unsharded state, and replicas in several places"
    if not by_replicas:
        needs = "every part of the state on two nodes or more"
    return f"Under workload.survive ({asked}) a plan needs {needs}."


REASONS: Final[Mapping[str, Words]] = {
    "no_legal_degrees": "No combination of degrees obeys all rules: the pinned and forbidden degrees, a global "
    "batch of {global_batch} sequences and the GPUs allowed leave none.",
    "nothing_fits": "None of {candidates:,} legal candidates fits into memory; the closest ({degrees}, micro-batch "
    "{micro_batch}, recompute {recompute}, sharding {sharding}) misses by {missing_bytes:gib} per GPU.",
    "rules_by_counting": _by_counting,
    "rules_search_ended": "The search ended before it found a placement that keeps every rule of "
    "workload.placement.",
    "rules_not_found": "No placement was found that keeps every rule of workload.placement; that there is none is "
    "not proven.",
    "rules_proven_impossible": "No placement keeps every rule of workload.placement: for each candidate that fits "
    "into memory an integer program proved that there is none.",
    "survival_needs": _survival_needs,
}

REMEDIES: Final[Mapping[str, Words]] = {
    "allow_recomputation": "Allow full recomputation.",
    "shard_optimizer": "Allow optimizer sharding (distributed optimizer, ZeRO-1).",
    "shard_parameters": "Allow parameter sharding (ZeRO-3, FSDP).",
    "offload_optimizer": "Allow offloading optimizer states to the nodes' memory (offload: [none, optimizer]).",
    "unpin": "Do not pin {degree} to {size}.",
    "allow_degrees": "Do not forbid degrees.",
    "allow_gpus": "Allow more than {gpus} GPUs.",
    "allow_power": "Allow more than {watts:g} W.",
    "use_avoided_nodes": "Use the avoided nodes too.",
    "lower_headroom": "Lower the memory head-room from {headroom:percent} to {least:percent}.",
    "more_nodes": "Use about {nodes} such nodes instead of {present}.",
    "nothing_simple_fits": "Nothing simple helps: use GPUs with more memory, a smaller model or a shorter "
    "sequence.",
    "allow_time": "Allow more time.",
    "ask_for_less": "Ask for less: fewer places, a wider label, fewer spares, or fewer rules at once.",
    "weaken_rule": "Ask only to {rule}.",
    "drop_rule": "Do not ask to {rule}.",
    "drop_spares": "Do not ask for {spares}.",
    "require_no_nodes": "Do not require nodes.",
    "survive_less": "Survive less: sharded state fits, and memory_checkpoint with survive: {{node: 1}} allows it.",
}

REFUSALS: Final[Mapping[str, Words]] = {**REASONS, **REMEDIES}
