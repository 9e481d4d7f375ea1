"""Pace of data ranks that train on documents of mixed lengths, against simulations one micro-batch at a time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import framework
from cluster_models.training.mixed_lengths import Balance, MixedLengths, Packing
from cluster_models.training.packing import packed_sequences
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.costs.attended import attended
from tests.solver.cost_cases import LLAMA_70B, MIXTRAL, candidates, costs, memory
from tests.solver.naive_schedule import event_ends

FRAMEWORK = replace(framework("megatron-core-0.12"), packings=tuple(Packing), megatron_core=0)
COUNTS = {300: 60.0, 1500: 30.0, 8000: 10.0}
SHORT = TrainingWorkload(
    sequence_length=8192, global_batch=64, framework=FRAMEWORK, lengths=MixedLengths.of(COUNTS, Packing.LONGEST)
)


def with_lengths(packing: Packing, balance: Balance = Balance.DRAWN) -> TrainingWorkload:
    """The workload with documents that fill sequences so."""
    return replace(SHORT, lengths=MixedLengths.of(COUNTS, packing, balance))


def simulated_pairs(
    packing: Packing, balance: Balance, *, data: int, pipeline: int, virtual: int, micro: int
) -> float:
    """Pairs of a sequence that, were all like it, would make a step as long: the mean of steps drawn at random."""
    pool = packed_sequences(MixedLengths.of(COUNTS, packing), 8192).pairs().tolist()
    chance, steps = random.Random(3), 60  # noqa: S311 - reproducible
    count = 64 // data // micro
    equal = max(
        event_ends(pipeline, virtual, count, lambda kind, _: 2.0 if kind == "B" else 1.0, lambda *_: 0.0).values()
    )
    total = 0.0
    for _ in range(steps):
        step = chance.choices(pool, k=64)
        if balance is Balance.PAIRS:
            step.sort(reverse=True)
        ranks: list[list[float]] = [[] for _ in range(data)]
        for turn in range(64 // data):
            row = step[turn * data : (turn + 1) * data]
            for rank, pairs in enumerate(row[::-1] if turn % 2 and balance is Balance.PAIRS else row):
                ranks[rank].append(pairs)
        merge = max if packing is Packing.LONGEST else np.mean
        loads = [
            [float(merge(each[first : first + micro])) for first in range(0, len(each), micro)] for each in ranks
        ]
        total += max(
            max(
                event_ends(
                    pipeline, virtual, count, lambda kind, _: 2.0 if kind == "B" else 1.0, lambda *_: 0.0, loads=own
                ).values()
            )
            for own in loads
        )
    return total / steps / equal


@pytest.mark.parametrize(
    ("packing", "balance", "sizes"),
    [
        (Packing.LONGEST, Balance.DRAWN, (8, 1, 1, 2)),
        (Packing.WHOLE, Balance.DRAWN, (16, 1, 1, 1)),
        (Packing.WHOLE, Balance.DRAWN, (4, 4, 1, 1)),
        (Packing.CUT, Balance.DRAWN, (2, 4, 2, 2)),
        (Packing.CUT, Balance.PAIRS, (8, 2, 1, 1)),
    ],
)
def test_the_pace_is_that_of_a_simulation(
    packing: Packing, balance: Balance, sizes: tuple[int, int, int, int]
) -> None:
    """Ranks wait for the one with most pairs, its stages for the longest micro-batches under way."""
    data, pipeline, virtual, micro = sizes
    row = {"data": data, "pipeline": pipeline, "virtual_pipeline": virtual, "micro_batch": micro}
    found = np.atleast_1d(attended(candidates(row), with_lengths(packing, balance)).pairs())[0]
    expected = simulated_pairs(packing, balance, data=data, pipeline=pipeline, virtual=virtual, micro=micro)
    assert found == pytest.approx(expected, rel=0.06)


def test_nothing_beats_ranks_that_are_all_alike() -> None:
    """Dealing by pairs lies between the mean and chance; ranks in step wait longer."""
    row = candidates({"data": 16}, {"data": 16, "sharding": SHARDING_CODES.index(Sharding.PARAMETERS)})
    even, dealt, chance = (
        attended(row, with_lengths(Packing.WHOLE, each)).pairs()
        for each in (Balance.EVEN, Balance.PAIRS, Balance.DRAWN)
    )
    assert (even <= dealt).all()
    assert (dealt < chance).all()
    assert chance[0] < chance[1]


@pytest.mark.parametrize("model", [LLAMA_70B, MIXTRAL])
@pytest.mark.parametrize("packing", Packing)
def test_documents_as_long_as_a_sequence_cost_what_sequences_do(model: Architecture, packing: Packing) -> None:
    """Times and memory are those without lengths, on one context rank."""
    row = candidates({"tensor": 8, "data": 4})
    whole = replace(SHORT, lengths=None)
    one = replace(SHORT, lengths=MixedLengths.of({8192: 1.0}, packing))
    assert costs(row, model, one).forward_s == pytest.approx(costs(row, model, whole).forward_s)
    assert memory(row, model, one).total_bytes == pytest.approx(memory(row, model, whole).total_bytes)


def test_memory_holds_the_longest_document() -> None:
    """Where sequences are as long as their documents time follows the pace, memory the longest."""
    row, whole = candidates({"tensor": 8, "data": 4}), replace(SHORT, lengths=None)
    short = replace(SHORT, lengths=MixedLengths.of({300: 99.0, 8192: 1.0}, Packing.LONGEST))
    assert memory(row, workload=short).total_bytes == pytest.approx(memory(row, workload=whole).total_bytes)
    assert (costs(row, workload=short).forward_s < 0.3 * costs(row, workload=whole).forward_s).all()


def test_context_ranks_pad_every_document() -> None:
    """Two pieces of each on every rank: half of them all for each document in the mean."""
    row = candidates({"context": 4, "data": 2}, {"data": 2})
    packed = with_lengths(Packing.CUT)
    documents = packed_sequences(MixedLengths.of(COUNTS, Packing.CUT), 8192).documents
    split, whole = np.broadcast_to(attended(row, packed).tokens(row.context.astype(float)), 2)
    assert whole == 8192
    assert split == pytest.approx(8192 + 3.5 * documents)
