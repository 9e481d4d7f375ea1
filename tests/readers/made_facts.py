"""Facts and readings made by hand, for what is done with them."""

from __future__ import annotations

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import (
    Fact,
    HostFact,
    Member,
    Name,
    NameKind,
    Nics,
    Operation,
    Origin,
    Point,
    RunFact,
)
from readers.frame.findings import Finding
from readers.frame.reading import Contents, Reading, Section

HDR = 25e9


def origin(file: str = "a.log", line: int = 1, last: int | None = None) -> Origin:
    return Origin(file, line, line + 9 if last is None else last)


def host(
    name: str,
    *,
    file: str = "nodes.txt",
    kind: NameKind = NameKind.SLURM,
    gpus: int | None = 8,
    product: str | None = "NVIDIA H100 80GB HBM3",
    nics: int = 8,
    leaf: str = "",
    more: tuple[Name, ...] = (),
) -> HostFact:
    return HostFact(
        origin=origin(file),
        names=(Name(kind, name), *more),
        gpu_product=product,
        gpu_count=gpus,
        nics=(Nics(nics, 2 * HDR, "infiniband"),) if nics else (),
        labels={"leaf": leaf} if leaf else {},
    )


def run(
    *hosts: str,
    file: str = "a.log",
    line: int = 1,
    ranks_per_node: int = 8,
    rates: tuple[tuple[float, float], ...] = ((1 << 28, 40e9), (1 << 30, 45e9)),
    operation: Operation = Operation.ALL_TO_ALL,
    direction: Direction = Direction.BOTH,
) -> RunFact:
    members = tuple(
        Member(index * ranks_per_node + gpu, name, gpu, product="NVIDIA H100 80GB HBM3")
        for index, name in enumerate(hosts)
        for gpu in range(ranks_per_node)
    )
    points = tuple(Point(line + 1 + at, size, rate) for at, (size, rate) in enumerate(rates))
    return RunFact(
        origin=origin(file, line),
        tool="nccl-tests",
        operation=operation,
        members=members,
        ranks=len(members) or None,
        hosts=hosts,
        points=points,
        direction=direction,
    )


def reading(*facts: Fact, file: str = "", doubts: tuple[Finding, ...] = ()) -> Reading:
    name = file or facts[0].origin.file
    return Reading(
        name,
        100,
        ((Section("made", 1, 100), Contents(facts, (), tuple(doubt.in_file(name) for doubt in doubts))),),
    )
