"""Facts: the contents of a file before anybody decides about them, with the lines they stand on.

Names stand as the file writes them; figures are SI: bytes, bytes per second, seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from cluster_models.cluster.measurements import Collective, Direction
from cluster_models.cluster.topology import NodeState


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact stands."""

    file: str
    first_line: int
    last_line: int
    path: str = ""
    """Path in JSON and YAML: "items[3].metadata.labels"."""


class NameKind(StrEnum):
    """Naming that a name belongs to."""

    HOST = "host"
    FQDN = "fqdn"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    POD = "pod"
    INSTANCE = "instance_id"
    ADDRESS = "ip"
    PORT_GUID = "port_guid"
    MPI = "mpi"


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a host."""

    kind: NameKind
    text: str


@dataclass(frozen=True, slots=True)
class Nics:
    """Cards of one kind.  ``bytes_per_s`` per card and direction; ``None`` where the file does not say."""

    count: int
    bytes_per_s: float | None = None
    fabric: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFact:
    """One record about one host.  ``None`` = the file does not say; never a guess."""

    origin: Origin
    names: tuple[Name, ...]
    gpu_product: str | None = None
    gpu_count: int | None = None
    gpu_in_slices: bool = False
    """MIG: the count may be one of slices, and is not used."""
    nics: tuple[Nics, ...] = ()
    scale_up_domain: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Normalised: zone, leaf, rack, block, plus "level1".. "level9" counted up from the host."""
    state: NodeState | None = None
    instance_type: str = ""


class JointKind(StrEnum):
    """Kind of joint between two devices, in the words of nvidia-smi and rocm-smi."""

    NVLINK = "nvlink"
    XGMI = "xgmi"
    PIX = "pix"
    PXB = "pxb"
    PHB = "phb"
    NODE = "node"
    SYS = "sys"
    PCIE = "pcie"
    C2C = "c2c"


@dataclass(frozen=True, slots=True)
class Joint:
    """Joint between two devices of a host; ``links`` counts NVLinks or XGMI links, ``bytes_per_s`` of each."""

    first: str
    second: str
    kind: JointKind
    links: int | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class WiringFact:
    """The inside of one host as a tool drew it.  ``expected_gpus`` from the header where rows are cut."""

    origin: Origin
    host: str | None
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    joints: tuple[Joint, ...]
    expected_gpus: int
    gpu_products: tuple[str, ...] = ()
    hides_nvlink: bool = False
    """``topo -mp``, XML without nvlink: no NVLink shown says nothing."""
    partial: bool = False


class Operation(StrEnum):
    """Operation that a tool ran; wider than the collectives of samples."""

    SEND_RECV = "sendrecv"
    ALL_TO_ALL = "alltoall"
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    HYPERCUBE = "hypercube"
    POINT_TO_POINT = "point_to_point"

    @property
    def collective(self) -> Collective | None:
        """Its counterpart among samples; ``None`` where samples have none."""
        return _COLLECTIVES.get(self.value)


_COLLECTIVES: Final = {each.value: each for each in Collective}


class Memory(StrEnum):
    """Where the bytes lay."""

    GPU = "gpu"
    HOST = "host"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Member:
    """One rank.  ``host`` as written; ``None`` in files without a rank list."""

    rank: int
    host: str | None
    gpu: int | None = None
    bus_id: str = ""
    product: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One row: bus bandwidth for collectives, plain for point to point.

    ``time_s`` is a latency where the tool gives one.  With neither, what was tried at that size failed.
    """

    line: int
    message_bytes: float | None
    bytes_per_s: float | None
    time_s: float | None = None


class RunEnd(StrEnum):
    """Ending of a test: EXCERPT lacks rows that its own average counts."""

    COMPLETE = "complete"
    FAILED = "failed"
    CUT = "cut"
    EXCERPT = "excerpt"


@dataclass(frozen=True, slots=True)
class RunFact:
    """One test of one tool among ranks.  Out-of-place figures; FAILED keeps the rows that were printed before."""

    origin: Origin
    tool: str
    operation: Operation
    members: tuple[Member, ...]
    ranks: int | None
    hosts: tuple[str, ...]
    points: tuple[Point, ...]
    end: RunEnd = RunEnd.COMPLETE
    end_reason: str = ""
    direction: Direction = Direction.BOTH
    memory: Memory = Memory.GPU
    nodes: int | None = None
    """Nodes, where the file says how many but not which."""
    hosts_missing: bool = False
    """``hosts`` are some of those that took part: the file lists them with gaps."""
    ranks_per_node: int | None = None
    pairs_active: int = 1
    stated_average_bytes_per_s: float | None = None
    measured_at: datetime | None = None


class Quantity(StrEnum):
    """Quantity of the figures of a matrix; ACCESS is 1 where peers reach each other."""

    BANDWIDTH = "bandwidth"
    LATENCY = "latency"
    ACCESS = "access"


@dataclass(frozen=True, slots=True)
class MatrixFact:
    """One table of figures: ``values[i][j]`` is from ``rows[i]`` to ``columns[j]``.

    Whatever way the arrow of the tool points; ``None`` is unknown.
    """

    origin: Origin
    tool: str
    between: str
    """"gpus" or "nodes"."""
    host: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    hosts: Mapping[str, str]
    """Host of each row/column name, where one matrix spans several (nvbandwidth multinode); else empty."""
    quantity: Quantity
    values: tuple[tuple[float | None, ...], ...]
    lines: tuple[int, ...]
    direction: Direction
    operation: Operation = Operation.POINT_TO_POINT
    ranks_per_node: int | None = None
    memory: Memory = Memory.GPU
    peer_access: bool | None = None
    method: str = ""
    """"copy engine read", "sm write", "p2p=enabled"."""
    message_bytes: float | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class PortFact:
    """One network port.  ``bytes_per_s`` is the rate in force, not the card's best."""

    origin: Origin
    host: str | None
    device: str
    guid: str
    up: bool
    bytes_per_s: float | None
    fabric: str
    switch: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class SwitchFact:
    """``level`` counts from the hosts (leaf = 1); 0 where the file has none.

    ``domain`` marks a block (BlockName), which may be an NVLink domain.
    """

    origin: Origin
    name: str
    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    level: int = 0
    domain: bool = False
    up_ports: int | None = None
    down_ports: int | None = None
    alias: str = ""


@dataclass(frozen=True, slots=True)
class HealthFact:
    """Something is wrong with an entity.

    ``entity``: "node", "gpu:PCI..", "nic:ib6".
    """

    origin: Origin
    host: str | None
    entity: str
    state: NodeState
    text: str


Fact = HostFact | WiringFact | RunFact | MatrixFact | PortFact | SwitchFact | HealthFact
