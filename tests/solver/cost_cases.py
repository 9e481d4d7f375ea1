"""Models, GPUs and candidates that the cost model's tests share; sizes are the models' published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES, CandidateBatch, IntArray
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.memory import StageMemoryParts, stage_memory
from solver.costs.step_costs import StepCosts, step_costs

H100 = gpu_kind("H100-SXM5-80GB")
LLAMA_70B = Architecture(
    name="llama-3-70b",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_size=128,
    mlp_hidden=28672,
    vocabulary=128256,
    gated_mlp=True,
    tied_embeddings=False,
)
MIXTRAL = Architecture(
    name="mixtral-8x7b",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_size=128,
    mlp_hidden=0,
    vocabulary=32000,
    gated_mlp=True,
    tied_embeddings=False,
    experts=Experts(count=8, active=2, hidden=14336),
)
WORKLOAD = TrainingWorkload(sequence_length=8192, global_batch=128)
DEFAULTS: Mapping[str, int] = {
    "tensor": 1,
    "pipeline": 1,
    "data": 1,
    "context": 1,
    "expert": 1,
    "expert_tensor": 1,
    "virtual_pipeline": 1,
    "micro_batch": 1,
    "recompute": RECOMPUTE_CODES.index(Recompute.NONE),
    "sharding": SHARDING_CODES.index(Sharding.OPTIMIZER),
    "rank_order": 0,
    "schedule": 0,
    "modules": 0,
    "recompute_layers": 0,
    "sharding_ranks": 0,
    "optimizer_offload": 0,
    "offloaded_layers": 0,
    "exchange": 0,
    "settings": 0,
}


def candidates(*rows: Mapping[str, int]) -> CandidateBatch:
    """One candidate per mapping; what it leaves out is 1, no recomputation and a sharded optimizer."""
    full = [{**DEFAULTS, **row} for row in rows]
    return CandidateBatch(*(np.array([row[name] for row in full], dtype=np.int64) for name in DEFAULTS))


def even_layers(architecture: Architecture, chunks: int) -> IntArray:
    """Equal layers in every chunk of a model with layers of one kind."""
    return np.full((chunks, 1), architecture.layers // chunks, dtype=np.int64)


def costs(
    batch: CandidateBatch,
    architecture: Architecture = LLAMA_70B,
    workload: TrainingWorkload = WORKLOAD,
    calibration: Calibration | None = None,
) -> StepCosts:
    """Costs on H100 nodes of 8 with equal chunks."""
    chunks = int(batch.pipeline[0] * batch.virtual_pipeline[0])
    return step_costs(
        batch,
        even_layers(architecture, chunks),
        architecture=architecture,
        workload=workload,
        gpu=H100,
        gpus_per_domain=8,
        gpus_per_node=8,
        calibration=calibration,
    )


def memory(
    batch: CandidateBatch,
    architecture: Architecture = LLAMA_70B,
    workload: TrainingWorkload = WORKLOAD,
    micro_batches: int = 64,
    calibration: Calibration | None = None,
) -> StageMemoryParts:
    """Memory on H100 nodes of 8 with equal chunks."""
    chunks = int(batch.pipeline[0] * batch.virtual_pipeline[0])
    return stage_memory(
        batch,
        even_layers(architecture, chunks),
        architecture=architecture,
        workload=workload,
        gpu=H100,
        micro_batches=np.full(len(batch), micro_batches),
        calibration=calibration,
    )


def behaviour(gpu: GpuKind = H100, **facts: Any) -> Calibration:
    """Calibration of ``gpu`` under the default framework with some facts changed."""
    return calibration_of(gpu, replace(DEFAULT_FRAMEWORK, **facts))
