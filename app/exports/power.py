"""Commands that cap the power of GPUs, which only root may give."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_models.cluster.catalogue import gpu_kinds


def cap_command(kind: str, watts: float, gpus: Sequence[int] = ()) -> str:
    """Caps GPUs of a ``kind`` on a host, by number or all of them."""
    known = gpu_kinds().get(kind)
    if known is not None and known.vendor == "AMD":
        chosen = f" -d {' '.join(map(str, gpus))}" if gpus else ""
        return f"rocm-smi{chosen} --setpoweroverdrive {watts:.0f}"
    chosen = f" -i {','.join(map(str, gpus))}" if gpus else ""
    return f"nvidia-smi{chosen} -pl {watts:.0f}"
