"""All exports by name, training first, then Kubernetes, inference and experts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.exports import (
    deepspeed,
    expert_maps,
    jobset,
    kueue,
    launch,
    lws,
    megatron,
    nemo,
    openmpi,
    primus,
    ray,
    report_html,
    sglang,
    slurm_hostfile,
    tables,
    torchrun_nodes,
    torchtitan,
    trainjob,
    trtllm,
    vllm,
    volcano,
)
from app.exports.contract import Export, View

_LAUNCHERS: Final[tuple[Export | View, ...]] = (
    *megatron.EXPORTS_HERE,
    *launch.EXPORTS_HERE,
    *tables.EXPORTS_HERE,
    *nemo.EXPORTS_HERE,
    *primus.EXPORTS_HERE,
    *deepspeed.EXPORTS_HERE,
    *torchtitan.EXPORTS_HERE,
    *torchrun_nodes.EXPORTS_HERE,
    *openmpi.EXPORTS_HERE,
    *slurm_hostfile.EXPORTS_HERE,
    *ray.EXPORTS_HERE,
    *report_html.EXPORTS_HERE,
)
_ORCHESTRATORS: Final[tuple[Export, ...]] = (
    *jobset.EXPORTS_HERE,
    *kueue.EXPORTS_HERE,
    *volcano.EXPORTS_HERE,
    *lws.EXPORTS_HERE,
    *trainjob.EXPORTS_HERE,
    *vllm.EXPORTS_HERE,
    *sglang.EXPORTS_HERE,
    *trtllm.EXPORTS_HERE,
    *expert_maps.EXPORTS_HERE,
)

EXPORTS: Final[Mapping[str, Export | View]] = MappingProxyType(
    {export.name: export for export in (*_LAUNCHERS, *_ORCHESTRATORS)}
)
