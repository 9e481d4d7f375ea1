"""Serving cases as the arrays that the closed form takes: one entry, or thousands stacked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.model.architecture import Architecture
from cluster_models.serving.own_rates import FittedServing, OwnRates
from cluster_models.serving.workload import Pool, ServingConfiguration, ServingWorkload, Worker
from solver.experts.dispatch import RouterRule
from solver.serving.bunching import Bunching, bunching_of
from solver.serving.crossing import even_crossing
from solver.serving.expert_balance import routed_crossing, routed_imbalance
from solver.serving.loads import (
    FloatArray,
    Loads,
    WorkerLinks,
    loads_of,
    row_of,
    stack,
    with_adapters,
    with_cap,
)
from solver.serving.memory import WorkerMemory, worker_memory
from solver.serving.mixes import Kinds, Moments, kinds_of, mix_of, moments_of
from solver.serving.rates import Properties, Rates
from solver.serving.steady_state import Steady, Traffic, steady_state

CROSS_LATENCY_S: Final = 15e-6
"""Latency between nodes where nobody measured it; the shipped rates were fitted with it."""
_SPREADS: Final = (
    "chunks",
    "attention",
    "length_variance",
    "attention_variance",
    "covariance",
    "longest_of_two",
    "longest_of_eight",
)
MANY_REQUESTS: Final = 1e9
"""Requests in flight of an offline run: as many as the engine takes at once."""


@dataclass(frozen=True, slots=True)
class ServingCase:
    """A configuration under a load on GPUs of one kind.

    ``links`` join the GPUs of a worker; ``transfer_bytes_per_s`` is what one request's cache gets on its way
    between split workers.  ``client`` names how a measured load was made, empty for a user's own.  ``own``: rates
    of the engine from own measurements.  ``power_caps_watts``: caps of each GPU that prefills and of
    each that decodes, the same where one pool does both.
    """

    architecture: Architecture
    gpu: GpuKind
    links: WorkerLinks
    workload: ServingWorkload
    configuration: ServingConfiguration
    transfer_bytes_per_s: float = 25e9
    client: str = ""
    own: OwnRates | None = None
    power_caps_watts: tuple[float | None, float | None] = (None, None)

    @property
    def concurrency(self) -> float:
        """Requests in flight; those of a rate are found by ``solver.serving.predict``."""
        return MANY_REQUESTS if self.workload.concurrency is None else self.workload.concurrency

    @property
    def pair(self) -> str:
        """Engine generation and GPU kind, as calibrations name them."""
        return f"{self.workload.engine.name}@{self.gpu.name}"

    @property
    def fitted(self) -> FittedServing | None:
        """Own rates of the engine on these GPUs."""
        return None if self.own is None else self.own.by_gpu.get(self.gpu.name)

    @property
    def shifts(self) -> dict[str, float]:
        """Shifts of quantities by own rates, on their log or logit scale."""
        return {} if self.fitted is None else {name: math.log(each) for name, each in self.fitted.factors.items()}

    @property
    def properties(self) -> Properties:
        """Properties that set its rates."""
        workload, engine = self.workload, self.workload.engine
        attention = "latent" if self.architecture.latent_attention else "grouped"
        if self.architecture.sliding_window:
            attention += "-windowed"
        return {
            "gpu": self.gpu.name,
            "chip": _chip(self.gpu),
            "model": self.architecture.name,
            "engine": engine.name,
            "family": engine.family,
            "format": workload.weights.value,
            "attention": attention,
            "split": "split" if self.configuration.is_split else "",
            "client": self.client,
        }


def _chip(gpu: GpuKind) -> str:
    """Vendor and narrowest format of the tensor cores, which a generation of GPUs has in common."""
    narrowest = next(
        each
        for each in (Precision.NVFP4, Precision.FP8, Precision.BF16, Precision.FP16, Precision.FP32)
        if each in gpu.peak_flops
    )
    return f"{gpu.vendor} {narrowest}"


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays of n cases: all but their rates; ``kinds`` are those of requests to the first of them."""

    decode: Loads
    prefill: Loads
    traffic: Traffic
    decode_memory: WorkerMemory
    prefill_memory: WorkerMemory
    kinds: Kinds

    @property
    def fits(self) -> FloatArray:
        """1 where every pool holds at least one request, else 0."""
        return np.asarray(
            (self.decode_memory.most_sequences >= 1.0) & (self.prefill_memory.most_sequences >= 1.0), dtype=float
        )


