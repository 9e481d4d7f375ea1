"""Profiles and tables of runs that GPUs with known parameters would give."""

from __future__ import annotations

import math
from typing import Any

from app.documents.calibration import CalibrationDocument, ParameterDocument
from app.documents.training_runs import read_training_runs
from app.profiler.gpu_profile import attention_shapes, matmul_shapes
from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.cluster.catalogue import gpu_kind
from solver.runs import predict_run

GPU = "H100-SXM5-80GB"
FRAMEWORK = "megatron-core-0.12"
HEAD = (
    "id,model,gpu,framework,num_gpus,seq_len,micro_batch,global_batch,iter_time_s,tp,pp,zero,recompute,"
    "network_gbits_per_gpu\n"
)
LINES = tuple(
    f"r{tp}{pp},llama-3-8b,H100,{FRAMEWORK},16,4096,1,64,{{step}},{tp},{pp},1,full,400\n"
    for tp, pp in ((1, 1), (2, 1), (4, 1), (2, 2), (4, 4))
)


def runs_csv(**slower: float) -> str:
    """Runs whose steps are those of a GPU with the parameters ``slower``, as CSV."""
    text = HEAD + "".join(line.format(step=1.0) for line in LINES)
    own = {name: FittedValue(value, value, value, 1) for name, value in slower.items()}
    truth = FittedParameters({GPU: own}, {}, "test")
    steps = [predict_run(run, truth).step_s for run in read_training_runs(text).runs]
    return HEAD + "".join(line.format(step=f"{step:.6f}") for line, step in zip(LINES, steps, strict=True))


def profile_body(
    *, share: float = 0.6, device: str = "NVIDIA H100 80GB HBM3", kind: str = "cuda"
) -> dict[str, Any]:
    """A profile whose large products reach ``share`` of the peak, and whose memory 90 % of the data sheet's."""
    gpu = gpu_kind(GPU)
    peak, memory = next(iter(gpu.peak_flops.values())), gpu.memory_bytes_per_s
    launch_s = 4e-6
    matmuls = [
        {**_shape(shape), "sustained": sustained}
        | _time(max(_flops(shape) * (1 + 150 / shape.k) / (share * peak), _moved(shape) / memory / 0.9) + launch_s)
        for sustained in (True, False)
        for shape in matmul_shapes(8192)
        if shape.batch == 1 and not any(extent % 128 for extent in shape[:3])
    ]
    attentions = [
        {"kernels": "vendor", "direction": direction, "precision": "bf16", "batch": batch, "heads": heads}
        | {"head_size": size, "sequence": sequence}
        | _time(cost * 2 * batch * heads * size * sequence**2 / (0.5 * peak) + launch_s)
        for direction, cost in (("forward", 1.0), ("backward", 2.5))
        for batch, heads, size, sequence in attention_shapes(16384)
    ]
    return {
        "format": "meshwright-gpu-profile",
        "version": 1,
        "taken_at": "2026-11-20T09:00:00Z",
        "took_s": 101.0,
        "quick": False,
        "device": {"type": kind, "name": device, "count": 8},
        "software": {"torch": "2.13.0"},
        "host": "node-7",
        "matmuls": matmuls,
        "streams": [
            {"operation": "copy", "bytes": 2**size} | _time(2**size / (0.9 * memory) + launch_s)
            for size in (24, 26, 28, 30)
        ],
        "attentions": attentions,
        "launches": [_time(launch_s)],
        "collectives": [{"collective": "all_reduce", "ranks": 8, "nodes": 1, "message_bytes": 2**20} | _time(1e-4)],
        "skipped": [{"what": "matmul fp8 sustained", "reason": "too large"}],
    }


def calibration_document(**parameters: float) -> CalibrationDocument:
    """A finished calibration of the H100, by default one that makes its products slow."""
    values = parameters or {"sustained_share": 0.5}
    return CalibrationDocument(
        name="slow",
        source="made up for a test",
        gpus={
            GPU: {
                name: ParameterDocument(value=value, low=0.9 * value, high=1.1 * value, steps=5, before=None)
                for name, value in values.items()
            }
        },
    )


def _shape(shape: Any) -> dict[str, Any]:
    return {"precision": "bf16", **shape._asdict()}


def _flops(shape: Any) -> float:
    return 2.0 * math.prod(shape)


def _moved(shape: Any) -> float:
    return 2.0 * float(shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)


def _time(seconds: float) -> dict[str, Any]:
    return {"median_s": seconds, "low_s": 0.99 * seconds, "high_s": 1.01 * seconds, "samples": 9}
