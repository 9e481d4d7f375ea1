"""Settings that a workload leaves to the planner, of those that model and framework offer.

The rules are those of Megatron-Core's ``TransformerConfig`` (``megatron/core/transformer/transformer_config.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Final

from cluster_models.cluster.gpus import Precision
from cluster_models.model.architecture import Architecture
from cluster_models.training.framework_choices import FreeSetting
from cluster_models.training.offload import must_offload_layers
from cluster_models.training.plan import Configuration
from cluster_models.training.run_settings import SPEND_MEMORY, RunSettings, switches
from cluster_models.training.workload import Recompute, RecomputeModule, TrainingWorkload

_OF_EXPERTS: Final = frozenset({FreeSetting.EXPERT_OVERLAP, FreeSetting.EXPERT_DISPATCH})
_ROUTERS_SINCE: Final = 16
"""Release of Megatron-Core whose graphs hold the router of a sparse layer (``--cuda-graph-scope``, a list)."""


def offered(architecture: Architecture, workload: TrainingWorkload) -> Mapping[FreeSetting, tuple[Any, ...]]:
    """The values of the settings that the workload leaves free, where framework, model and precision have them.

    User buffers need a split sequence and do not know NVFP4, expert exchange runs beside compute in 16 bits or
    less, and graphs want shapes that never change and no activations in the node's memory.
    """
    framework, has_experts = workload.framework, architecture.experts is not None
    possible = {
        FreeSetting.OVERLAP_TENSOR: framework.sequence_parallel and workload.precision is not Precision.NVFP4,
        FreeSetting.EXPERT_OVERLAP: has_experts and workload.precision is not Precision.FP32,
        FreeSetting.CUDA_GRAPHS: workload.lengths is None
        and not must_offload_layers(workload)
        and (not has_experts or framework.megatron_core >= _ROUTERS_SINCE),
        FreeSetting.EXPERT_DISPATCH: has_experts,
    }
    return {
        each: values
        for each, values in switches(framework).items()
        if each in workload.free_settings and possible[each]
    }


def first_codes(offers: Mapping[FreeSetting, tuple[Any, ...]], *, expert: int) -> list[int]:
    """Codes of settings to try with so many ``expert`` ranks.

    Those that spend memory on time alone have their fastest value, so that others matter where that does not fit
    (``leaner``); those of experts change nothing on a single rank.
    """
    tried = {
        each: values[:1] if each in SPEND_MEMORY else values
        for each, values in offers.items()
        if expert > 1 or each not in _OF_EXPERTS
    }
    return [RunSettings(**dict(zip(tried, values, strict=True))).code for values in product(*tried.values())]


def leanest_settings(architecture: Architecture, workload: TrainingWorkload) -> RunSettings:
    """Settings left free that trade memory for time alone, as they take the least."""
    offers = offered(architecture, workload)
    return RunSettings(**{each: values[-1] for each, values in offers.items() if each in SPEND_MEMORY})


def that_matter(configuration: Configuration) -> RunSettings:
    """Its settings without those that change nothing, which are left to the framework.

    Frameworks whose schedules split backward passes then overlap no tensor ranks; ``TransformerConfig`` overlaps no
    exchange of experts that runs again, nor in a pipeline without virtual stages.
    """
    settings, degrees = configuration.settings, configuration.degrees
    again = configuration.recompute is Recompute.FULL or RecomputeModule.MOE in configuration.recompute_modules
    beside = degrees.expert > 1 and (degrees.pipeline == 1 or degrees.virtual_pipeline > 1) and not again
    chunked = degrees.tensor > 1 and not configuration.schedule.splits_backward
    return replace(
        settings,
        overlap_tensor=settings.overlap_tensor if chunked else None,
        expert_overlap=settings.expert_overlap if beside else None,
        expert_dispatch=settings.expert_dispatch if degrees.expert > 1 else None,
    )
