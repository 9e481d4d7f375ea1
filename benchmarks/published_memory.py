"""What a row of a table of measured peaks says about memory: counter, unit, recomputed modules, offloading."""

from __future__ import annotations

import re
from typing import Final

from benchmarks.rows import Row, text, whole
from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.training.frameworks import Framework
from cluster_models.training.recompute import MODULES_BY_NAME, ActivationSettings

COUNTERS: Final = (
    (r"analytical|formula\b.*not an allocator", MemoryCounter.FORMULA),
    (r"max_allocated|max allocated|memory_allocated|golden values|printed mem/gpu", MemoryCounter.ALLOCATED),
    (r"max_reserved|memory_reserved|torchtitan|nanotron", MemoryCounter.RESERVED),
)
"""By what source or notes say; torchtitan logs what its allocator reserved.  The driver's total otherwise."""
STAGES: Final = ((r"first pipeline stage|on global rank 0", 0), (r"logging rank|golden values", -1))
"""Megatron-LM logs on the last rank."""

_TRL_GUIDE: Final = "levers of the guide"
"""Rows of TRL's guide to sequences of a million tokens, whose script checkpoints with ``offload``: the inputs of
layers wait in the host's memory (examples/sft_qwen3_8b_1m_context)."""


def read_counter(row: Row) -> MemoryCounter:
    """What counted the row's peak."""
    said = f"{text(row, 'source')} {text(row, 'notes')}".casefold()
    return next((counter for pattern, counter in COUNTERS if re.search(pattern, said)), MemoryCounter.DRIVER)


def read_measured_stage(row: Row) -> int | None:
    """The pipeline rank on which the peak was taken; ``None``: the fullest."""
    said = f"{text(row, 'source')} {text(row, 'notes')}".casefold()
    return next((stage for pattern, stage in STAGES if re.search(pattern, said)), None)


def read_activations(row: Row) -> ActivationSettings:
    """Modules that are recomputed beside the policy, and layers whose activations the host keeps."""
    names = re.split(r"[:+,;\s]+", text(row, "recompute").casefold())
    modules = frozenset(MODULES_BY_NAME[name] for name in names if name in MODULES_BY_NAME)
    notes = text(row, "notes").casefold()
    offloaded = re.search(r"activation (?:cpu )?offload(?:ing)? of (\d+) layers", notes)
    everything = "cpu checkpointing" in notes or _TRL_GUIDE in notes
    layers = int(offloaded[1]) if offloaded else whole(row, "layers") or 0 if everything else 0
    return ActivationSettings(modules, layers)


def read_expert_tensor(row: Row, framework: Framework) -> int:
    """Ranks that cut an expert; Megatron-LM's scripts cut them as the rest of the model unless told otherwise."""
    if not text(row, "experts"):
        return 1
    script = framework.name.startswith(("megatron-core", "megatron-lm"))
    return whole(row, "etp") or ((whole(row, "tp") or 1) if script else 1)


def memory_is_known(row: Row) -> bool:
    """Whether the row states all that its memory depends on."""
    policy, *modules = re.split(r"[:+,;\s]+", text(row, "recompute").casefold())
    return policy in ("none", "full", "selective") and all(name in MODULES_BY_NAME for name in modules)


def memory_unit(row: Row) -> float:
    """Bytes of the unit of ``mem_gb_per_gpu``: PyTorch and nvidia-smi print GiB, unless the notes say GB."""
    decimal = re.search(r"\b(decimal|10\^9|1e9)\b", text(row, "notes"))
    return 1e9 if decimal else 2.0**30
