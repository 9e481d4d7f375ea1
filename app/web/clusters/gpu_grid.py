"""Holders of a cluster's GPUs, node by node under their leaf switches, in colours and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import plural, spans
from app.services.running.occupancy import HeldGpu
from app.web.planning.seats import HUES
from cluster_models.cluster.topology import Cluster, Node, NodeState

_PLACES: Final = ("leaf", "rack", "zone")
MOST_BOXES: Final = 64
"""Nodes shown GPU by GPU."""
_STATES: Final[Mapping[NodeState, tuple[str, str]]] = {
    NodeState.READY: ("", ""),
    NodeState.DEGRADED: ("slow", "warn"),
    NodeState.DRAINING: ("to be left", "warn"),
    NodeState.FAILED: ("failed", "bad"),
    NodeState.UNKNOWN: ("suspected", "warn"),
}


@dataclass(frozen=True, slots=True)
class HostBox:
    """One node: its GPUs as cells (style classes), who holds them in words; ``mood`` colours the state."""

    name: str
    state: str
    mood: str
    cells: tuple[str, ...]
    words: str

    @property
    def whole(self) -> str:
        """Style of the node as one cell: its trouble, else what most of its GPUs do."""
        return self.mood or Counter(self.cells).most_common(1)[0][0]

    @property
    def tip(self) -> str:
        """The node in one line."""
        return ", ".join(filter(None, (f"{self.name}: {self.state}" if self.state else self.name, self.words)))


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Nodes of one place; ``troubled`` says how many of them are not well, or nothing."""

    name: str
    troubled: str
    hosts: tuple[HostBox, ...]


@dataclass(frozen=True, slots=True)
class GpuGrid:
    """The whole cluster; ``legend`` has style and words of each job, ``summary`` all in a sentence."""

    groups: tuple[HostGroup, ...]
    legend: tuple[tuple[str, str], ...]
    summary: str
    is_large: bool = False
    """Whether nodes are one cell each: more do not fit a page."""


def gpu_grid(
    cluster: Cluster, held: Sequence[HeldGpu], *, lost: Collection[tuple[str, int]], spares: Collection[str]
) -> GpuGrid:
    """The grid of a cluster in the states it has now; ``lost`` are GPUs that failed alone."""
    counts = Counter(gpu.job_name for gpu in held if not gpu.releasing)
    names = sorted({gpu.job_name for gpu in held})
    hues = {name: f"hue-{index % HUES}" for index, name in enumerate(names)}
    on: dict[str, dict[int, HeldGpu]] = {}
    for gpu in held:
        on.setdefault(gpu.node, {})[gpu.gpu] = gpu
    groups: dict[str, list[HostBox]] = {}
    for node in cluster.nodes:
        out = {gpu for name, gpu in lost if name == node.name}
        box = _host(node, on.get(node.name, {}), hues, out, is_spare=node.name in spares)
        groups.setdefault(place_words(node), []).append(box)
    return GpuGrid(
        groups=tuple(HostGroup(name, _troubled(hosts), tuple(hosts)) for name, hosts in groups.items()),
        legend=tuple((hues[name], f"{name}: {_size(counts[name])}") for name in names),
        summary=_summary(cluster, held),
        is_large=len(cluster.nodes) > MOST_BOXES,
    )


def _host(
    node: Node, held: Mapping[int, HeldGpu], hues: Mapping[str, str], out: Collection[int], *, is_spare: bool
) -> HostBox:
    cells = []
    for gpu in range(node.gpu_count):
        if gpu in out:
            cells.append("gone")
        elif gpu in held:
            cells.append(hues[held[gpu].job_name] + (" leaving" if held[gpu].releasing else ""))
        else:
            cells.append("taken" if gpu in node.gpus_in_use else "")
    state, mood = _STATES[node.state]
    words = _holders(node, held)
    if out:
        words.append(f"GPU {spans(out)} failed")
    if is_spare:
        words.append("spare")
    if not words and node.state is not NodeState.FAILED:
        words.append("in use by others" if node.gpus_in_use else "free")
    return HostBox(node.name, state, mood, tuple(cells), ", ".join(words))


def _holders(node: Node, held: Mapping[int, HeldGpu]) -> list[str]:
    """Each job on the node with its GPUs, where it does not hold all."""
    by_job: dict[tuple[str, bool], list[int]] = {}
    for number, gpu in held.items():
        by_job.setdefault((gpu.job_name, gpu.releasing), []).append(number)
    return [
        name + (f" {spans(gpus)}" if len(gpus) < node.gpu_count else "") + (" is leaving" if leaving else "")
        for (name, leaving), gpus in by_job.items()
    ]


def place_words(node: Node) -> str:
    """Switch, or other place, that a node is under."""
    for label in _PLACES:
        if (place := node.place(label)) is not None:
            return place if place.startswith(label) else f"{label} {place}"
    return "All nodes"


def _troubled(hosts: Sequence[HostBox]) -> str:
    bad = sum(bool(host.state) for host in hosts)
    if not bad:
        return ""
    return "none of its nodes is well" if bad == len(hosts) > 1 else f"{bad} of {len(hosts)} not well"


def _size(gpus: int) -> str:
    return plural(gpus, "GPU") if gpus else "about to leave its GPUs"


def _summary(cluster: Cluster, held: Sequence[HeldGpu]) -> str:
    jobs = len({gpu.job_name for gpu in held})
    failed = sum(node.state is NodeState.FAILED for node in cluster.nodes)
    down = f" {plural(failed, 'node')} of {len(cluster.nodes)} failed." if failed else ""
    if not jobs:
        return f"No job holds a GPU of this cluster.{down}"
    verb = "holds" if jobs == 1 else "hold"
    return f"{plural(jobs, 'job')} {verb} {len(held)} of {plural(cluster.gpu_count, 'GPU')}.{down}"
