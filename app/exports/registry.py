"""All exports by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from app.exports.contract import Export, View

_MODULES: Final = (
    "megatron",
    "launch",
    "tables",
    "nemo",
    "deepspeed",
    "torchtitan",
    "torchrun_nodes",
    "openmpi",
    "slurm_hostfile",
    "ray",
    "report_html",
    "jobset",
    "kueue",
    "volcano",
    "lws",
    "trainjob",
    "vllm",
    "sglang",
    "trtllm",
    "expert_maps",
)


def _collected() -> Mapping[str, Export | View]:
    names = (f"app.exports.{name}" for name in _MODULES)
    modules = [import_module(name) for name in names if find_spec(name)]
    exports: list[Export | View] = [export for module in modules for export in module.EXPORTS_HERE]
    return MappingProxyType({export.name: export for export in exports})


EXPORTS: Final = _collected()
