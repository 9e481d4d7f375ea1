"""Backward passes in two parts: what each takes, what waits between them, bounds of schedules that split them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.training.frameworks import framework
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Recompute
from solver.candidates import RECOMPUTE_CODES, SCHEDULE_CODES, CandidateBatch
from solver.costs.calibration import calibration_of
from solver.costs.in_flight import held_at_peaks
from solver.costs.step_costs import StepCosts
from solver.degrees.other_orders import least_ends, simulated_ends
from solver.pipeline.schedule import events_of_chunk
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, behaviour, candidates, costs, memory
from tests.solver.pipeline_orders import Sizes, actions, other_sizes, stages_of

TORCHTITAN = framework("torchtitan-2025")
IN_TURN = PipelineSchedule.ONE_F_ONE_B


def batch_under(schedule: PipelineSchedule, **row: int) -> CandidateBatch:
    """A candidate on four ranks with two virtual stages under ``schedule``."""
    return candidates(
        {"pipeline": 4, "virtual_pipeline": 2, "tensor": 2, **row, "schedule": SCHEDULE_CODES.index(schedule)}
    )


def priced(schedule: PipelineSchedule, *, fused: bool = True, **row: int) -> StepCosts:
    """Costs of Llama 3 70B under torchtitan, whose stages may be compiled (``fused``)."""
    calibration = calibration_of(H100, replace(TORCHTITAN, fused_kernels=fused))
    return costs(batch_under(schedule, **row), calibration=calibration)


def test_both_parts_are_the_whole_backward_of_uncompiled_stages() -> None:
    """PyTorch cannot cut what it compiled; without that the parts add up to what 1F1B takes."""
    split, whole, compiled = priced(PipelineSchedule.ZB_V), priced(IN_TURN, fused=False), priced(IN_TURN)
    np.testing.assert_allclose(np.sort(split.backward_s), np.sort(whole.backward_s))
    np.testing.assert_allclose(np.sort(split.forward_s), np.sort(whole.forward_s))
    assert (split.forward_s > np.sort(compiled.forward_s)[:, 0]).all()
    assert (whole.weight_s == 0).all()


def test_weights_take_their_products_and_no_collective() -> None:
    """A product a linear layer, as long as its forward; attention, norms and all-to-alls are the other part's."""
    split = priced(PipelineSchedule.ZB_V)
    assert (split.weight_s > 0.8 * (split.forward_s - split.tensor_s)).all()
    assert (split.weight_s < split.backward_s / 2).all()


@pytest.mark.parametrize(("kept", "gathers"), [(True, False), (False, True)])
def test_weights_need_their_input_gathered_again_unless_it_was_kept(kept: bool, gathers: bool) -> None:
    """Ranks that start collectives later delay this part only where it has one (arXiv 2205.05198, 4.2.2)."""
    batch, own = batch_under(PipelineSchedule.ZB_V), behaviour(keeps_gathered_inputs=kept)
    prompt, late = (
        costs(batch, calibration=replace(own, collective_skew_s=skew_s)).weight_s for skew_s in (0.0, 1e-3)
    )
    assert (late > prompt).all() == gathers
    assert (late == prompt).all() != gathers


def test_both_parts_compute_again_what_was_not_kept() -> None:
    """PyTorch's checkpoints run once for each part: twice a forward of every layer, its collectives included."""
    full = {"recompute": RECOMPUTE_CODES.index(Recompute.FULL)}
    without, whole = priced(PipelineSchedule.ZB_V), priced(PipelineSchedule.ZB_V, fused=True, **full)
    once = priced(IN_TURN, fused=False, **full).backward_s - priced(IN_TURN, fused=False).backward_s
    again = whole.backward_s - without.backward_s
    np.testing.assert_allclose(np.sort(again), 2 * np.sort(once))
    np.testing.assert_allclose(whole.weight_s - without.weight_s, again / 2)


def test_the_head_of_a_v_is_on_the_first_rank() -> None:
    """Embedding and head share it, and so do tied tables."""
    split, looped = priced(PipelineSchedule.ZB_V), priced(PipelineSchedule.ZERO_BUBBLE)
    assert split.forward_s.argmax() == 4
    assert looped.forward_s.argmax() == 7
    tied = replace(LLAMA_70B, tied_embeddings=True)
    v_shaped, loop = (
        memory(batch_under(each), tied).weights_bytes[0]
        for each in (PipelineSchedule.ZB_V, PipelineSchedule.ZERO_BUBBLE)
    )
    assert v_shaped.argmax() == 0
    assert loop.sum() - v_shaped.sum() == pytest.approx(2 * 128256 * 8192 / 2)


