"""Whether a model, its requests, the engine and the degrees of workers go together."""

from __future__ import annotations

import math

from cluster_models.errors import InvalidConfiguration, InvalidInput, InvalidModel, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import loads_of_model
from cluster_models.serving.engines import ServingEngine
from cluster_models.serving.workload import ServingConfiguration, ServingWorkload, Worker


def check_serving(
    architecture: Architecture, workload: ServingWorkload, configuration: ServingConfiguration
) -> None:
    """Raise ``InvalidWorkload`` or ``InvalidConfiguration`` where model, engine and degrees do not go together."""
    unpriced = sorted(architecture.parts) + ["window_heads"] * (architecture.window_heads is not None)
    if unpriced:
        raise InvalidModel(
            "model",
            architecture.name,
            f"has {', '.join(unpriced).replace('_', ' ')}, whose serving is not priced",
            "its training is planned; serve a model of plain attention and experts",
        )
    engine = workload.engine
    _check_context(architecture, workload)
    if workload.weights not in engine.weight_formats:
        raise InvalidWorkload(
            "workload.weights",
            workload.weights.value,
            f"{engine.name} does not serve this format",
            f"use one of {', '.join(engine.weight_formats)}",
        )
    if configuration.is_split and not engine.splits:
        raise InvalidConfiguration(
            "prefill", str(configuration.prefill), f"{engine.name} cannot split prefill from decode", "leave it out"
        )
    if workload.speculation is not None and not engine.speculates:
        raise InvalidWorkload(
            "workload.speculation",
            workload.speculation.draft_tokens,
            f"{engine.name} has no speculative decoding",
            "leave it out",
        )
    _check_experts(architecture, workload)
    if workload.adapters is not None:
        _check_adapters(architecture, engine)
    for pool, field in ((configuration.prefill, "prefill"), (configuration.decode, "decode")):
        if pool is not None:
            _check_worker(architecture, engine, pool.worker, field if configuration.is_split else "worker")


def _check_experts(architecture: Architecture, workload: ServingWorkload) -> None:
    """Raise ``InvalidWorkload`` where counts, or what is said of experts, are not of this model's."""
    for name in ("prefill_imbalance", "decode_imbalance"):
        if architecture.experts is None and (value := getattr(workload, name)) is not None:
            raise InvalidWorkload(f"workload.{name}", value, f"{architecture.name} has no experts", "leave it out")
    if workload.routing is None:
        return
    try:
        loads_of_model(architecture, workload.routing.workloads)
    except InvalidInput as error:
        raise InvalidWorkload(f"workload.{error.field}", error.value, error.problem, error.remedy) from error


def _check_adapters(architecture: Architecture, engine: ServingEngine) -> None:
    """Raise ``InvalidWorkload`` where the engine has no adapters or nobody says what they cost beside the model."""
    if not engine.has_adapters:
        remedy = "leave them out, or serve with vLLM (0.6 and later) or SGLang"
        raise InvalidWorkload("workload.adapters", engine.name, "no adapters are planned for this engine", remedy)
    if architecture.experts is not None or architecture.latent_attention is not None:
        problem = "adapters beside routed experts or latent attention are not priced"
        remedy = "leave them out, or merge them into the weights"
        raise InvalidWorkload("workload.adapters", architecture.name, problem, remedy)


def _check_context(architecture: Architecture, workload: ServingWorkload) -> None:
    """Raise ``InvalidWorkload`` where requests are longer than the model's context."""
    most = architecture.max_sequence or math.inf
    takes = f"{architecture.name} takes {most:.0f}"
    for index, each in enumerate(workload.classes):
        if each.longest > most:
            problem = f"the longest prompt and answer of {each.name} together are {each.longest:.0f}, {takes}"
            field = f"workload.classes[{index}].input_tokens"
            raise InvalidWorkload(field, each.inputs.tokens[-1], problem, "lower input_tokens or output_tokens")
    trace = workload.trace
    pairs = () if trace is None else zip(trace.input_tokens, trace.output_tokens, strict=True)
    for row, (prompt, answer) in enumerate(pairs, start=1):
        if prompt + answer > most:
            problem = f"row {row}: input and output tokens together are {prompt + answer}, {takes}"
            raise InvalidWorkload(
                "workload.trace", prompt, problem, "leave it out, or take a model of longer context"
            )
    total = workload.input_tokens + workload.output_tokens
    if total > most:
        problem = f"input and output tokens together are {total:.0f}, {takes}"
        remedy = "lower input_tokens or output_tokens"
        raise InvalidWorkload("workload.input_tokens", workload.input_tokens, problem, remedy)


def _check_worker(architecture: Architecture, engine: ServingEngine, worker: Worker, field: str) -> None:
    if architecture.heads % worker.tensor:
        raise InvalidConfiguration(
            f"{field}.tensor", worker.tensor, f"must divide the {architecture.heads} attention heads"
        )
    if worker.pipeline > architecture.layers:
        raise InvalidConfiguration(
            f"{field}.pipeline", worker.pipeline, f"must be at most the {architecture.layers} layers"
        )
    experts = architecture.experts
    for name in ("expert", "attention_data"):
        if getattr(worker, name) > 1 and experts is None:
            remedy = "set it to 1; copies of a dense model are replicas"
            raise InvalidConfiguration(
                f"{field}.{name}", getattr(worker, name), f"{architecture.name} has no experts", remedy
            )
        if getattr(worker, name) > 1 and not getattr(engine, f"has_{name}"):
            raise InvalidConfiguration(
                f"{field}.{name}", getattr(worker, name), f"{engine.name} cannot do this", "set it to 1"
            )
    if experts is not None and experts.count % worker.expert:
        raise InvalidConfiguration(f"{field}.expert", worker.expert, f"must divide the {experts.count} experts")
