"""Commands that cap the power of GPUs, which only root may give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from app.exports.launch_value import Launch
from cluster_models.cluster.catalogue import gpu_kinds


def cap_command(kind: str, watts: float, gpus: Sequence[int]) -> str:
    """Caps the ``gpus`` of a host, which are of one ``kind``: others may do other work."""
    known = gpu_kinds().get(kind)
    if known is not None and known.vendor == "AMD":
        return f"rocm-smi -d {' '.join(map(str, gpus))} --setpoweroverdrive {watts:.0f}"
    return f"nvidia-smi -i {','.join(map(str, gpus))} -pl {watts:.0f}"


def cap_remarks(launch: Launch) -> list[str]:
    """Commands that cap the power of the GPUs used, which only root may give."""
    watts, known = launch.workload.gpu_power_cap_watts, gpu_kinds()
    if watts is None:
        return []
    kinds = [stage.gpu_kind for stage in launch.plan.stages]
    used: dict[tuple[str, str], set[int]] = defaultdict(set)
    for place in launch.plan.placement.ranks:
        used[kinds[place.pipeline], place.node].add(place.gpu)
    hosts: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for (name, host), gpus in used.items():
        hosts[name, tuple(sorted(gpus))].append(host)
    everywhere = len(hosts) == 1
    return [
        f"Before, as root on {'every host' if everywhere else ', '.join(own)}: {cap_command(name, watts, gpus)}"
        for (name, gpus), own in hosts.items()
        if name not in known or known[name].power_watts > watts
    ]