@settings(max_examples=40)
@given(other_sizes(), st.floats(0.1, 10.0), st.floats(0.0, 10.0), st.floats(0.2, 5.0))
def test_peaks_hold_what_a_rank_holds_at_its_fullest(
    sizes: Sizes, activation: float, gradient: float, second: float
) -> None:
    """Whatever activations and waiting gradients weigh, and the second chunk of a V: counted along the orders."""
    schedule, pipeline, virtual, micro_batches = sizes
    row = {"pipeline": pipeline, "virtual_pipeline": virtual, "schedule": SCHEDULE_CODES.index(schedule)}
    known = replace(TORCHTITAN, schedules=tuple(PipelineSchedule))
    peaks = list(held_at_peaks(candidates(row), np.array([micro_batches]), known))
    weights = np.array([1.0, second] if schedule.is_v_shaped else [1.0] * virtual)
    found = np.max([weights @ (activation * p.activations + gradient * p.waiting)[0] for p in peaks], axis=0)
    last_kind = "W" if schedule.splits_backward else "I"
    for rank in range(pipeline):
        held, waiting, fullest = 0.0, 0.0, 0.0
        weight = dict(zip(sorted(stages_of(sizes, rank)), weights.tolist(), strict=True))
        for action in actions(sizes, rank):
            kinds = [kind for kind, *_ in action]
            held += sum(weight[stage] for kind, stage, *_ in action if kind == "F")
            waiting += weight[action[0][1]] if kinds == ["I"] and schedule.splits_backward else 0.0
            fullest = max(fullest, activation * held + gradient * waiting)
            held -= sum(weight[stage] for kind, stage, *_ in action if kind == last_kind)
            waiting -= weight[action[0][1]] if kinds == ["W"] else 0.0
        assert found[rank] == pytest.approx(fullest)


@pytest.mark.parametrize(
    ("schedule", "virtual", "held"),
    [
        (PipelineSchedule.ZERO_BUBBLE, 1, [4, 4, 4, 4]),  # no more than 1F1B at its worst (arXiv 2401.10241)
        (PipelineSchedule.ZB_V, 2, [8, 8, 8, 8]),  # halves of stages, 1F1B's worst on all ranks (arXiv 2405.15362)
        (PipelineSchedule.DUALPIPE_V, 2, [9, 9, 9, 9]),  # one more (table of DeepSeek's DualPipe)
        (PipelineSchedule.GPIPE, 1, [16, 16, 16, 16]),
    ],
)
def test_published_numbers_of_micro_batches_are_in_flight(
    schedule: PipelineSchedule, virtual: int, held: list[int]
) -> None:
    """Sixteen micro-batches on four ranks."""
    row = {"pipeline": 4, "virtual_pipeline": virtual, "schedule": SCHEDULE_CODES.index(schedule)}
    peaks = held_at_peaks(candidates(row), np.array([16]), TORCHTITAN)
    assert np.max([peak.activations[0].sum(axis=0) for peak in peaks], axis=0).tolist() == held


@settings(max_examples=40)
@given(other_sizes(), st.integers(0, 2**32 - 1), st.booleans())
def test_no_closed_bound_exceeds_the_schedule(sizes: Sizes, seed: int, even: bool) -> None:
    """Random stages and links; even ones come near: the closed bound of a bubble is what is simulated."""
    schedule, pipeline, virtual, micro_batches = sizes
    random = np.random.default_rng(seed)
    shape = (1, pipeline * virtual)
    durations = [random.uniform(0.1, 1.0, shape) for _ in range(events_of_chunk(schedule))]
    if even:
        durations = [np.full(shape, each.mean()) for each in durations]
    closes = virtual > 1 and not schedule.is_v_shaped
    hop = random.uniform(0.0, 0.5, (1, pipeline)) * (np.arange(pipeline) < pipeline - 1 + closes)
    counts = np.array([micro_batches])
    least = least_ends(schedule, durations, hop, counts)
    ends = simulated_ends(schedule, durations, hop, counts, TORCHTITAN)
    assert (least <= ends * (1 + 1e-9)).all()
    assert least.max() > 0.5 * ends.max()


def test_waiting_gradients_take_memory() -> None:
    """With everything recomputed, ZB-V holds more than breadth-first forwards would of so few micro-batches."""
    full = {"recompute": RECOMPUTE_CODES.index(Recompute.FULL), "micro_batch": 1}
    split = memory(batch_under(PipelineSchedule.ZB_V, **full), MIXTRAL).activations_bytes
    whole = memory(batch_under(IN_TURN, **full), MIXTRAL).activations_bytes
    assert (split[0, -1] - whole[0, -1]) > whole[0, -1]
