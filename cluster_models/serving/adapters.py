"""Low-rank adapters that replicas answer requests with, beside the weights of one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.training.adapters import OUTPUT_MODULES, AdaptedLinear, Adapters, adapted_linears

MOST_ADAPTERS: Final = 10_000
MOST_RANK: Final = 256
"""Largest rank that vLLM takes (vllm/config/lora.py)."""
ELEMENT_BYTES: Final = 2.0
"""Engines keep adapters in 16 bits, whatever the format of the weights."""


@dataclass(frozen=True, slots=True)
class ServedAdapters:
    """``count`` adapters of ``rank`` beside every linear layer, each named by as many requests.

    ``resident`` of them lie on the GPUs of a replica at a time (``None``: all), the others in the host's memory.
    """

    count: int
    rank: int
    resident: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("count", MOST_ADAPTERS), ("rank", MOST_RANK)):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidWorkload(f"workload.adapters.{name}", getattr(self, name), f"must lie in 1..{most}")
        if self.resident is not None and not 1 <= self.resident <= self.count:
            problem = f"must lie in 1..{self.count}, the adapters that there are"
            raise InvalidWorkload("workload.adapters.resident", self.resident, problem)

    @property
    def held(self) -> int:
        """Adapters on the GPUs of a replica."""
        return self.count if self.resident is None else self.resident

    @property
    def missing_share(self) -> float:
        """Share of the requests whose adapter has to come from the host first."""
        return 1.0 - self.held / self.count

    def linears(self, architecture: Architecture) -> Iterator[AdaptedLinear]:
        """The linear layers with an adapter, of all layers; each matrix product has its own."""
        for kind in (architecture.layer_kinds[number] for number in architecture.kind_numbers):
            yield from adapted_linears(architecture, kind, Adapters(self.rank), fused=False)

    def gpu_bytes(self, architecture: Architecture, tensor: int) -> float:
        """Bytes of one adapter, all layers, on one of ``tensor`` ranks.

        Beside a product whose outputs are shared out ranks hold all of the first matrix and their part of the
        second; where the inputs are, the reverse (vLLM, vllm/lora/layers).
        """
        elements = 0.0
        for linear in self.linears(architecture):
            cut, whole = (
                (linear.inputs, linear.outputs)
                if linear.module in OUTPUT_MODULES
                else (linear.outputs, linear.inputs)
            )
            elements += self.rank * (cut / tensor + whole)
        return elements * ELEMENT_BYTES
