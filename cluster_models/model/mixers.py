"""Sizes of what mixes tokens other than plain attention.

Each says how many parameters it has in a model of ``hidden`` width: ``matrices``, the weights of matrix products,
``small``, those that its heads hold beside them, and ``repeated``, those that every tensor rank holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cluster_models.errors import InvalidModel

MOST_WIDTH: Final = 10**7


def check_sizes(value: object, field: str, **ranges: tuple[int, int]) -> None:
    """Raise ``InvalidModel`` for an attribute of ``value``, the model's ``field``, outside its least and most."""
    for name, (least, most) in ranges.items():
        if not least <= getattr(value, name) <= most:
            raise InvalidModel(f"model.{field}.{name}", getattr(value, name), f"must lie in {least}..{most}")


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    ``query_rank`` is 0 where queries are not compressed (DeepSeek-V2-Lite).
    """

    query_rank: int
    key_value_rank: int
    rope_head_size: int
    nope_head_size: int
    value_head_size: int

    def __post_init__(self) -> None:
        least = {"query_rank": 0}
        check_sizes(self, "latent_attention", **{name: (least.get(name, 1), MOST_WIDTH) for name in self.__slots__})

    def matrices(self, hidden: int, heads: int) -> int:
        """Weights of the projections around the attention of ``heads`` heads."""
        query_width = heads * (self.nope_head_size + self.rope_head_size)
        query = self.query_rank * (hidden + query_width) if self.query_rank else hidden * query_width
        compress = hidden * (self.key_value_rank + self.rope_head_size)
        expand = self.key_value_rank * heads * (self.nope_head_size + self.value_head_size)
        return query + compress + expand + heads * self.value_head_size * hidden

    def compressing(self, hidden: int) -> int:
        """Weights of the matrices that compress, which every tensor rank holds."""
        return hidden * (self.query_rank + self.key_value_rank + self.rope_head_size)


@dataclass(frozen=True, slots=True)
class SparseAttention:
    """An indexer that picks the ``top_k`` earlier tokens a query attends to (DeepSeek-V3.2, arXiv 2512.02556).

    ``heads`` queries of ``head_size`` meet one key of a token; their products, weighed, rank the earlier tokens.
    """

    heads: int
    head_size: int
    top_k: int

    def __post_init__(self) -> None:
        check_sizes(
            self,
            "sparse_attention",
            heads=(1, MOST_WIDTH),
            head_size=(1, MOST_WIDTH),
            top_k=(1, 10**9),
        )

    def matrices(self, hidden: int, query_rank: int) -> int:
        """Weights that make queries (of the compressed ones where there are any), keys and weights of heads."""
        return (query_rank or hidden) * self.heads * self.head_size + hidden * (self.head_size + self.heads)

    @property
    def small(self) -> int:
        """Weight and shift of the norm of its keys."""
        return 2 * self.head_size


class LinearRule(StrEnum):
    """How a token updates the state of a head."""

    GATED_DELTA = "gated_delta"
    """The delta rule with a decay for each head (Gated DeltaNet, arXiv 2412.06464)."""
    CHANNEL_DELTA = "channel_delta"
    """The delta rule with a decay for each channel of the keys (Kimi Delta Attention, arXiv 2510.26692)."""
    DECAY = "decay"
    """A sum that decays at a fixed rate for each head (Lightning Attention, arXiv 2401.04658)."""


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Linear attention; an output gate of the values' width follows it.

    ``convolution``: taps of the convolution over queries, keys and values, 0 = none.  ``gate_rank`` and
    ``decay_rank``: width over which the output gate and the decay of each channel are projected, 0 = at once.
    """

    rule: LinearRule
    key_heads: int
    value_heads: int
    key_head_size: int
    value_head_size: int
    convolution: int = 0
    gate_rank: int = 0
    decay_rank: int = 0

    def __post_init__(self) -> None:
        positive = ("key_heads", "value_heads", "key_head_size", "value_head_size")
        check_sizes(self, "linear_attention", **dict.fromkeys(positive, (1, MOST_WIDTH)))
        others = ("convolution", "gate_rank", "decay_rank")
        check_sizes(self, "linear_attention", **dict.fromkeys(others, (0, MOST_WIDTH)))
        if self.value_heads % self.key_heads:
            raise InvalidModel(
                "model.linear_attention.value_heads", self.value_heads, f"must be a multiple of {self.key_heads}"
            )

    @property
    def key_width(self) -> int:
        """Width of all keys, and of all queries."""
        return self.key_heads * self.key_head_size

    @property
    def value_width(self) -> int:
        """Width of all values, and of the output."""
        return self.value_heads * self.value_head_size

    @property
    def convolved_width(self) -> int:
        """Width of queries, keys and values together."""
        return 2 * self.key_width + self.value_width

    @property
    def in_width(self) -> int:
        """Columns of all products of the layer's input: queries, keys, values, gate and decay."""
        gate = self.gate_rank or self.value_width
        match self.rule:
            case LinearRule.GATED_DELTA:
                decay = 2 * self.value_heads
            case LinearRule.CHANNEL_DELTA:
                decay = self.value_heads + (self.decay_rank or self.key_width)
            case _:
                decay = 0
        return self.convolved_width + gate + decay

    def matrices(self, hidden: int) -> int:
        """Weights of the matrix products."""
        expand = self.gate_rank * self.value_width
        if self.rule is LinearRule.CHANNEL_DELTA:
            expand += self.decay_rank * self.key_width
        return hidden * self.in_width + expand + self.value_width * hidden

    @property
    def small(self) -> int:
        """Taps, rates of decay, and the norm of the output where it is as wide as that."""
        rates = {
            LinearRule.GATED_DELTA: 2 * self.value_heads,
            LinearRule.CHANNEL_DELTA: self.key_heads + self.key_width,
            LinearRule.DECAY: self.value_width,
        }
        return self.convolution * self.convolved_width + rates[self.rule]

    @property
    def repeated(self) -> int:
        """The norm that all heads share."""
        return 0 if self.rule is LinearRule.DECAY else self.value_head_size

    @property
    def state(self) -> int:
        """Elements of the state of one sequence."""
        return self.value_heads * self.key_head_size * self.value_head_size


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A selective state space: Mamba-2 (arXiv 2405.21060), or with ``step_rank`` Mamba (arXiv 2312.00752).

    ``heads`` of ``head_size`` channels with a state of ``state`` each; heads of a group share what writes and reads
    it.  ``convolution``: taps over the channels (Mamba-2: and over what writes and reads the state).  ``norm``: the
    output is normalised (Mamba-2), or steps and what writes and reads (Jamba).  In Mamba each channel is a head,
    whose step is projected from ``step_rank``.
    """

    heads: int
    head_size: int
    state: int
    groups: int = 1
    convolution: int = 4
    convolution_bias: bool = True
    projection_bias: bool = False
    norm: bool = True
    step_rank: int = 0

    def __post_init__(self) -> None:
        check_sizes(
            self,
            "state_space",
            heads=(1, MOST_WIDTH),
            head_size=(1, MOST_WIDTH),
            state=(1, MOST_WIDTH),
            groups=(1, self.heads),
            convolution=(1, MOST_WIDTH),
            step_rank=(0, MOST_WIDTH),
        )
        if self.heads % self.groups:
            raise InvalidModel("model.state_space.groups", self.groups, f"must divide the {self.heads} heads")
        if self.step_rank and self.head_size != 1:
            raise InvalidModel("model.state_space.head_size", self.head_size, "must be 1 with a step_rank (Mamba)")

    @property
    def inner(self) -> int:
        """Channels."""
        return self.heads * self.head_size

    @property
    def convolved_width(self) -> int:
        """Width that the convolution runs over."""
        return self.inner if self.step_rank else self.inner + 2 * self.groups * self.state

    @property
    def in_width(self) -> int:
        """Columns of the product of the layer's input: channels, gate, and in Mamba-2 states' sides and steps."""
        return 2 * self.inner if self.step_rank else self.inner + self.convolved_width + self.heads

    @property
    def selecting(self) -> int:
        """Weights that make steps and what writes and reads the state of the channels (Mamba)."""
        return self.inner * (2 * self.step_rank + 2 * self.state) if self.step_rank else 0

    def matrices(self, hidden: int) -> int:
        """Weights of the matrix products."""
        return hidden * self.in_width + self.selecting + self.inner * hidden

    def small(self, hidden: int) -> int:
        """Taps, rates of decay, steps, what passes by the state, biases, and the norm of the output."""
        taps = self.convolved_width * (self.convolution + self.convolution_bias)
        rates = self.inner * (self.state + 2) if self.step_rank else 3 * self.heads
        norm = 0 if self.step_rank else self.inner * self.norm
        return taps + rates + norm + self.projection_bias * (self.in_width + hidden)

    @property
    def repeated(self) -> int:
        """Norms of the steps and of what writes and reads the state (Jamba)."""
        return self.norm * (self.step_rank + 2 * self.state) if self.step_rank else 0


@dataclass(frozen=True, slots=True)
class WindowHeads:
    """Heads of windowed attention where they differ from those of full attention."""

    heads: int
    kv_heads: int
    head_size: int

    def __post_init__(self) -> None:
        check_sizes(self, "window_heads", **dict.fromkeys(self.__slots__, (1, MOST_WIDTH)))
        if self.heads % self.kv_heads:
            raise InvalidModel("model.window_heads.kv_heads", self.kv_heads, f"must divide the {self.heads} heads")
