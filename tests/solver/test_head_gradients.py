"""The output head's deferred weight gradients: what they save, cost after the flush and hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.workload import TrainingWorkload
from solver.costs.collectives import domain_collective_s
from solver.costs.step_costs import StepCosts
from tests.solver.cost_cases import H100, candidates, costs, memory

VOCABULARY = 4 * 251 * 128
"""LLAMA_70B's 128,256 entries, padded to a multiple of 128 on each of four tensor ranks."""
ROW = {"tensor": 4, "pipeline": 4, "data": 4}


def workload(micro_batches: int, **facts: Any) -> TrainingWorkload:
    """So many micro-batches of 8,192 tokens on each of four data ranks."""
    framework = replace(DEFAULT_FRAMEWORK, **facts)
    return TrainingWorkload(sequence_length=8192, global_batch=4 * micro_batches, framework=framework)


def priced(micro_batches: int = 32, row: dict[str, int] | None = None, **facts: Any) -> StepCosts:
    """The costs of one candidate."""
    return costs(candidates(row or ROW), workload=workload(micro_batches, **facts))


@given(limit=st.integers(1, 40), micro_batches=st.integers(4, 64))
def test_a_step_computes_every_gradient_once(limit: int, micro_batches: int) -> None:
    """Time that backward passes save comes after the flush, but where the others' last passes leave room."""
    now = priced(micro_batches)
    later = priced(micro_batches, defer_head_gradient=True, head_gradient_limit=limit)
    saved = micro_batches * (now.backward_s[0, -1] - later.backward_s[0, -1])
    idle = now.backward_s[0, :3].sum()
    assert later.optimizer_s[0, -1] - now.optimizer_s[0, -1] == pytest.approx(max(saved - idle, 0.0), abs=1e-9)
    assert (later.optimizer_s[0, :-1] == now.optimizer_s[0, :-1]).all()


def test_a_limit_keeps_the_rest_where_it_was() -> None:
    """A limit of 8 defers a quarter of 32 gradients, 0 and 32 all of them."""
    now, *later = (
        priced(defer_head_gradient=limit is not None, head_gradient_limit=limit or 0).backward_s[0, -1]
        for limit in (None, 0, 8, 32)
    )
    saved = now - np.array(later)
    assert saved[1] == pytest.approx(saved[0] / 4)
    assert saved[2] == pytest.approx(saved[0])


@pytest.mark.parametrize(("limit", "held"), [(0, 32), (22, 22), (50, 32)])
def test_what_waits_is_kept_on_the_last_rank(limit: int, held: int) -> None:
    """By hand: 16-bit logit gradients of a tensor rank and the head's input of its part of the sequence."""
    plain, later = (
        memory(candidates(ROW), workload=workload(32, **facts), micro_batches=32).logits_bytes[0]
        for facts in ({}, {"defer_head_gradient": True, "head_gradient_limit": limit})
    )
    each = 2 * 8192 * (VOCABULARY / 4) + 2 * 8192 * 8192 / 4
    assert later - plain == pytest.approx([0, 0, 0, held * each])


def test_a_single_rank_defers_nothing() -> None:
    """It has no flush in which it idles."""
    row = {"tensor": 8, "data": 4}
    now, later = (priced(32, row, defer_head_gradient=deferred) for deferred in (False, True))
    assert now.backward_s == pytest.approx(later.backward_s)
    assert now.optimizer_s == pytest.approx(later.optimizer_s)


def test_whole_logits_are_gathered_and_held_by_every_tensor_rank() -> None:
    """By hand: a gather of 2 bytes a token and entry; all columns, the own ones and a copy of all in 16 bits."""
    split, whole = ({"whole_logits": each} for each in (False, True))
    gather = domain_collective_s(H100, Collective.ALL_GATHER, np.array([4.0]), np.array([2.0 * 8192 * VOCABULARY]))
    difference = priced(**whole).tensor_s[0] - priced(**split).tensor_s[0]
    assert difference == pytest.approx([0.0, 0.0, 0.0, gather.item()], rel=0.02)
    held = [memory(candidates(ROW), workload=workload(32, **facts)).logits_bytes[0, -1] for facts in (split, whole)]
    kept = DEFAULT_FRAMEWORK.logit_bytes
    assert held[1] == pytest.approx(4.0 * held[0] * (kept + 2.0 * 1.25) / kept)
