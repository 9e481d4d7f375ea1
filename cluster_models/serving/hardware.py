"""GPUs that an engine serves a format on: its vendors, and formats that tensor cores lack."""

from __future__ import annotations

from typing import Final

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.serving.workload import ServingWorkload, WeightFormat

_COMPUTED_IN: Final = {WeightFormat.FP8: Precision.FP8, WeightFormat.NVFP4: Precision.NVFP4}
"""Formats whose products need tensor cores of their own; the others are computed in 16 bits where it must be."""


def check_gpu(workload: ServingWorkload, gpu: GpuKind) -> None:
    """Raise ``InvalidWorkload`` where the engine does not run on ``gpu``, or not with these weights."""
    engine = workload.engine
    if gpu.vendor not in engine.vendors:
        raise InvalidWorkload(
            "workload.engine",
            engine.name,
            f"does not run on {gpu.name}, it is for GPUs of {' and '.join(engine.vendors)}",
            "name an engine for these GPUs",
        )
    for field, name in (("weights", workload.weights), ("attention_weights", workload.attention_weights)):
        if name is not None and _lacks(gpu, name) and not _is_widened(workload, gpu, name):
            fitting = [each for each in engine.weight_formats if not _lacks(gpu, WeightFormat(each))]
            raise InvalidWorkload(
                f"workload.{field}",
                name.value,
                f"{gpu.name} has no tensor cores for this format, and {engine.name} does not widen it",
                f"use one of {', '.join(fitting)}",
            )


def runs_on(workload: ServingWorkload, gpu: GpuKind) -> bool:
    """Whether ``check_gpu`` passes."""
    try:
        check_gpu(workload, gpu)
    except InvalidWorkload:
        return False
    return True


def widens_on(workload: ServingWorkload, gpu: GpuKind) -> bool:
    """Whether weights are read in their format and multiplied in 16 bits, for want of tensor cores on ``gpu``."""
    return _lacks(gpu, workload.weights) and _is_widened(workload, gpu, workload.weights)


def _lacks(gpu: GpuKind, name: WeightFormat) -> bool:
    return name in _COMPUTED_IN and _COMPUTED_IN[name] not in gpu.peak_flops


def _is_widened(workload: ServingWorkload, gpu: GpuKind, name: WeightFormat) -> bool:
    """The kernels that do so (Marlin) are for GPUs of NVIDIA."""
    return gpu.vendor == "NVIDIA" and name.value in workload.engine.widened_formats
