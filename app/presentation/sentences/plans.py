"""Sentences about plans: warnings, how sure a prediction is, limits of a proof, why alternatives lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.presentation.differences import difference_words
from app.presentation.figures import seconds
from app.presentation.sentences.formats import Words
from cluster_models.training.workload import Sharding
from cluster_models.wording import named

SIZES: Final = {
    "gpus": "Number of GPUs",
    "hidden": "Hidden size",
    "sequence_length": "Sequence length",
    "tensor": "Tensor parallel size",
    "pipeline": "Pipeline parallel size",
    "context": "Context parallel size",
    "expert": "Expert parallel size",
    "micro_batch": "Micro-batch",
    "precision": "Precision",
    "sharding": "Sharding",
    "recompute": "Recomputation",
}
"""Sizes and settings of which it is known what runs had."""


def _unmeasured_framework(*, framework: str, like: str) -> str:
    taken = f"those of {like}, which its user says it is like" if like else "estimated"
    return f"No measured run of {framework} was fitted: its parameters are {taken}."


def _uncalibrated_size(*, size: str, value: int, low: int, high: int) -> str:
    limits = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{SIZES[size]} is {value:,}, and {limits} in the runs behind the interval."


def _uncalibrated_setting(*, setting: str, value: str, calibrated: Sequence[str]) -> str:
    return f"{SIZES[setting]} is {value}, and {' or '.join(calibrated)} in the runs behind the interval."


def _step_interval(
    *,
    level: float,
    step_low_s: float,
    step_high_s: float,
    runs: int,
    independent_runs: float,
    family: str,
    basis: str,
    is_widened: bool,
) -> str:
    worth = f", worth {independent_runs:.0f} independent ones" if independent_runs > 0 else ""
    errors = {
        "own_runs": f"own runs, worth {runs} independent ones{family.removeprefix('own runs')}",
        "new": f"{runs} measured runs{worth}, each predicted as if of {family}",
        "alike": f"{runs} measured runs{worth}, of {family}, each predicted by a fit that had not seen any like it",
    }[basis]
    wider = " The range is widened because this plan is unlike all of them." if is_widened else ""
    return (
        f"Times are predicted, not measured: {100 * level:.0f} % of measured steps are expected between "
        f"{step_low_s:#.3g} and {step_high_s:#.3g} s, from the errors on {errors}.{wider}"
    )


def _calibration_lacks(*, calibration: str, gpu_kinds: Sequence[str], framework: str, like: str) -> str:
    missing = " or ".join((*gpu_kinds, *([framework] if framework else [])))
    shipped = f", of {framework} those of {like}" if like else ""
    return f"The calibration {calibration} has no parameter of {missing}: those are as shipped{shipped}."


def _calibrated_otherwise(
    *, calibration: str, framework: str, settings: Sequence[str], calibrated: Sequence[str], here: Sequence[str]
) -> str:
    changed = "; ".join(
        f"{name} {was}, here {now}" for name, was, now in zip(settings, calibrated, here, strict=True)
    )
    return f"The calibration {calibration} was fitted to runs of {framework} with {changed}."


def _untrained_parts(*, parts: Sequence[str]) -> str:
    names = " and ".join(parts).replace("_", " ")
    return f"Times of {names} come from published timings of kernels, or are estimated: no training run was fitted."


def _scores_in_memory(
    *, framework: str, gpu_kind: str, forward_s: float, backward_s: float, unfused_matrices: float
) -> str:
    text = (
        f"{framework} does not fuse attention on {gpu_kind}: {seconds(forward_s)} of the forward and "
        f"{seconds(backward_s)} of the backward pass of a layer and micro-batch are scores on their way through "
        "memory, counted as compute."
    )
    if not unfused_matrices:
        return text
    return (
        f"{text} Nor is softmax fused, for {unfused_matrices:.0f} score matrices (micro-batch x heads / tensor "
        "ranks) are not a multiple of 4; if they were, less than a quarter of this would be left."
    )


def _single_copy(*, sharding: str, rule: str) -> str:
    everything = sharding == Sharding.PARAMETERS
    state = "weights, gradients and optimizer state" if everything else "optimizer state"
    return (
        f"Sharding {sharding} leaves a single copy of the {state}: with {rule} a lost place still takes "
        f"{'them' if everything else 'it'} along."
    )


def _nominal_uplinks(*, switches: Sequence[str]) -> str:
    return f"The uplinks of {named(switches)} are nominal figures: measured ones are usually lower."


def _worse_balanced(*, planned: Sequence[str], workload: str, imbalance: float, planned_imbalance: float) -> str:
    return (
        f"Experts are placed for {' and '.join(planned)}: under {workload} the slowest expert rank carries "
        f"{imbalance:.2f} times the mean, {100 * planned_imbalance / imbalance:.0f} % of the balance planned for."
    )


def _slower(*, share: float, more_s: float, parts: Sequence[str], parts_more_s: Sequence[float]) -> str:
    return f"{100 * share:.2f} % slower {difference_words(more_s, parts, parts_more_s)}."


def _faster(*, share: float, more_s: float, parts: Sequence[str], parts_more_s: Sequence[float]) -> str:
    return f"{100 * share:.2f} % faster {difference_words(more_s, parts, parts_more_s)}."


def _faster_but_worse(*, share: float, more_s: float, parts: Sequence[str], parts_more_s: Sequence[float]) -> str:
    difference = difference_words(more_s, parts, parts_more_s)
    return f"{100 * share:.2f} % faster per step but worse by the objective {difference}."


def _memory_options(*, mixes: int, some_layers: bool, only_where_needed: bool) -> str:
    parts = [f"{mixes} mix{'es' * (mixes > 1)} of recomputation for all layers alike"] * (mixes > 0)
    parts += ["full recomputation of the first layers of each chunk, any number of them"] * some_layers
    if not parts:
        return "nothing is recomputed"
    needed = " where it does not fit without" if only_where_needed else ""
    return f"each candidate has the quickest that fits of {' and '.join(parts)}{needed}"


def _repeated_tests(*, repeats: int, same_class: bool, agree: bool) -> str:
    where = "on links of the same class" if same_class else "on other links of the cluster"
    return f"{repeats} repeated tests {where}{', which agree' if agree else ''}"


OUTSIDE: Final[Mapping[str, Words]] = {
    "unmeasured_gpu_kind": "No measured run on {gpu_kind} was fitted: its parameters are estimated.",
    "unmeasured_framework": _unmeasured_framework,
    "unmeasured_pair": "No measured run of {framework} on {gpu_kind} was fitted, only of each with others.",
    "uncalibrated_size": _uncalibrated_size,
    "uncalibrated_setting": _uncalibrated_setting,
    "uncalibrated_mix": "Stages on several GPU kinds ({gpu_kinds:list}) were not calibrated, only each kind by "
    "itself.",
    "unmeasured_overheads": "The step is {ratio:.1f} times as far from its matrix products as usual, by overheads "
    "of the framework that no run told: the interval reaches higher for it.",
}
"""In what a plan is unlike anything measured."""

WARNINGS: Final[Mapping[str, Words]] = {
    "step_interval": _step_interval,
    "calibration_lacks": _calibration_lacks,
    "calibrated_otherwise": _calibrated_otherwise,
    "untrained_parts": _untrained_parts,
    "mixed_documents": "No training run with documents of mixed lengths was fitted: their attention is priced by "
    "the pairs that attend. The slowest data rank takes {imbalance:.2f} times the mean of them, its pipeline's "
    "waits included; {padding:percent1} of the tokens are padding.",
    "experts_not_grouped": "{framework} runs the experts of a GPU one after the other; they are priced as one "
    "grouped product, which holds where each has many thousand tokens: a measured step took 25 times as long.",
    "scores_in_memory": _scores_in_memory,
    "unmeasured_adapters": "No training run with adapters ({adapters}) was fitted: their products, and what frozen "
    "weights leave out, are priced by the formulas of other products.",
    "unmeasured_zeroth_order": "No step of zeroth-order training was fitted, and random numbers are priced by "
    "their bytes alone: steps of small batches may take longer than said, beyond the interval.",
    "estimated_host": "Each {gpu_kind} counts {memory_bytes:gib} of its node's memory, {memory_bytes_per_s:gbytes} "
    "of its bandwidth and a link of {link_bytes_per_s:gbytes}; what nodes do not state under host is estimated "
    "({source}).",
    "host_too_small": "It does not fit: stage {stage} offloads {needs_bytes:gib} per GPU and its node has room for "
    "{limit_bytes:gib}.",
    "disks_too_small": "It does not fit: stage {stage} keeps {needs_bytes:gib} per GPU on disks and its node has "
    "room for {limit_bytes:gib}.",
    "unverified_data_sheet": "The data sheet figures of {gpu_kind} are not verified ({source}).",
    "estimated_rate": "The share of its peak that {gpu_kind} reaches is estimated ({source}).",
    "estimated_collectives": "Tensor parallel communication of {ranks} {gpu_kind} is estimated from measurements "
    "of other group sizes, collectives or GPU kinds.",
    "kinds_left_out": "Nodes with {left_out:list} are left out: the plan uses {used:and}.",
    "too_large": "It does not fit: stage {stage} needs {needs_bytes:gib} per GPU and its limit is "
    "{limit_bytes:gib}.",
    "rule_not_kept": "It does not {rule}, as the workload asks.",
    "single_copy": _single_copy,
    "shared_uplinks": "Sharing the uplinks of switches takes {share:percent1} of the step; the bound of the proof "
    "leaves them out, so that the gap may not close.",
    "nominal_uplinks": _nominal_uplinks,
    "experts_reordered": "Experts leave their natural order: the step time holds for a checkpoint permuted as the "
    "exports say; with experts in contiguous blocks the same plan would take {contiguous_step_s:.3g} s a step "
    "instead of {step_s:.3g} s.",
    "layers_not_counted": "{layers} of {of} layers with experts were not counted: they keep their order and are "
    "taken at the calibrated imbalance.",
    "worse_balanced_workload": _worse_balanced,
    "draft": "The search was ended by force: this is the best plan that it had told of, without alternatives.",
    "micro_batches_rerouted": "Micro-batches of {job} are re-routed around lost ranks.",
}

LIMITS: Final[Mapping[str, Words]] = {
    "limit_power_caps": "all GPUs have one power cap, of these: {caps}",
    "limit_rules_kept": "plans keep the rules of workload.placement",
    "limit_layers_filled": "layers are spread over stages as {framework} fills them",
    "limit_layers_by_rule": "layers are spread over stages by rule, at least one to each",
    "limit_memory_options": _memory_options,
    "limit_equal_hosts": "plans take as many GPUs of each host, or a part of a single one that divides it",
    "limit_tensor_inside": "tensor groups lie inside a node or NVLink domain",
    "limit_sharded_without_pipeline": "sharded gradients and parameters come without a pipeline",
    "limit_sharding_groups": "parameters are sharded over all data ranks, or in groups of the most that share a "
    "node or NVLink domain",
    "limit_optimizer_groups": "optimizer states are shared out over all data ranks, or in groups of the most that "
    "share a node or NVLink domain, unless a size is pinned",
    "limit_offload": "of the optimizer states the least share is offloaded with which what runs again fits, and "
    "full recomputation is limited to the fewest layers that fit without",
    "limit_offloaded_layers": "activations are offloaded where a plan has one pipeline rank and does not fit with "
    "nothing run again, of the fewest layers with which it does",
    "limit_no_context": "there are no context ranks, because the model's attention lets none pass keys and values "
    "round a ring; context_exchange may allow {exchanges:list}",
    "limit_head_ranks": "in a hierarchical exchange as many context ranks exchange heads as share a node or NVLink "
    "domain and the heads",
    "limit_settings": "{framework} runs with {free:list} as the plan chose, with all else as the workload says",
    "limit_schedules": "pipelines run by schedules {schedules:list}",
    "limit_schedule_length": "a replica runs at most {events:n} forwards and backwards a step",
    "limit_expert_cuts": "experts are cut no further than the ranks they lie on ask for",
    "limit_widest_units": "each candidate lies in the widest units of an NVLink domain that it fills, joined by "
    "health",
    "limit_unit_widths": "units in a domain of more than {nodes} nodes have a divisor or a power of two of nodes",
    "limit_mixes": "mixes of GPU kinds have at most {kinds}, whose faster GPUs take as many stages as they can",
    "limit_mixes_not_v_shaped": "mixes of GPU kinds run no V-shaped schedule",
    "limit_no_virtual_stages": "{framework} has no virtual stages",
    "limit_groups_sized": "virtual stages come with at least as many micro-batches as pipeline ranks, in groups of "
    "as many, or of the fewest that the framework takes where ranks do not divide them",
    "limit_groups_equal": "virtual stages come with equal groups of at least as many micro-batches as pipeline "
    "ranks",
    "limit_groups_whole": "virtual stages come with whole groups of as many micro-batches as pipeline ranks",
}
"""Clauses on the space that a certificate covers."""

BASES: Final[Mapping[str, Words]] = {
    "configuration_given": "The configuration was given, not searched for; another placement of it can be at most "
    "{gap:percent2} better.",
    "job_stays": "The job stays as it was planned.",
    "lost_part_placed": "The lost part was placed; other ranks moved only where that pays.",
    "replicas_stay": "The replicas that are left stay where they are as far as they can.",
    "rerouted_step_simulated": "The step of re-routed micro-batches was simulated; there was no search.",
}
"""Origins of configurations that nothing was searched for."""

LOSSES: Final[Mapping[str, Words]] = {
    "as_fast": "As fast as the plan.",
    "slower": _slower,
    "faster": _faster,
    "faster_but_worse": _faster_but_worse,
    "does_not_fit": "Does not fit: stage {stage} needs {needs_bytes:gib} of {limit_bytes:gib} (at best "
    "{bound_s:.2f} s a step).",
}
"""Why an alternative is not the plan."""

DRIFT: Final[Mapping[str, Words]] = {
    "drift_no_traffic": "the plan sends nothing between nodes",
    "drift_inside_domains": "what the plan sends stays inside NVLink domains",
    "drift_published": "published for other clusters; too few tests were repeated on this one",
    "drift_repeated_tests": _repeated_tests,
}
"""Origins of the spread of links."""

PLANS: Final[Mapping[str, Words]] = {**OUTSIDE, **WARNINGS, **LIMITS, **BASES, **LOSSES, **DRIFT}
