"""Memory in a row of a table of measured peaks: counter, unit, recomputed modules, offloading, optimizer states."""

from __future__ import annotations

import re
from typing import Final

from benchmarks.rows import Row, text, whole
from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.cluster.gpus import Precision
from cluster_models.training.frameworks import Framework
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.recompute import MODULES_BY_NAME
from cluster_models.training.workload import RecomputeModule, Sharding

COUNTERS: Final = (
    (r"analytical|formula\b.*not an allocator", MemoryCounter.FORMULA),
    (r"max_allocated|max allocated|memory_allocated|golden values|printed mem/gpu", MemoryCounter.ALLOCATED),
    (r"max_reserved|memory_reserved|torchtitan|nanotron", MemoryCounter.RESERVED),
)
"""By what source or notes say; torchtitan logs what its allocator reserved.  The driver's total otherwise."""
STAGES: Final = ((r"first pipeline stage|on global rank 0", 0), (r"logging rank|golden values", -1))
"""Megatron-LM logs on the last rank."""

_MODULES: Final = MODULES_BY_NAME | {"norm": RecomputeModule.LAYER_NORM, "act": RecomputeModule.MOE_ACTIVATION}
"""With the short names of Megatron-MoE-ModelZoo's tables."""
_TRL_GUIDE: Final = "levers of the guide"
"""Rows of TRL's guide to sequences of a million tokens, whose script checkpoints with ``offload``: the inputs of
layers wait in the host's memory (examples/sft_qwen3_8b_1m_context)."""
_NARROW_MOMENTS: Final = re.compile(r"bf16 adam moments", re.IGNORECASE)


def read_counter(row: Row) -> MemoryCounter:
    """Counter of the row's peak."""
    said = f"{text(row, 'source')} {text(row, 'notes')}".casefold()
    return next((counter for pattern, counter in COUNTERS if re.search(pattern, said)), MemoryCounter.DRIVER)


def read_measured_stage(row: Row) -> int | None:
    """The pipeline rank on which the peak was taken; ``None``: the fullest."""
    said = f"{text(row, 'source')} {text(row, 'notes')}".casefold()
    return next((stage for pattern, stage in STAGES if re.search(pattern, said)), None)


def read_offloaded_layers(row: Row) -> int:
    """Layers whose activations the host keeps."""
    notes = text(row, "notes").casefold()
    offloaded = re.search(r"activation (?:cpu )?offload(?:ing)? of (\d+) layers", notes)
    everything = "cpu checkpointing" in notes or _TRL_GUIDE in notes
    return int(offloaded[1]) if offloaded else whole(row, "layers") or 0 if everything else 0


def read_expert_tensor(row: Row, framework: Framework) -> int:
    """Ranks that cut an expert; Megatron-LM's scripts cut them as the rest of the model unless told otherwise."""
    if not text(row, "experts"):
        return 1
    script = framework.name.startswith(("megatron-core", "megatron-lm"))
    return whole(row, "etp") or ((whole(row, "tp") or 1) if script else 1)


def read_modules(row: Row) -> frozenset[RecomputeModule]:
    """Modules that selective recomputation runs again, as far as the row names them."""
    names = re.split(r"[:+,;\s]+", text(row, "recompute").casefold())
    return frozenset(_MODULES[name] for name in names[1:] if name in _MODULES)


def read_states(row: Row, framework: Framework, sharding: Sharding, precision: Precision) -> OptimizerStates:
    """Formats of the optimizer's states: BF16 moments where the notes say so or the recipe of the model has them.

    DeepSeek-V3 has them in every release of Megatron-Bridge (recipes/deepseek/deepseek_v3.py, 0.2.2 to 0.5.1), but
    for runs under FSDP, which switches the optimizer that knows them off (scripts/performance/utils/overrides.py).
    """
    of_recipe = framework.name.startswith("megatron-bridge") and text(row, "model_name").startswith("deepseek-v3")
    narrow = of_recipe or _NARROW_MOMENTS.search(text(row, "notes"))
    if not narrow or sharding is not Sharding.OPTIMIZER:
        return FULL_STATES
    master = MasterFormat.REMAINDER if precision is Precision.BF16 else MasterFormat.FP32
    return OptimizerStates(MomentFormat.BF16, MomentFormat.BF16, master)


def memory_is_known(row: Row) -> bool:
    """Whether the row states all that its memory depends on."""
    policy, *modules = re.split(r"[:+,;\s]+", text(row, "recompute").casefold())
    return policy in ("none", "full", "selective") and all(name in _MODULES for name in modules)


def memory_unit(row: Row) -> float:
    """Bytes of the unit of ``mem_gb_per_gpu``: PyTorch and nvidia-smi print GiB, unless the notes say GB."""
    decimal = re.search(r"\b(decimal|10\^9|1e9)\b", text(row, "notes"))
    return 1e9 if decimal else 2.0**30
