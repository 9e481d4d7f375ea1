"""The kernels of a training step that ``benchmarks.kernels`` measures and predicts, at the sizes of real plans.

Letters: m, n, k extents of a matrix product (m x k) @ (k x n).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np

from cluster_models.architecture import Architecture
from cluster_models.errors import InvalidConfiguration
from cluster_models.gpus import Precision
from cluster_models.model_catalogue import catalogue_model
from solver.layer_costs import projections
from solver.local_sizes import LocalSizes

MODELS: Final = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b", "deepseek-v3")
TENSOR_SIZES: Final = (1, 2, 4, 8)
TOKENS: Final = (1024, 2048, 4096, 8192, 16384)
EXPERT_RANKS: Final = {"mixtral-8x7b": (1, 2, 4, 8), "deepseek-v3": (8, 16, 32, 64)}
HEADS: Final = ((32, 8, 128), (16, 4, 128), (8, 1, 128), (64, 8, 64), (16, 16, 64))
"""(heads, key/value heads, head size) of one GPU: Llama 3 8B whole and halved, 70B over 8 GPUs, narrow heads."""
ADAM_BYTES: Final = 28.0
"""Per FP32 parameter: gradient read, weight and both moments read and written."""


class Direction(StrEnum):
    """Which of a linear layer's three products, or of attention's two passes."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product, its result in 16 bits; ``tensor`` is the tensor size that led to these extents."""

    precision: Precision
    direction: Direction
    m: int
    n: int
    k: int
    tensor: int


@dataclass(frozen=True, slots=True)
class LongRun:
    """A large 16-bit product repeated for ``held_s``: what heat and the power limit leave."""

    m: int
    n: int
    k: int
    held_s: float


@dataclass(frozen=True, slots=True)
class Grouped:
    """``groups`` 16-bit products of one direction, launched together, of experts with ``m`` tokens each.

    As in ``Product`` the extents are those of the product itself: a weight gradient contracts over tokens (k).
    """

    direction: Direction
    groups: int
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal attention of one sequence in 16 bits; ``head_size`` of keys and of values."""

    direction: Direction
    heads: int
    kv_heads: int
    head_size: int
    sequence: int


class Operation(StrEnum):
    """Memory-bound work."""

    COPY = "copy"
    NORM = "norm"
    GATED_ACTIVATION = "gated_activation"
    ADAM = "adam"


@dataclass(frozen=True, slots=True)
class Streaming:
    """Memory-bound work on ``rows`` x ``width`` elements of its result; ``moved_bytes`` counts reads and writes."""

    operation: Operation
    rows: int
    width: int
    moved_bytes: float


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with nothing to do, in a queue of ``queued``."""

    queued: int


Kernel = Product | LongRun | Grouped | Attention | Streaming | Launch

FAMILIES: Final[dict[str, type[Kernel]]] = {
    "product": Product,
    "long_run": LongRun,
    "grouped": Grouped,
    "attention": Attention,
    "streaming": Streaming,
    "launch": Launch,
}
_ENUMS: Final = {"precision": Precision, "direction": Direction, "operation": Operation}
_LINEAR_DIRECTIONS: Final = (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)


def as_row(kernel: Kernel) -> dict[str, Any]:
    """``kernel`` as plain JSON values with its family."""
    family = next(name for name, kind in FAMILIES.items() if isinstance(kernel, kind))
    return {"family": family, **asdict(kernel)}


def from_row(row: dict[str, Any]) -> Kernel:
    """The kernel of a row of ``as_row``, further keys left aside; raises ``InvalidConfiguration``."""
    kind = FAMILIES.get(row.get("family", ""))
    if kind is None:
        raise InvalidConfiguration("kernels.family", row.get("family"), f"must be one of {', '.join(FAMILIES)}")
    try:
        values: dict[str, Any] = {name: _ENUMS.get(name, _as_is)(row[name]) for name in kind.__slots__}
    except KeyError as missing:
        raise InvalidConfiguration(f"kernels.{missing.args[0]}", None, "is missing") from missing
    except ValueError as wrong:
        raise InvalidConfiguration("kernels", row, str(wrong)) from wrong
    return kind(**values)


def _as_is(value: Any) -> Any:
    return value


