"""Peak memory: hand-checked parts, published cases, and what must never take more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, framework
from cluster_models.training.interleaving import micro_batch_group, runs_all_forwards_first
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES
from solver.costs.in_flight import chunks_in_flight
from solver.costs.memory import stage_memory
from solver.pipeline.schedule import build_schedule
from tests.solver.cost_cases import LLAMA_70B, MIXTRAL, WORKLOAD, behaviour, candidates, even_layers, memory

RELEASES = ("megatron-core-0.8", "megatron-core-0.12", "torchtitan-2025")
ROWS = st.fixed_dictionaries(
    {
        "tensor": st.sampled_from([1, 2, 4]),
        "context": st.sampled_from([1, 2, 4]),
        "data": st.sampled_from([1, 2, 8]),
        "micro_batch": st.sampled_from([1, 2, 4]),
        "recompute": st.sampled_from(range(3)),
        "sharding": st.sampled_from(range(3)),
        "pipeline": st.just(4),
        "virtual_pipeline": st.sampled_from([1, 2]),
    }
)


def test_weights_of_llama_70b_per_stage_count_by_hand() -> None:
    """20 layers of 855,654,400 parameters over 4 tensor ranks, norms whole, in 16 bits."""
    parts = memory(candidates({"pipeline": 4, "tensor": 4, "data": 2}))
    layer = 855_654_400 - 2 * 8192
    by_hand = 2 * 20 * (layer / 4 + 2 * 8192)
    assert parts.weights_bytes[0, 1] == pytest.approx(by_hand)
    assert parts.gradients_bytes[0, 1] == pytest.approx(2 * by_hand)
    assert parts.optimizer_bytes[0, 1] == pytest.approx(6 * by_hand / 2)
    embedding = 2 * 128256 * 8192 / 4
    assert parts.weights_bytes[0, 0] == pytest.approx(by_hand + embedding)


def test_all_stages_together_hold_the_whole_model() -> None:
    """Without tensor parallelism the weights of the four stages are the 70.55 billion parameters."""
    parts = memory(candidates({"pipeline": 4}))
    assert parts.weights_bytes.sum() == pytest.approx(2 * LLAMA_70B.parameters())


def test_tied_embeddings_count_once_on_one_stage_and_twice_on_two() -> None:
    """The last stage needs its own copy of a tied table."""
    tied = replace(LLAMA_70B, tied_embeddings=True)
    assert memory(candidates({}), tied).weights_bytes.sum() == 2 * tied.parameters()
    two = memory(candidates({"pipeline": 2}), tied).weights_bytes.sum()
    assert two == 2 * (tied.parameters() + 128256 * 8192)


def test_experts_are_shared_out_over_their_own_group() -> None:
    """Expert parallelism 8 leaves one of Mixtral's eight experts a rank."""
    alone, spread = memory(candidates({"data": 8}, {"data": 8, "expert": 8}), MIXTRAL).weights_bytes[:, 0]
    assert alone - spread == 2 * 32 * 7 * MIXTRAL.expert_parameters()


def test_one_forward_one_backward_keeps_fewer_micro_batches_downstream() -> None:
    """Rank s of 4 holds 4 - s micro-batches, never more than there are."""
    batch = candidates({"pipeline": 4})
    assert chunks_in_flight(batch, np.array([64]), DEFAULT_FRAMEWORK)[0, 0].tolist() == [4, 3, 2, 1]
    assert chunks_in_flight(batch, np.array([2]), DEFAULT_FRAMEWORK)[0, 0].tolist() == [2, 2, 2, 1]


