"""Problems of measurements that show only in view of the cluster and of one another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from app.documents.measurements import Numbered
from app.documents.reading import MAX_PROBLEMS, FieldProblem, InvalidDocument, close_name
from cluster_models.cluster.measurements import Direction, Sample, SampleStatus
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.units import GBYTE

SLOWEST_BYTES_PER_S: Final = 1e3
"""Below a kilobyte per second a figure is a slip of the unit, not a link."""
LONGEST_LATENCY_S: Final = 10.0
CLOCKS_DIFFER: Final = timedelta(days=1)
REDUCTION_GAIN: Final = 2.0
"""Bus bandwidth counts 2(n-1)/n times the buffer for an all-reduce (nccl-tests, PERFORMANCE.md): a switch
that reduces on the way can at most double the rate of the wire."""


def checked_samples(
    cluster: Cluster, numbered: Iterable[Numbered], problems: list[FieldProblem]
) -> tuple[Sample, ...]:
    """The samples, if nothing is wrong with them; else ``InvalidDocument`` with ``problems`` and new ones."""
    nodes = {node.name: node for node in cluster.nodes}

    @cache
    def ceiling(source: str, destination: str) -> tuple[float, str]:
        return _ceiling(cluster, nodes[source], nodes[destination])

    latest = datetime.now(UTC) + CLOCKS_DIFFER
    seen: dict[tuple[object, ...], tuple[str, Sample]] = {}
    samples: list[Sample] = []
    for path, sample in numbered:
        found = _problem(nodes, ceiling, latest, path, sample) or _repetition(seen, path, sample)
        if found is not None:
            problems.append(found)
            if len(problems) >= MAX_PROBLEMS:
                break
        samples.append(sample)
    if problems:
        raise InvalidDocument(problems)
    return tuple(samples)


def _problem(
    nodes: Mapping[str, Node],
    ceiling_of: Callable[[str, str], tuple[float, str]],
    latest: datetime,
    path: str,
    sample: Sample,
) -> FieldProblem | None:
    for name in (sample.source, sample.destination):
        if name not in nodes:
            remedy = close_name(name, list(nodes))
            return FieldProblem(path, name, "names a node that the cluster does not have", remedy)
    rate, latency = sample.bytes_per_s, sample.latency_s
    if rate is not None:
        ceiling, wire = ceiling_of(sample.source, sample.destination)
        if rate > ceiling:
            return FieldProblem(
                path,
                rate / GBYTE,
                f"is more than the {ceiling / GBYTE:g} GB/s that {wire} could ever carry",
                "bandwidths are in GB/s of 10^9 bytes: divide Gbit/s by 8 and MB/s by 1000",
            )
        if rate < SLOWEST_BYTES_PER_S:
            return FieldProblem(
                path,
                rate / GBYTE,
                "is less than a kilobyte per second",
                "bandwidths are in GB/s of 10^9 bytes; mark a broken link failed",
            )
    if latency is not None and latency > LONGEST_LATENCY_S:
        return FieldProblem(path, latency * 1e6, "is more than ten seconds", "latencies are in microseconds")
    if sample.measured_at is not None and sample.measured_at > latest:
        # Recent samples count: one from the future would make every other one look old.
        return FieldProblem(
            path,
            sample.measured_at.isoformat(),
            "was measured in the future",
            "correct measured_at, or leave it out",
        )
    return None


def _ceiling(cluster: Cluster, source: Node, destination: Node) -> tuple[float, str]:
    """The highest bus bandwidth that hardware between two nodes allows, and its name."""
    if source.nvlink_domain == destination.nvlink_domain:
        ends = [
            node.gpu_count * cluster.gpu_kinds[node.gpu_kind].scale_up_bytes_per_s for node in (source, destination)
        ]
        return REDUCTION_GAIN * min(ends), f"the links inside {source.nvlink_domain}"
    ends = [node.nics.count * node.nics.bytes_per_s for node in (source, destination)]
    return REDUCTION_GAIN * min(ends), "the network cards of the two nodes"


def _repetition(
    seen: dict[tuple[object, ...], tuple[str, Sample]], path: str, sample: Sample
) -> FieldProblem | None:
    """A second figure for the same pair, size, run and moment, in either order where direction is both."""
    ends = (sample.source, sample.destination)
    if sample.direction is Direction.BOTH and ends[1] < ends[0]:
        ends = ends[::-1]
    key = (
        *ends,
        sample.direction,
        sample.tool,
        sample.collective,
        sample.message_bytes,
        sample.ranks_per_node,
        sample.pairs_active,
        sample.measured_at,
    )
    first = seen.setdefault(key, (path, sample))
    if first[1] is sample:
        return None
    return FieldProblem(
        path,
        _shown(sample),
        f"measures {' and '.join(ends)} again: {first[0]} already says {_shown(first[1])} for the same run",
        "give each pair once (direction: forward if the two directions differ), or another measured_at",
    )


def _shown(sample: Sample) -> str:
    if sample.status is SampleStatus.FAILED:
        return "failed"
    if sample.bytes_per_s is None:
        return f"{(sample.latency_s or 0.0) * 1e6:g} us"
    return f"{sample.bytes_per_s / GBYTE:g} GB/s"