def planned_kernels() -> list[Kernel]:
    """Every kernel to measure on a GPU, none twice."""
    kernels: list[Kernel] = [LongRun(8192, 8192, 8192, held_s=10.0), Launch(200)]
    for name in MODELS:
        for tensor in TENSOR_SIZES:
            for tokens in TOKENS:
                shapes = linear_shapes(catalogue_model(name), tokens=tokens, tensor=tensor)
                kernels += [product for shape in shapes for product in products(*shape, tensor=tensor)]
    kernels += [
        kernel
        for name, ranks in EXPERT_RANKS.items()
        for tokens in (4096, 8192)
        for kernel in expert_products(catalogue_model(name), tokens=tokens, ranks=ranks)
    ]
    kernels += [
        Attention(direction, *heads, sequence)
        for heads in HEADS
        for sequence in TOKENS
        for direction in (Direction.FORWARD, Direction.BACKWARD)
    ]
    kernels += [kernel for width in (4096, 8192) for rows in TOKENS for kernel in streams(rows, width)]
    kernels += [adam(parameters) for parameters in (10**8, 10**9)]
    return list(dict.fromkeys(kernels))


def small_kernels() -> list[Kernel]:
    """One of every kind in sizes that any machine runs in a moment."""
    return [
        LongRun(64, 64, 64, held_s=0.01),
        Launch(10),
        *products(32, 64, 48, tensor=1),
        *(Grouped(direction, 4, 16, 32, 16) for direction in _LINEAR_DIRECTIONS),
        *(Attention(direction, 4, 2, 32, 64) for direction in (Direction.FORWARD, Direction.BACKWARD)),
        *streams(32, 64),
        adam(1000),
    ]


def linear_shapes(architecture: Architecture, *, tokens: int, tensor: int) -> list[tuple[int, int, int]]:
    """(m, n, k) of one layer's linear layers on one of ``tensor`` GPUs, a dense or shared MLP included."""
    sizes = LocalSizes(
        sequence=float(tokens),
        micro_batch=np.ones(1),
        tensor=np.array([float(tensor)]),
        context=np.ones(1),
        expert=np.ones(1),
        tokens=np.array([float(tokens)]),
        shard_tokens=np.array([tokens / tensor]),
        stream_tokens=np.array([tokens / tensor]),
        full_recompute=np.zeros(1, dtype=np.bool_),
        selective_recompute=np.zeros(1, dtype=np.bool_),
        saved_input_bytes=2.0,
    )
    shapes = [tuple(_whole(extent) for extent in shape) for shape in projections(architecture, sizes)]
    widths = {architecture.mlp_hidden, architecture.experts.shared_hidden if architecture.experts else 0}
    for width in sorted(widths - {0}):
        gated = (2 if architecture.gated_mlp else 1) * width // tensor
        shapes += [(tokens, gated, architecture.hidden), (tokens, architecture.hidden, width // tensor)]
    return [(m, n, k) for m, n, k in shapes]


def _whole(extent: Any) -> int:
    return int(np.asarray(extent).reshape(-1)[0])


def products(m: int, n: int, k: int, *, tensor: int) -> Iterator[Product]:
    """The three products of a linear layer with an m x k input and k x n weights, in both precisions."""
    extents = ((m, n, k), (m, k, n), (k, n, m))
    for precision in (Precision.BF16, Precision.FP8):
        for direction, shape in zip(_LINEAR_DIRECTIONS, extents, strict=True):
            yield Product(precision, direction, *shape, tensor)


def expert_products(architecture: Architecture, *, tokens: int, ranks: Sequence[int]) -> Iterator[Grouped]:
    """Products of the experts of one of ``ranks`` expert ranks, which each send ``tokens`` tokens, all alike."""
    experts = architecture.experts
    if experts is None:
        return
    h, fan = architecture.hidden, 2 if architecture.gated_mlp else 1
    for size in ranks:
        groups = experts.count // size
        rows = tokens * experts.active // groups
        for n, k in ((fan * experts.hidden, h), (h, experts.hidden)):
            for direction, shape in zip(
                _LINEAR_DIRECTIONS, ((rows, n, k), (rows, k, n), (k, n, rows)), strict=True
            ):
                yield Grouped(direction, groups, *shape)


def streams(rows: int, width: int) -> Iterator[Streaming]:
    """Copy and norm read and write an element, a gated activation reads two and writes one; 16 bits each."""
    for operation, accesses in ((Operation.COPY, 2), (Operation.NORM, 2), (Operation.GATED_ACTIVATION, 3)):
        yield Streaming(operation, rows, width, 2.0 * accesses * rows * width)


def adam(parameters: int) -> Streaming:
    """One fused Adam step over FP32 parameters."""
    return Streaming(Operation.ADAM, parameters, 1, ADAM_BYTES * parameters)