def arrays_of(cases: Sequence[ServingCase]) -> Arrays:
    """The arrays of ``cases``."""
    decode = stack([_loads(case, case.configuration.decode, "decode") for case in cases])
    prefill = stack(
        [_loads(case, case.configuration.prefill or case.configuration.decode, "prefill") for case in cases]
    )
    lengths = _lengths(cases, prefill)
    decode_memory, prefill_memory = _memory(cases, decode, lengths), _memory(cases, prefill, lengths)
    limits = np.array(
        [
            float(case.workload.engine.most_sequences)
            * case.configuration.decode.worker.attention_data
            * case.configuration.decode.worker.pipeline
            for case in cases
        ]
    )
    traffic = _traffic(cases, decode, decode_memory, limits, lengths)
    kinds = kinds_of(cases[0].workload, row_of(prefill, 0))
    return Arrays(decode, prefill, traffic, decode_memory, prefill_memory, kinds)


def steady_of(arrays: Arrays, rates: Rates) -> Steady:
    """The steady state of every case."""
    return steady_state(arrays.decode, arrays.prefill, rates, arrays.traffic)


def imbalance_of(workload: ServingWorkload, worker: Worker, phase: str, *, split: bool) -> float | None:
    """Excess load of the busiest of many expert ranks in a phase: stated, or after counts; ``None``: as fitted."""
    if workload.routing is None:
        return workload.prefill_imbalance if phase == "prefill" else workload.decode_imbalance
    return routed_imbalance(workload.routing, phase, worker.expert, split=split)


