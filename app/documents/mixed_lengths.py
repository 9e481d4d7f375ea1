"""Lengths of documents in a training run's sequences, as their owner writes them."""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import Field, model_validator

from app.documents.reading import Count, Document, Number
from app.documents.values import Computed, Holds, ValueDocument
from cluster_models.errors import InvalidInput, InvalidWorkload
from cluster_models.training.mixed_lengths import (
    LARGEST_SIGMA,
    LONGEST_DOCUMENT,
    Balance,
    MixedLengths,
    Packing,
)

_MOST_ROWS: Final = 100_000

Tokens = Annotated[Count, Field(le=LONGEST_DOCUMENT)]


class LogNormalDocument(Document):
    """Lengths whose logarithms are normal."""

    median_tokens: Tokens = Field(description="Median tokens of a document.", examples=[700])
    sigma: Annotated[Number, Field(gt=0, le=LARGEST_SIGMA)] = Field(
        description="Standard deviation of the natural logarithm of a document's tokens.", examples=[1.1]
    )


class MixedLengthsDocument(ValueDocument[MixedLengths]):
    """Documents that fill the sequences: a histogram (``tokens`` and ``counts``) or ``log_normal``, one of them."""

    tokens: Annotated[list[Tokens], Holds("lengths")] = Field(
        default_factory=list,
        max_length=_MOST_ROWS,
        description="Lengths of documents, or the middles of a histogram's bins.",
        examples=[[200, 800, 3000]],
    )
    counts: Annotated[list[Annotated[Number, Field(ge=0)]], Holds("shares")] = Field(
        default_factory=list,
        max_length=_MOST_ROWS,
        description="Documents of each length, in numbers or shares.",
        examples=[[500, 400, 100]],
    )
    log_normal: Annotated[LogNormalDocument | None, Computed(lambda _: None)] = Field(
        None, description="A distribution instead of a histogram.", examples=[None]
    )
    packing: Packing = Field(
        Packing.CUT,
        description="How they fill a sequence: padded (one, to its end), longest (one, to the longest of its "
        "micro-batch), whole (as many as fit, the longest first), cut (one behind the other, cut at the end). A "
        "token attends to its own document only.",
        examples=["whole"],
    )
    balance: Balance = Field(
        Balance.DRAWN,
        description="Which data rank trains on which sequence: drawn (whichever come next), pairs (those of a "
        "step, dealt by attended pairs, most first, back and forth) or even (as if every rank had the mean, "
        "which no dealing beats).",
        examples=["drawn"],
    )

    @model_validator(mode="after")
    def _states_one(self) -> MixedLengthsDocument:
        if bool(self.tokens) == (self.log_normal is not None):
            raise ValueError("state tokens with counts, or log_normal, and not both")
        return self

    def to_value(self) -> MixedLengths:
        """The domain value; raises ``InvalidWorkload`` where tokens and counts do not fit."""
        if (shape := self.log_normal) is not None:
            return MixedLengths.log_normal(shape.median_tokens, shape.sigma, self.packing, self.balance)
        if len(self.tokens) != len(self.counts):
            raise InvalidWorkload(
                "workload.lengths.counts", len(self.counts), f"must be as many as tokens, {len(self.tokens)}"
            )
        counts = dict.fromkeys(self.tokens, 0.0)
        for tokens, count in zip(self.tokens, self.counts, strict=True):
            counts[tokens] += count
        return MixedLengths.of(counts, self.packing, self.balance)


def read_counts(text: str) -> dict[int, float]:
    """Documents by their tokens, of lines ``tokens`` or ``tokens,count``; raises ``InvalidInput`` naming the line.

    Columns are parted by commas, semicolons or blanks; a line of names at the top, and comments (``#``), are left
    out.
    """
    counts: dict[int, float] = {}
    is_first = True
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.partition("#")[0].replace(",", " ").replace(";", " ").split()
        if not cells:
            continue
        try:
            tokens, count = int(cells[0]), float(cells[1]) if len(cells) > 1 else 1.0
        except ValueError:
            if is_first:
                is_first = False
                continue
            tokens, count = 0, 0.0
        is_first = False
        if len(cells) > 2 or not 1 <= tokens <= LONGEST_DOCUMENT or not 0 <= count < math.inf:
            raise InvalidInput(
                f"lengths line {number}", line, "is not a length of a document", "write tokens, or tokens,count"
            )
        counts[tokens] = counts.get(tokens, 0.0) + count
    return counts
