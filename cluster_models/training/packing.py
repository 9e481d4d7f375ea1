"""Sequences as documents of mixed lengths fill them.

A sample of documents, with every length as often as its share says, is packed once; all figures are means over its
sequences.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.training.mixed_lengths import MixedLengths, Packing

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SEQUENCES: Final = 512
"""Sequences that a sample fills, if that takes no more than ``_MOST_DOCUMENTS``."""
_FEWEST_DOCUMENTS: Final = 8192
_MOST_DOCUMENTS: Final = 65_536
MOST_IN_SEQUENCE: Final = 4096
"""Documents that a sequence may hold in the mean: a sample then fills 16 at least."""
_SEED: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class PackedSequences:
    """A sample of sequences of up to ``length`` tokens.

    ``tokens`` (pieces,): tokens of each document, or of a piece of one, that attends to itself only; ``sequence``
    (pieces,): its sequence, in increasing order.  ``real``: mean tokens of a sequence that are not padding.
    """

    length: int
    tokens: IntArray
    sequence: IntArray
    real: float

    @property
    def documents(self) -> float:
        """Mean documents, or pieces of one, of a sequence."""
        return len(self.tokens) / (float(self.sequence[-1]) + 1.0)

    @property
    def filled(self) -> float:
        """Share of a sequence of full length that is not padding."""
        return self.real / self.length

    def pairs(self, window: float | None = None, *, chunked: bool = False) -> FloatArray:
        """(sequences,) attended pairs: d*w - w*w/2 of a document of d tokens in a window of w, d*d/2 without.

        In fixed blocks of w tokens, d*w/2.  Padding attends to nothing, unless it belongs to a document's sequence
        of its own (``Packing.PADDED``).
        """
        tokens = self.tokens.astype(np.float64)
        widths = tokens if window is None else np.minimum(tokens, window)
        pairs = tokens * widths / 2.0 if chunked else tokens * widths - widths * widths / 2.0
        return np.bincount(self.sequence, weights=pairs).astype(np.float64)

    def span(self, window: float | None = None) -> float:
        """Tokens of a document, or of the window in it: the mean over the pairs that attend."""
        tokens = self.tokens.astype(np.float64)
        widths = tokens if window is None else np.minimum(tokens, window)
        pairs = tokens * widths - widths * widths / 2.0
        return float(np.average(widths, weights=pairs))


@lru_cache(maxsize=64)
def packed_sequences(mixed: MixedLengths, length: int) -> PackedSequences:
    """A sample of the sequences of ``length`` tokens that documents of ``mixed`` lengths fill.

    With ``Packing.LONGEST`` sequences are as long as their document; how far a micro-batch pads them depends on
    its others.
    """
    documents = _sample(mixed, length)
    if mixed.packing is Packing.CUT:
        ends = np.unique(np.concatenate([np.cumsum(documents), np.arange(0, documents.sum(), length)[1:]]))
        ends = ends[ends <= max(length, ends[-1] // length * length)]
        return PackedSequences(length, np.diff(ends, prepend=0), (ends - 1) // length, float(length))
    pieces = _pieces(documents, length)
    if mixed.packing is Packing.WHOLE:
        tokens, sequence = _best_fit(pieces, length)
    else:
        tokens, sequence = pieces, np.arange(len(pieces))
    real = float(pieces.sum()) / (int(sequence[-1]) + 1)
    if mixed.packing is Packing.PADDED:
        tokens = np.full_like(pieces, length)
    return PackedSequences(length, tokens, sequence, real)


def document_tokens(mixed: MixedLengths, length: int) -> tuple[IntArray, FloatArray]:
    """Tokens of documents, or of pieces of them, in sequences of ``length``, and the share of all real tokens."""
    if mixed.packing is Packing.PADDED:
        tokens = _pieces(_sample(mixed, length), length)
    else:
        tokens = packed_sequences(mixed, length).tokens
    lengths, counts = np.unique(tokens, return_counts=True)
    weights = lengths * counts
    return lengths, np.asarray(weights / weights.sum())


def in_words(mixed: MixedLengths, length: int) -> str:
    """The documents of a sequence: "documents of 1,240 tokens in the mean, 6.6 a sequence, each whole"."""
    packed = packed_sequences(mixed, length)
    mean = f"{mixed.mean:,.0f} tokens in the mean"
    match mixed.packing:
        case Packing.PADDED:
            return f"one document of {mean} a sequence, padded to its end"
        case Packing.LONGEST:
            return f"one document of {mean} a sequence, padded to the longest of its micro-batch"
        case Packing.WHOLE:
            return f"documents of {mean}, {packed.documents:.1f} a sequence, each whole"
        case Packing.CUT:
            return f"documents of {mean}, {packed.documents:.1f} a sequence, cut where it ends"


def _sample(mixed: MixedLengths, length: int) -> IntArray:
    """Documents in the order of a fixed draw, each length as often as its share says."""
    wanted = _SEQUENCES * length / mixed.mean
    count = int(np.clip(wanted, _FEWEST_DOCUMENTS, _MOST_DOCUMENTS))
    bounds = np.round(np.cumsum(mixed.shares) * count).astype(np.int64)
    times = np.diff(bounds, prepend=0)
    documents = np.repeat(np.array(mixed.lengths, dtype=np.int64), times)
    np.random.default_rng(_SEED).shuffle(documents)
    return documents


def _pieces(documents: IntArray, length: int) -> IntArray:
    """Documents, and those longer than ``length`` in pieces of it and a rest."""
    whole, rest = np.divmod(documents, length)
    pieces = np.concatenate([np.full(int(whole.sum()), length, dtype=np.int64), rest[rest > 0]])
    return np.random.default_rng(_SEED).permutation(pieces)


def _best_fit(pieces: IntArray, length: int) -> tuple[IntArray, IntArray]:
    """Pieces and their sequence, each piece, the longest first, where the least room is left that takes it."""
    rooms: list[tuple[int, int]] = []
    found, count = [], 0
    for tokens in np.sort(pieces)[::-1].tolist():
        place = bisect_left(rooms, (tokens, 0))
        if place < len(rooms):
            room, sequence = rooms.pop(place)
        else:
            room, sequence, count = length, count, count + 1
        found.append((sequence, tokens))
        if room > tokens:
            insort(rooms, (room - tokens, sequence))
    found.sort()
    order = np.array(found, dtype=np.int64)
    return order[:, 1], order[:, 0]
