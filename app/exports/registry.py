"""All exports by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.exports.launch import render_hostfile, render_slurm, render_torchrun
from app.exports.megatron import render_megatron
from app.exports.tables import render_csv, render_json, render_perfetto
from cluster_models.plan import Plan


@dataclass(frozen=True, slots=True)
class Export:
    """One format: ``render`` gives its text, or raises ``InvalidConfiguration`` on broken sums."""

    name: str
    file_name: str
    media_type: str
    description: str
    render: Callable[[Plan], str]


EXPORTS: Final[Mapping[str, Export]] = MappingProxyType(
    {
        export.name: export
        for export in (
            Export(
                "megatron",
                "megatron_args.sh",
                "text/x-shellscript",
                "Megatron-LM arguments as a bash array",
                render_megatron,
            ),
            Export(
                "torchrun",
                "torchrun.sh",
                "text/x-shellscript",
                "Script for every node: torchrun with static node ranks",
                render_torchrun,
            ),
            Export(
                "slurm",
                "slurm.sh",
                "text/x-shellscript",
                "Slurm batch script that keeps the host order",
                render_slurm,
            ),
            Export("hostfile", "hostfile", "text/plain", "Hosts with slots in rank order", render_hostfile),
            Export(
                "perfetto",
                "timeline.json",
                "application/json",
                "Timeline for the Perfetto viewer",
                render_perfetto,
            ),
            Export("csv", "ranks.csv", "text/csv", "Place and coordinates of every rank", render_csv),
            Export("json", "plan.json", "application/json", "The whole plan", render_json),
        )
    }
)