def test_interleaving_keeps_the_warm_up_of_all_chunks() -> None:
    """Rank 0 of 4 with 2 chunks warms up with 2*3 + 4 + 1 = 11 chunks: 4, 4, and 3 of the first again."""
    batch = candidates({"pipeline": 4, "virtual_pipeline": 2})
    in_flight = chunks_in_flight(batch, np.array([64]), DEFAULT_FRAMEWORK)[0]
    assert in_flight.sum(axis=0).tolist() == [11, 9, 7, 5]
    assert in_flight[:, 0].tolist() == [7, 4]
    assert chunks_in_flight(batch, np.array([4]), DEFAULT_FRAMEWORK)[0].sum(axis=0).tolist() == [8, 8, 7, 5]
    assert chunks_in_flight(batch, np.array([4]), framework("megatron-core-0.8"))[0].min() == 4


def test_larger_groups_keep_more() -> None:
    """Nine micro-batches on 4 ranks pass in groups of 5 and 4: rank 0 holds 2*3 + 5 + 1 = 12 chunks: 5, 5 and 2."""
    batch = candidates(*[{"pipeline": 4, "virtual_pipeline": 2}] * 2)
    nine, eight = chunks_in_flight(batch, np.array([9, 8]), DEFAULT_FRAMEWORK)
    assert nine[:, 0].tolist() == [7, 5]
    assert nine.sum(axis=0).tolist() == [12, 10, 8, 6]
    assert eight.sum(axis=0).tolist() == [11, 9, 7, 5]


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 40), st.integers(0, 7), st.sampled_from(RELEASES))
def test_in_flight_is_what_the_schedule_holds_at_its_fullest(
    pipeline: int, virtual: int, micro_batches: int, rank: int, release: str
) -> None:
    """Counting forwards up and backwards down along a rank's order of work; the first fullest moment by chunk."""
    known, rank = framework(release), rank % pipeline
    group = micro_batch_group(known, pipeline, micro_batches)
    virtual = 1 if group is None else virtual
    live, fullest = np.zeros(virtual), np.zeros(virtual)
    schedule = build_schedule(
        pipeline, virtual, micro_batches, group=group, all_forwards_first=runs_all_forwards_first(known)
    )
    for event in np.flatnonzero(schedule.rank == rank):
        live[schedule.events.chunk[event] // pipeline] += -1 if schedule.events.kind[event] else 1
        fullest = live.copy() if live.sum() > fullest.sum() else fullest
    batch = candidates({"pipeline": pipeline, "virtual_pipeline": virtual})
    held = chunks_in_flight(batch, np.array([micro_batches]), known)
    assert held[0, :, rank].tolist() == fullest.tolist()


@pytest.mark.parametrize(
    ("model", "layers", "stages", "chunks", "micro_batch", "paper_gib"),
    [
        ((48, 6144, 64), 48, 1, 1, 4, 9.56),
        ((96, 12288, 96), 96, 8, 3, 1, 12.35),
        ((128, 25600, 160), 128, 64, 1, 1, 26.56),
    ],
)
def test_activations_agree_with_korthikanti(
    model: tuple[int, int, int], layers: int, stages: int, chunks: int, micro_batch: int, paper_gib: float
) -> None:
    """Sequence parallelism with selective recomputation, first stage: arXiv 2205.05198, figure 1.

    The paper leaves out what lives only while a layer runs, so the prediction lies a little above.
    """
    architecture = Architecture(
        name="gpt",
        layers=layers,
        hidden=model[1],
        heads=model[2],
        kv_heads=model[2],
        head_size=model[1] // model[2],
        mlp_hidden=4 * model[1],
        vocabulary=51200,
        gated_mlp=False,
        tied_embeddings=True,
        learned_positions=2048,
    )
    row = {"tensor": 8, "pipeline": stages, "virtual_pipeline": chunks, "micro_batch": micro_batch}
    gpu = gpu_kind("A100-SXM4-80GB")
    parts = stage_memory(
        candidates(row | {"recompute": RECOMPUTE_CODES.index(Recompute.SELECTIVE)}),
        even_layers(architecture, stages * chunks),
        architecture=architecture,
        workload=TrainingWorkload(sequence_length=2048, global_batch=512),
        gpu=gpu,
        micro_batches=np.array([512]),
        calibration=behaviour(gpu, fused_attention=False, dropout=True),
    )
    assert 0.98 < parts.activations_bytes[0, 0] / 2**30 / paper_gib < 1.2


@settings(max_examples=12)
@given(ROWS)
def test_more_tensor_ranks_never_take_more_memory(row: dict[str, int]) -> None:
    """Twice the tensor ranks split weights and activations; only communication buffers may appear."""
    few, many = (memory(candidates({**row, "tensor": row["tensor"] * f})) for f in (1, 2))
    buffers = many.communication_bytes - few.communication_bytes
    assert (many.total_bytes - buffers <= few.total_bytes * (1 + 1e-9)).all()


@settings(max_examples=12)
@given(ROWS)
def test_more_recomputation_never_takes_more_memory(row: dict[str, int]) -> None:
    """None, selective and full are ordered, also with a single micro-batch in flight on the last rank."""
    codes = [RECOMPUTE_CODES.index(p) for p in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)]
    total = memory(candidates(*({**row, "recompute": code} for code in codes))).total_bytes
    assert (np.diff(total, axis=0) <= total[0] * 1e-9).all()


