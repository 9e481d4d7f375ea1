"""Seconds of the steps of one worker as tables between which a simulation interpolates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeVar

import numpy as np

from solver.serving.cases import Arrays
from solver.serving.loads import FloatArray, Loads
from solver.serving.rates import Rates
from solver.serving.steps import decode_step, prefill_step

Columns = TypeVar("Columns", Loads, Rates)
BATCHES: Final = 40
"""Batch sizes of the table of decode steps, in geometric order."""
PROMPTS: Final = 48
"""Prompt lengths of the table of prefills, likewise."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTables:
    """Decode seconds by batch at an empty context, their growth by token of context, and prefill by tokens.

    ``prefill_s`` is a step of so many ``tokens`` of a rank without attention and experts, ``attention_s`` attention
    of one prompt of as many, ``expert_s`` the experts where all ``ranks`` have as many.
    """

    batches: FloatArray
    decode_s: FloatArray
    context_s: FloatArray
    tokens: FloatArray
    prefill_s: FloatArray
    attention_s: FloatArray
    expert_s: FloatArray
    ranks: float

    def decode(self, batch: float, context: float) -> float:
        """Seconds of a decode step of ``batch`` sequences of ``context`` tokens on average."""
        return float(
            np.interp(batch, self.batches, self.decode_s) + context * np.interp(batch, self.batches, self.context_s)
        )

    def prefill(self, prompts: Sequence[tuple[float, float]]) -> float:
        """Seconds of a step that takes prompts on, each from so many tokens to so many, side by side on ranks."""
        ends = np.array(prompts)
        tokens = ends[:, 1] - ends[:, 0]
        rank = max(float(tokens.max()), float(tokens.sum()) / self.ranks)
        body = np.interp(rank, self.tokens, self.prefill_s)
        experts = np.interp(float(tokens.sum()) / self.ranks, self.tokens, self.expert_s)
        attention = np.interp(ends, self.tokens, self.attention_s, left=0.0) @ (-1.0, 1.0)
        return float(body + experts) + max(float(attention.max()), float(attention.sum()) / self.ranks)


def step_tables(arrays: Arrays, rates: Rates, *, context: float, longest: float) -> StepTables:
    """Tables of the first case of ``arrays``, for prompts up to ``longest``.

    Decode steps grow as they do around ``context`` tokens.
    """
    traffic = arrays.traffic
    most = float(traffic.most_sequences[0])
    batches = np.unique(np.round(np.geomspace(1.0, max(most, 2.0), BATCHES)))
    here = _repeated(rates, len(batches))
    drafts = np.full(len(batches), traffic.drafts[0])
    decode = _repeated(arrays.decode, len(batches))
    low, high = (
        decode_step(decode, here, batches, np.full(len(batches), share * context), drafts).total_s
        for share in (0.5, 1.5)
    )
    largest = max(longest, float(traffic.chunk_tokens[0]), 2.0)
    ones, ranks = np.ones(PROMPTS), float(arrays.prefill.attention_data[0])
    tokens = np.geomspace(1.0 / ranks, largest, PROMPTS)
    prefill = prefill_step(
        _repeated(arrays.prefill, PROMPTS), _repeated(rates, PROMPTS), tokens, ranks * ones, ones, ones
    )
    return StepTables(
        batches,
        1.5 * low - 0.5 * high,
        (high - low) / context,
        tokens,
        prefill.total_s - prefill.attention_s - prefill.expert_s,
        prefill.attention_s,
        prefill.expert_s,
        ranks,
    )


def _repeated(value: Columns, times: int) -> Columns:
    return type(value)(**{each.name: np.repeat(getattr(value, each.name)[:1], times) for each in fields(value)})
