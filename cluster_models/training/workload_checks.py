"""Checks, field by field, that a framework can do what a workload asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.training.adapters import FrozenFormat
from cluster_models.training.framework_choices import FreeSetting, ShardedExchange
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.packing import MOST_IN_SEQUENCE
from cluster_models.training.run_settings import has_instances, switches

if TYPE_CHECKING:
    from cluster_models.training.workload import TrainingWorkload


def check_choices(workload: TrainingWorkload) -> None:
    """Raise ``InvalidWorkload`` where the framework has not what is asked for, or choices contradict each other."""
    _check_lengths(workload)
    _check_method(workload)
    _check_adapters(workload)
    _check_optimizer(workload)
    _check_settings(workload)


def _check_lengths(workload: TrainingWorkload) -> None:
    """Documents fill sequences as the framework can, of a length that holds not too many."""
    if workload.lengths is None:
        return
    if workload.lengths.packing not in workload.framework.packings:
        raise InvalidWorkload(
            "workload.lengths.packing",
            str(workload.lengths.packing),
            f"{workload.framework.name} does not fill sequences so, with documents that attend to themselves alone",
            f"it knows {', '.join(workload.framework.packings)}; docs/frameworks.md lists the packings of others",
        )
    if workload.one_a_micro_batch and workload.pinned.get("micro_batch", 1) > 1:
        raise InvalidWorkload(
            "workload.pinned.micro_batch",
            workload.pinned["micro_batch"],
            f"{workload.framework.name} takes packed sequences one a micro-batch",
            "pin 1 or nothing, and make sequence_length longer",
        )
    if workload.sequence_length > MOST_IN_SEQUENCE * workload.lengths.mean:
        raise InvalidWorkload(
            "workload.lengths.tokens",
            round(workload.lengths.mean, 1),
            f"documents of so many tokens in the mean would fill {workload.sequence_length} by the thousand, "
            f"{MOST_IN_SEQUENCE} at most",
            "shorten sequence_length, or join short documents first",
        )


def _check_method(workload: TrainingWorkload) -> None:
    """The framework trains so; roles go with the method; pairs fill batches."""
    if workload.method not in workload.framework.methods:
        raise InvalidWorkload(
            "workload.method",
            str(workload.method),
            f"{workload.framework.name} does not train so",
            f"it knows {', '.join(workload.framework.methods)}; docs/frameworks.md lists the methods of others",
        )
    stays = all(str(each) == "none" for each in workload.offload)
    workload.roles.check(workload.method, goes=workload.adapters is None and stays)
    if not workload.method.is_paired:
        return
    pairs = "two for each pair"
    if workload.global_batch % 2:
        raise InvalidWorkload("workload.global_batch", workload.global_batch, f"must count sequences, {pairs}")
    if workload.lengths is not None and workload.lengths.packing.joins:
        raise InvalidWorkload(
            "workload.lengths.packing",
            str(workload.lengths.packing),
            f"is planned for single documents only, {workload.method} compares pairs of sequences",
            "use padded or longest",
        )
    if workload.pinned.get("micro_batch", 2) % 2:
        raise InvalidWorkload(
            "workload.pinned.micro_batch", workload.pinned["micro_batch"], f"must count sequences, {pairs}"
        )


def _check_adapters(workload: TrainingWorkload) -> None:
    """The framework trains adapters beside weights in their format."""
    if (adapters := workload.adapters) is None:
        return
    known, frozen = workload.framework.adapters, adapters.frozen_weights
    if not known:
        raise InvalidWorkload(
            "workload.adapters",
            adapters.words,
            f"{workload.framework.name} trains no adapters",
            "leave them out, or use a framework that does; docs/frameworks.md says how each describes it",
        )
    if frozen not in known:
        raise InvalidWorkload(
            "workload.adapters.frozen_weights",
            str(frozen),
            f"{workload.framework.name} does not keep them so beside adapters",
            f"use {' or '.join(known)}",
        )
    if frozen is FrozenFormat.NF4 and workload.precision not in {Precision.BF16, Precision.FP16}:
        raise InvalidWorkload(
            "workload.adapters.frozen_weights",
            str(frozen),
            f"is widened to 16 bits for products, which training in {workload.precision} has not",
            "use bf16 or fp16 as precision, or unquantised",
        )


def _check_optimizer(workload: TrainingWorkload) -> None:
    """The framework trains with the optimizer, beside this precision."""
    known = workload.framework.optimizers
    if workload.optimizer not in known:
        raise InvalidWorkload(
            "workload.optimizer",
            str(workload.optimizer),
            f"{workload.framework.name} does not train with it",
            f"use {', '.join(known)}; docs/frameworks.md lists the optimizers of others",
        )
    if workload.optimizer.takes_matrices and (
        workload.adapters is not None or workload.precision is Precision.FP16
    ):
        raise InvalidWorkload(
            "workload.optimizer", str(workload.optimizer), "goes neither with adapters nor with fp16", "use adam"
        )
    if not workload.optimizer.runs_backward:
        _check_forward_alone(workload)


def _check_forward_alone(workload: TrainingWorkload) -> None:
    """Nothing is asked for that needs gradients, or that is not planned without them."""
    pinned, forbidden = workload.pinned.get("pipeline", 1), workload.forbidden.get("pipeline", ())
    tokens, precisions = workload.framework.stream_tokens, {Precision.BF16, Precision.FP16}
    for name, given, goes, remedy in (
        ("method", str(workload.method), workload.method is TrainingMethod.LIKELIHOOD, "use next_token"),
        ("adapters", "adapters", workload.adapters is None, "leave them out"),
        ("precision", str(workload.precision), workload.precision in precisions, "use bf16 or fp16"),
        ("recompute", list(map(str, workload.recompute)), "none" in workload.recompute, "allow none"),
        ("sharding", list(map(str, workload.sharding)), "none" in workload.sharding, "allow none"),
        ("pinned.pipeline", pinned, pinned == 1, "pin 1 or nothing"),
        ("forbidden.pipeline", list(forbidden), 1 not in forbidden, "allow 1"),
        ("framework_settings.stream_tokens", tokens, not tokens, "use 0"),
    ):
        if not goes:
            problem = f"is not planned for optimizer {workload.optimizer}, which runs forward alone"
            raise InvalidWorkload(f"workload.{name}", given, problem, f"{remedy}, or use another optimizer")


def _check_settings(workload: TrainingWorkload) -> None:
    """The framework has the switches of what is left free, and quantises what is asked for."""
    quantised = workload.framework.sharded_exchange
    if quantised is not ShardedExchange.PLAIN and not workload.framework.quantized_exchange:
        remedy = "use plain, or a framework with quantized_exchange"
        problem = f"{workload.framework.name} does not quantise what sharded parameters exchange"
        raise InvalidWorkload("workload.framework_settings.sharded_exchange", str(quantised), problem, remedy)
    if quantised is not ShardedExchange.PLAIN and workload.adapters is not None:
        problem = "is not planned beside adapters"
        raise InvalidWorkload("workload.framework_settings.sharded_exchange", str(quantised), problem, "use plain")
    if workload.framework.stream_tokens and not workload.framework.streams_layers:
        problem = f"{workload.framework.name} runs no layers by chunks of a sequence"
        given, remedy = workload.framework.stream_tokens, "use 0, or a framework with streams_layers"
        raise InvalidWorkload("workload.framework_settings.stream_tokens", given, problem, remedy)
    known = [*switches(workload.framework), *[FreeSetting.SHARDING_RANKS] * has_instances(workload.framework)]
    if lacking := [str(each) for each in workload.free_settings if each not in known]:
        names = ", ".join(known)
        raise InvalidWorkload(
            "workload.free_settings",
            lacking,
            f"{workload.framework.name} leaves no choice there",
            f"it has {names}" if names else "leave it empty, or plan for a framework that has switches",
        )
