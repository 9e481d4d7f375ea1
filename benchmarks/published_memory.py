"""What a row of a table of measured peaks says about memory: counter, unit, recomputed modules, offloading."""

from __future__ import annotations

import re
from typing import Final

from benchmarks.rows import Row, text, whole
from cluster_models.recompute import MODULES_BY_NAME, ActivationSettings
from cluster_models.training_run import MemoryCounter

COUNTERS: Final = (
    (r"analytical|formula\b.*not an allocator", MemoryCounter.FORMULA),
    (r"max_allocated|max allocated|memory_allocated", MemoryCounter.ALLOCATED),
    (r"max_reserved|memory_reserved|torchtitan", MemoryCounter.RESERVED),
)
"""By what source or notes say; torchtitan logs what its allocator reserved.  The driver's total otherwise."""
STAGES: Final = ((r"first pipeline stage", 0), (r"logging rank", -1))
"""Megatron-LM logs on the last rank."""


def read_counter(row: Row) -> MemoryCounter:
    """What counted the row's peak."""
    said = f"{text(row, 'source')} {text(row, 'notes')}".casefold()
    return next((counter for pattern, counter in COUNTERS if re.search(pattern, said)), MemoryCounter.DRIVER)


def read_measured_stage(row: Row) -> int | None:
    """The pipeline rank on which the peak was taken; ``None``: the fullest."""
    notes = text(row, "notes").casefold()
    return next((stage for pattern, stage in STAGES if re.search(pattern, notes)), None)


def read_activations(row: Row) -> ActivationSettings:
    """Modules that are recomputed beside the policy, and layers whose activations the host keeps."""
    names = re.split(r"[:+,;\s]+", text(row, "recompute").casefold())
    modules = frozenset(MODULES_BY_NAME[name] for name in names if name in MODULES_BY_NAME)
    offloaded = re.search(r"activation (?:cpu )?offload(?:ing)? of (\d+) layers", text(row, "notes").casefold())
    return ActivationSettings(modules, int(offloaded[1]) if offloaded else 0)


def memory_is_known(row: Row) -> bool:
    """Whether the row states all that its memory depends on."""
    policy, *modules = re.split(r"[:+,;\s]+", text(row, "recompute").casefold())
    known = policy in ("none", "full", "selective") and all(name in MODULES_BY_NAME for name in modules)
    return known and (whole(row, "etp") or 1) == 1


def memory_unit(row: Row) -> float:
    """Bytes of the unit of ``mem_gb_per_gpu``: PyTorch and nvidia-smi print GiB, unless the notes say GB."""
    decimal = re.search(r"\b(decimal|10\^9|1e9)\b", text(row, "notes"))
    return 1e9 if decimal else 2.0**30
