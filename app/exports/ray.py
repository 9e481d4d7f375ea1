"""Ray: a placement group with one bundle a host, pinned by node id, in rank order.

``bundle_label_selector`` and the label ``ray.io/node-id``: Ray 2.49 and later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.exports.contract import Export, ExportFile, Files
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.ray import RAY_SAYS, read_ray

PYTHON: Final = "text/x-python"

_CODE: Final = '''

def launch_group():
    """The placement group: bundle k is host k of HOSTS; raises where Ray does not see a host."""
    import ray
    from ray.util.placement_group import placement_group

    full = {node["NodeManagerHostname"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    seen = {name.split(".")[0]: found for name, found in full.items()} | full
    missing = [host for host in HOSTS if host not in seen]
    if missing:
        raise RuntimeError(f"Ray has no live node called {', '.join(missing)}")
    return placement_group(
        [{"GPU": GPUS_PER_HOST, "CPU": GPUS_PER_HOST} for _ in HOSTS],
        strategy="STRICT_SPREAD",
        bundle_label_selector=[{"ray.io/node-id": seen[host]} for host in HOSTS],
    )


def place(rank):
    """Bundle index and GPU numbers of the host of one rank."""
    slot = rank // GPUS_PER_HOST
    return slot, GPUS[slot]
'''


def render_ray(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    """One Python module to import beside the trainer."""
    degrees = launch.degrees
    names = ("tensor", "context", "data", "pipeline", "expert", "expert_tensor")
    named = {name: getattr(degrees, name) for name in names}
    lines = [
        '"""Hosts of a plan as a Ray placement group: rank r runs in bundle r // GPUS_PER_HOST."""',
        "",
        f"HOSTS = {_tuple(repr(host) for host in launch.hosts)}",
        f"GPUS_PER_HOST = {launch.gpus_per_host}",
        f"GPUS = {_tuple(_tuple(map(str, gpus)) for gpus in launch.gpus)}",
        f"WORLD_SIZE = {launch.world}",
        f"DEGREES = {named!r}",
        f"RANK_ORDER = {str(launch.configuration.rank_order)!r}",
    ]
    return (ExportFile("placement_group.py", "\n".join(lines) + "\n" + _CODE),)


def _tuple(parts: Iterable[str]) -> str:
    return f"({', '.join(parts)},)"


EXPORTS_HERE: Final = (
    Export(
        "ray",
        "placement_group.py",
        PYTHON,
        "Ray placement group in rank order",
        render_ray,
        read_ray,
        RAY_SAYS,
    ),
)