def crossing_of(
    served: tuple[ServingWorkload, Architecture], worker: Worker, domain_gpus: int, phase: str, *, split: bool
) -> float:
    """Other domains that a token needs in a phase, after counts where there are some."""
    workload, architecture = served
    domains = -(-worker.stage_gpus // domain_gpus)
    if workload.routing is None or architecture.experts is None or domains == 1:
        return even_crossing(architecture.experts, domains, worker.expert)
    rule, gpus = RouterRule.of(architecture.experts), (worker.stage_gpus, domain_gpus)
    return routed_crossing(workload.routing, rule, phase, worker.expert, gpus, split=split)


def _loads(case: ServingCase, pool: Pool, phase: str) -> Loads:
    workload, worker, split = case.workload, pool.worker, case.configuration.is_split
    loads = loads_of(
        case.architecture,
        case.gpu,
        pool.worker,
        case.links,
        weights=case.workload.weights,
        attention_weights=case.workload.attention_format(case.architecture),
        cache_bytes=case.workload.cache_format.element_bytes,
        imbalance=imbalance_of(workload, worker, phase, split=split),
    )
    crossing = crossing_of((workload, case.architecture), worker, case.links.domain_gpus, phase, split=split)
    loads = replace(loads, crossing=np.array([crossing]))
    routing, ranks = workload.routing, worker.expert
    if routing is not None and ranks > 1:
        more = routing.slots(ranks) / routing.workloads[0].experts - 1.0
        stored = loads.stored_bytes + more * loads.expert_bytes * loads.largest_stage
        loads = replace(loads, stored_bytes=stored)
    loads = with_cap(loads, case.gpu, case.power_caps_watts[phase == "decode"])
    return with_adapters(loads, case.architecture, pool.worker.tensor, case.workload.adapters)


def _lengths(cases: Sequence[ServingCase], loads: Loads) -> dict[str, FloatArray]:
    """Columns of ``Moments``, each (n,); those of equal requests at once."""

    def column(values: Sequence[float]) -> FloatArray:
        return np.array([float(value) for value in values])

    inputs, outputs = (
        column([getattr(case.workload, f"{name}_tokens") for case in cases]) for name in ("input", "output")
    )
    new = np.maximum(column([case.workload.new_tokens for case in cases]), 1.0)
    held = inputs + outputs / 2.0
    found = {
        "new": new,
        "held": held,
        "windowed_held": np.minimum(held, loads.window),
        "windowed_input": np.minimum(inputs, loads.window),
        "longest": held.copy(),
        "chunks": np.maximum(1.0, np.ceil(new / column([case.workload.engine.chunk_tokens for case in cases]))),
        "attention": np.ones_like(inputs),
        **{name: np.zeros_like(inputs) for name in _SPREADS[2:]},
    }
    known: dict[tuple[int, int], Moments] = {}
    for row, case in enumerate(cases):
        if case.workload.is_mixed:
            key = id(case.workload), id(case.architecture)
            if key not in known:
                own = row_of(loads, row)
                known[key] = moments_of(mix_of(case.workload), own, float(case.workload.engine.chunk_tokens))
            for name in Moments.__slots__:
                found[name][row] = getattr(known[key], name)
    return found


def _bunching(cases: Sequence[ServingCase]) -> dict[str, FloatArray]:
    """Columns of ``Bunching``, each (n,)."""
    known: dict[int, Bunching] = {}
    for case in cases:
        if id(case.workload) not in known:
            known[id(case.workload)] = bunching_of(case.workload)
    each = [known[id(case.workload)] for case in cases]
    return {f"bunched_{name}": np.array([getattr(own, name) for own in each]) for name in Bunching.__slots__}


def _memory(cases: Sequence[ServingCase], loads: Loads, lengths: Mapping[str, FloatArray]) -> WorkerMemory:
    engines = [case.workload.engine for case in cases]
    longest = np.array([float(case.workload.longest_prompt) for case in cases])
    return worker_memory(
        loads,
        tokens=(lengths["held"], lengths["windowed_held"]),
        longest=lengths["longest"],
        step_tokens=np.minimum(longest, np.array([float(engine.chunk_tokens) for engine in engines])),
        reserved_bytes=np.array([engine.reserved_bytes for engine in engines]),
        memory_bytes=np.array([case.gpu.memory_bytes for case in cases]),
        fraction=np.array(
            [
                case.workload.memory_fraction or engine.memory_fraction
                for case, engine in zip(cases, engines, strict=True)
            ]
        ),
        fraction_of=[engine.fraction_of for engine in engines],
    )


def _traffic(
    cases: Sequence[ServingCase],
    decode: Loads,
    memory: WorkerMemory,
    limits: FloatArray,
    lengths: Mapping[str, FloatArray],
) -> Traffic:
    def column(values: Sequence[float]) -> FloatArray:
        return np.array([float(value) for value in values])

    inputs = column([case.workload.input_tokens for case in cases])
    speculations = [case.workload.speculation for case in cases]
    cache = inputs * decode.cache_full_bytes + lengths["windowed_input"] * decode.cache_window_bytes
    return Traffic(
        input_tokens=inputs,
        new_tokens=lengths["new"],
        held_tokens=lengths["held"],
        windowed_tokens=lengths["windowed_held"],
        **{name: lengths[name] for name in _SPREADS},
        **_bunching(cases),
        output_tokens=column([case.workload.output_tokens for case in cases]),
        concurrency=column([case.concurrency for case in cases]),
        chunk_tokens=column([case.workload.engine.chunk_tokens for case in cases]),
        held_steps=column(
            [0 if case.configuration.is_split else case.workload.engine.held_steps for case in cases]
        ),
        most_sequences=np.maximum(np.minimum(memory.most_sequences, limits), 1.0),
        drafts=column([each.draft_tokens if each else 0 for each in speculations]),
        yields=column([1.0 + each.accepted_tokens if each else 1.0 for each in speculations]),
        decode_workers=column([case.configuration.decode.replicas for case in cases]),
        prefill_workers=column(
            [(case.configuration.prefill or case.configuration.decode).replicas for case in cases]
        ),
        split=column([case.configuration.is_split for case in cases]),
        adapter_wait_s=column([_adapter_wait_s(case) for case in cases]),
        transfer_s=cache * decode.tensor / column([case.transfer_bytes_per_s for case in cases]),
    )


def _adapter_wait_s(case: ServingCase) -> float:
    """Mean seconds that a prompt waits for its adapter from the host, over the GPU's own link."""
    adapters, worker = case.workload.adapters, (case.configuration.prefill or case.configuration.decode).worker
    if adapters is None:
        return 0.0
    stage = math.ceil(case.architecture.layers / worker.pipeline) / case.architecture.layers
    moved = stage * adapters.gpu_bytes(case.architecture, worker.tensor)
    return adapters.missing_share * moved / case.gpu.host_share.link_bytes_per_s
