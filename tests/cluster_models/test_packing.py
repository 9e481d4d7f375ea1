"""Sequences that documents of mixed lengths fill, against packing by hand of documents drawn one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.errors import InvalidWorkload
from cluster_models.model.flops import model_flops_per_token
from cluster_models.training.frameworks import framework
from cluster_models.training.mixed_lengths import LONGEST_DOCUMENT, MixedLengths, Packing
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.packing import packed_sequences
from cluster_models.training.workload import TrainingWorkload
from tests.solver.problems import DENSE

LENGTH = 1000
COUNTS = {120: 50.0, 300: 30.0, 640: 15.0, 2500: 5.0}
Sequences = list[list[int]]


def drawn(count: int) -> list[int]:
    """Documents drawn with the shares of ``COUNTS``."""
    chance = random.Random(7)  # noqa: S311 - reproducible
    return chance.choices(list(COUNTS), list(COUNTS.values()), k=count)


def pieces_of(document: int) -> list[int]:
    """A document in pieces of a sequence, and a rest."""
    whole, rest = divmod(document, LENGTH)
    return [LENGTH] * whole + [rest] * (rest > 0)


def by_hand(documents: Sequence[int], packing: Packing) -> Sequences:
    """Tokens of the documents of every sequence."""
    sequences: Sequences = []
    if packing is Packing.CUT:
        room = 0
        for document in documents:
            left = document
            while left:
                if not room:
                    sequences.append([])
                    room = LENGTH
                taken = min(left, room)
                sequences[-1].append(taken)
                left, room = left - taken, room - taken
        return sequences[:-1]
    pieces = [piece for document in documents for piece in pieces_of(document)]
    if packing is not Packing.WHOLE:
        return [[piece] for piece in pieces]
    for piece in sorted(pieces, reverse=True):
        rooms = [LENGTH - sum(sequence) for sequence in sequences]
        fitting = [(room, index) for index, room in enumerate(rooms) if room >= piece]
        if fitting:
            sequences[min(fitting)[1]].append(piece)
        else:
            sequences.append([piece])
    return sequences


@pytest.mark.parametrize("packing", Packing)
def test_sequences_are_those_packed_by_hand(packing: Packing) -> None:
    """Real tokens, documents and attended pairs of a sequence, with and without a window."""
    sequences = by_hand(drawn(1500 if packing is Packing.WHOLE else 20_000), packing)
    found = packed_sequences(MixedLengths.of(COUNTS, packing), LENGTH)
    real = sum(map(sum, sequences)) / len(sequences)
    assert found.real == pytest.approx(real, rel=0.02)
    assert found.documents == pytest.approx(sum(map(len, sequences)) / len(sequences), rel=0.02)
    if packing is Packing.PADDED:
        sequences = [[LENGTH]]
    for window in (None, 200):
        pairs = [
            sum(sum(min(at, window or at) for at in range(tokens)) for tokens in each) for each in sequences[:600]
        ]
        assert found.pairs(window).mean() == pytest.approx(sum(pairs) / len(pairs), rel=0.06)


@pytest.mark.parametrize("packing", Packing)
def test_flops_are_those_of_each_token_in_its_document(packing: Packing) -> None:
    """Mean over real tokens; a single length that fills the sequence is the workload without lengths."""
    generation = replace(framework("transformers-2025"), packings=tuple(Packing))
    asked = TrainingWorkload(sequence_length=LENGTH, global_batch=8, framework=generation)
    whole = model_flops_per_token(DENSE, LENGTH)
    one = replace(asked, lengths=MixedLengths.of({LENGTH: 1.0}, packing))
    assert workload_flops_per_token(DENSE, one) == pytest.approx(whole)
    assert one.tokens_per_step == asked.tokens_per_step
    mixed = replace(asked, lengths=MixedLengths.of(COUNTS, packing))
    pieces = [piece for sequence in by_hand(drawn(1500), packing) for piece in sequence]
    expected = sum(piece * model_flops_per_token(DENSE, piece) for piece in pieces) / sum(pieces)
    assert workload_flops_per_token(DENSE, mixed) == pytest.approx(expected, rel=0.01)


@given(st.dictionaries(st.integers(1, LONGEST_DOCUMENT), st.floats(0.01, 1e6), min_size=1, max_size=2000))
def test_a_histogram_keeps_its_mean(counts: dict[int, float]) -> None:
    """However many lengths it has, of which no more than a few hundred stay."""
    total = sum(counts.values())
    mean = sum(length * count for length, count in counts.items()) / total
    assert MixedLengths.of(counts).mean == pytest.approx(mean, rel=1e-6, abs=1.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lengths": MixedLengths.of({100: 1.0}, Packing.WHOLE)}, "does not fill sequences so"),
        (
            {
                "lengths": MixedLengths.of({700: 1.0}, Packing.WHOLE),
                "framework": framework("megatron-bridge-26.02"),
                "pinned": {"micro_batch": 2},
            },
            "one a micro-batch",
        ),
        (
            {"lengths": MixedLengths.of({2: 1.0}, Packing.PADDED), "sequence_length": 100_000},
            "by the thousand",
        ),
    ],
)
def test_what_cannot_be_filled_is_refused(changes: dict[str, Any], problem: str) -> None:
    """Field and reason."""
    with pytest.raises(InvalidWorkload, match=problem):
        TrainingWorkload(**({"sequence_length": 8192, "global_batch": 8} | changes))


@pytest.mark.parametrize(
    ("lengths", "shares"),
    [((), ()), ((5, 3), (0.5, 0.5)), ((3, 5), (0.5, 0.6)), ((0,), (1.0,)), ((3,), (0.5, 0.5))],
)
def test_distributions_that_are_none_are_refused(lengths: tuple[int, ...], shares: tuple[float, ...]) -> None:
    """Lengths increase, shares add up."""
    with pytest.raises(InvalidWorkload):
        MixedLengths(lengths, shares)