@settings(max_examples=12)
@given(ROWS)
def test_more_sharding_never_takes_more_states(row: dict[str, int]) -> None:
    """Each further kind of sharding shares out more of weights, gradients and optimizer states."""
    order = (Sharding.NONE, Sharding.OPTIMIZER, Sharding.PARAMETERS)
    parts = memory(candidates(*({**row, "sharding": SHARDING_CODES.index(s)} for s in order)))
    states = parts.weights_bytes + parts.gradients_bytes + parts.optimizer_bytes
    assert (np.diff(states, axis=0) <= states[0] * 1e-9).all()


@settings(max_examples=15)
@given(ROWS, st.sampled_from([1024, 2048, 4096]))
def test_a_longer_sequence_takes_more_memory(row: dict[str, int], length: int) -> None:
    """Activations grow with the tokens."""
    short, long = (
        memory(candidates(row), workload=replace(WORKLOAD, sequence_length=size)) for size in (length, 2 * length)
    )
    assert (long.total_bytes > short.total_bytes).all()


def test_the_limit_leaves_the_headroom_free() -> None:
    """6 % head-room on an H100 leaves 94 % of its memory."""
    limit = memory(candidates({}), workload=replace(WORKLOAD, memory_headroom=0.06)).limit_bytes[0, 0]
    assert limit == pytest.approx(0.94 * gpu_kind("H100-SXM5-80GB").memory_bytes)


def test_the_total_is_the_sum_of_all_parts() -> None:
    """Nothing is left out of the total but the limit."""
    parts = memory(candidates({"pipeline": 4, "tensor": 2, "data": 2}))
    summed = sum(getattr(parts, name) for name in parts.__slots__ if name != "limit_bytes")
    np.testing.assert_allclose(parts.total_bytes, summed)


def test_gradients_that_are_reduced_once_stay_whole_over_several_micro_batches() -> None:
    """Each of 64 ranks holds all FP32 gradients of 70e9 parameters, unless there is nothing to add up."""
    row = candidates({"data": 64, "sharding": SHARDING_CODES.index(Sharding.PARAMETERS)})
    found = {
        (once, count): memory(
            row, workload=replace(WORKLOAD, framework=behaviour(reduces_once=once).framework), micro_batches=count
        ).gradients_bytes[0, 0]
        for once in (False, True)
        for count in (1, 4)
    }
    assert found[True, 4] == pytest.approx(4.0 * LLAMA_70B.parameters(), rel=0.01)
    assert found[True, 1] == found[False, 1] == found[False, 4] < found[True, 4] / 10


def test_sixteen_bit_states_take_half() -> None:
    """A 16-bit weight and two 16-bit moments: 6 bytes a parameter instead of 2 + 4 + 8."""
    narrow, wide = (
        memory(
            candidates({"tensor": 8}),
            workload=replace(WORKLOAD, framework=behaviour(sixteen_bit_states=each).framework),
        )
        for each in (True, False)
    )
    states = [found.weights_bytes.sum() + found.optimizer_bytes.sum() for found in (narrow, wide)]
    assert states[0] == pytest.approx(states[1] * 6 / 14)


