"""Commands that cap the power of GPUs, which only root may give."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_models.cluster.catalogue import gpu_kinds


def cap_command(kind: str, watts: float, gpus: Sequence[int]) -> str:
    """Caps the ``gpus`` of a host, which are of one ``kind``: others may do other work."""
    known = gpu_kinds().get(kind)
    if known is not None and known.vendor == "AMD":
        return f"rocm-smi -d {' '.join(map(str, gpus))} --setpoweroverdrive {watts:.0f}"
    return f"nvidia-smi -i {','.join(map(str, gpus))} -pl {watts:.0f}"