@given(st.sampled_from([1, 2, 4, 8]), st.floats(0.0, 0.99))
def test_waiting_blocks_are_taken_back_where_there_is_no_room(micro_batch: int, headroom: float) -> None:
    """With room for them they stay; without, memory in pieces is all they cost, and never more than they took."""
    batch, model = candidates({"tensor": 8, "micro_batch": micro_batch}), replace(LLAMA_70B, layers=2)
    held = behaviour(keeps_gathered_inputs=True)
    without = memory(batch, model, calibration=behaviour()).total_bytes
    roomy = memory(batch, model, replace(WORKLOAD, memory_headroom=0.0), calibration=held).total_bytes
    tight = memory(batch, model, replace(WORKLOAD, memory_headroom=headroom), calibration=held)
    assert (roomy > without).all()
    pieces = np.minimum(without + 0.1 * roomy, roomy)
    np.testing.assert_allclose(tight.total_bytes, np.where(roomy > tight.limit_bytes, pieces, roomy))


def test_a_loss_in_chunks_holds_the_logits_of_one() -> None:
    """512 of 8,192 tokens, 8 bytes each and vocabulary entry; a chunk beyond the micro-batch changes nothing."""
    whole, chunked, longer = (
        memory(candidates({}), calibration=behaviour(loss_chunk_tokens=tokens)) for tokens in (0, 512, 16384)
    )
    assert chunked.logits_bytes[0, 0] == pytest.approx(8.0 * 512 * LLAMA_70B.vocabulary)
    assert whole.logits_bytes[0, 0] == pytest.approx(16 * chunked.logits_bytes[0, 0]) == longer.logits_bytes[0, 0]


@pytest.mark.parametrize(("headroom", "left_bytes"), [(0.0, 6.0), (0.9, 0.0)])
def test_what_a_step_leaves_is_held_where_there_is_room(headroom: float, left_bytes: float) -> None:
    """Six bytes a parameter of flat shards (ZeRO-1), nothing where memory is short, nor under ZeRO-3."""
    sharded = (SHARDING_CODES.index(each) for each in (Sharding.OPTIMIZER, Sharding.PARAMETERS))
    full = RECOMPUTE_CODES.index(Recompute.FULL)
    rows = candidates(*({"tensor": 8, "data": 64, "recompute": full, "sharding": each} for each in sharded))
    usual, more = (
        memory(
            rows,
            workload=replace(
                WORKLOAD,
                memory_headroom=headroom,
                framework=behaviour(step_bytes=100.0, left_step_bytes=each).framework,
            ),
        ).optimizer_bytes[:, 0]
        for each in (0.0, 6.0)
    )
    owned = LLAMA_70B.parameters() / 8 / 64
    assert more - usual == pytest.approx([left_bytes * owned, 0.0], rel=0.01, abs=1.0)


def test_sharded_gradients_stay_on_their_owners() -> None:
    """ZeRO-2 on 64 ranks holds a 64th of all FP32 gradients, those of a layer and of what lies outside layers."""
    rows = candidates({"data": 64}, {"data": 64, "sharding": SHARDING_CODES.index(Sharding.NONE)})
    kept, whole = (
        memory(
            rows, workload=replace(WORKLOAD, framework=behaviour(shards_gradients=each).framework)
        ).gradients_bytes[:, 0]
        for each in (True, False)
    )
    tables = 2 * LLAMA_70B.vocabulary * LLAMA_70B.hidden
    layer = (LLAMA_70B.parameters() - tables) / LLAMA_70B.layers
    assert kept[0] == pytest.approx(4.0 * (LLAMA_70B.parameters() / 64 + layer + tables), rel=0.01)
    assert kept[1] == whole[1] == whole[0]
