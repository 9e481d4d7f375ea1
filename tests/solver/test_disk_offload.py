"""Optimizer states on the nodes' disks, parameters beside them: sums by hand, plans, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.hosts import HostMemory
from cluster_models.errors import InvalidCluster, InvalidConfiguration, InvalidInput
from cluster_models.training.frameworks import framework
from cluster_models.training.offload import ALL_ON_DISKS, ON_DISKS, WITH_PARAMETERS
from cluster_models.training.workload import Offload, Recompute, Sharding, TrainingWorkload
from cluster_models.units import GBYTE, GIB
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.costs.host_offload import STATE_BYTES
from solver.costs.memory import StageMemoryParts, stage_memory
from solver.costs.step_costs import StepCosts, step_costs
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.remarks import codes
from tests.solver.cost_cases import H100, LLAMA_70B, candidates, even_layers
from tests.solver.problems import DENSE, nodes, not_planned, planned, problem

DEEPSPEED = framework("transformers-2025")
DISKS = HostMemory(disk_bytes=14e12, disk_read_bytes_per_s=24 * GBYTE, disk_write_bytes_per_s=12 * GBYTE)
WIDE = replace(DENSE, name="wide", hidden=8192, heads=64, mlp_hidden=28672)
"""Almost two billion parameters for each of four GPUs, more than DeepSpeed's buffers hold at once."""
EVERYWHERE = (Offload.NONE, Offload.OPTIMIZER, Offload.DISKS)
PARAMETERS = (Offload.PARAMETERS, Offload.PARAMETERS_ON_DISKS)
GPU = replace(H100, host=H100.host_share.as_stated([(DISKS, 8)]))


def asked(host: HostMemory | None = DISKS, **changes: Any) -> PlanningProblem:
    """A model on four GPUs that share parameters out, on nodes with a host."""
    settings: dict[str, Any] = {
        "model": DENSE,
        "framework": DEEPSPEED,
        "sharding": (Sharding.PARAMETERS,),
        "recompute": (Recompute.NONE,),
        "offload": EVERYWHERE,
        "global_batch": 8,
    }
    own = tuple(replace(node, host=host) for node in nodes(1, gpus=4))
    return problem(own, **settings | changes)


def priced(percent: int, data: int = 64) -> tuple[StepCosts, StageMemoryParts]:
    """Costs and memory of Llama 3 70B with sharded parameters on H100 nodes whose disks are stated."""
    workload = TrainingWorkload(
        sequence_length=4096,
        global_batch=data,
        framework=DEEPSPEED,
        sharding=(Sharding.PARAMETERS,),
        offload=(*EVERYWHERE, *PARAMETERS),
    )
    row = {"data": data, "sharding": SHARDING_CODES.index(Sharding.PARAMETERS), "optimizer_offload": percent}
    shape = {"architecture": LLAMA_70B, "workload": workload, "gpu": GPU}
    batch, layers = candidates(row), even_layers(LLAMA_70B, 1)
    costs = step_costs(batch, layers, gpus_per_domain=8, gpus_per_node=8, **shape)
    return costs, stage_memory(batch, layers, micro_batches=np.array([1]), **shape)


def test_every_state_is_read_and_written_at_the_share_of_a_gpu() -> None:
    """16 bytes a parameter each way at an eighth of 24 and 12 GB/s, beside what nodes' memory would take."""
    owned = LLAMA_70B.parameters() / 64
    (in_memory, _), (on_disks, _) = priced(100), priced(ON_DISKS)
    more = float((on_disks.offload_s - in_memory.offload_s)[0, 0])
    assert more == pytest.approx(STATE_BYTES * owned * (1 / 3e9 + 1 / 1.5e9), rel=1e-3)


def test_the_third_stage_keeps_sixteen_bits_of_its_shards() -> None:
    """14 bytes a parameter leave the GPU: moments, master weight and FP32 gradients but for 2 of the weight."""
    plain, in_memory, on_disks = (priced(percent, data=512)[1] for percent in (0, 100, ON_DISKS))
    owned = plain.optimizer_bytes / 8.0
    assert plain.total_bytes - on_disks.total_bytes == pytest.approx(14.0 * owned, rel=1e-3)
    assert on_disks.total_bytes == pytest.approx(in_memory.total_bytes)
    assert on_disks.disk_bytes == pytest.approx(16.0 * owned)
    assert not in_memory.disk_bytes.any()


@pytest.mark.parametrize(("data", "share"), [(16, 1e9), (512, None)])
def test_buffers_in_memory_hold_one_group_of_parameters(data: int, share: float | None) -> None:
    """Four buffers of a billion FP32 numbers at most."""
    owned = LLAMA_70B.parameters() / data
    assert priced(ON_DISKS, data)[1].host_bytes == pytest.approx(16.0 * (share or owned), rel=1e-3)


def test_disks_are_used_where_the_nodes_memory_has_no_room_and_never_else() -> None:
    """The same plan in memory is faster; without either nothing fits."""
    tight: dict[str, Any] = {"memory_headroom": 0.7, "model": WIDE}
    usual = planned(asked(**tight)).configuration
    assert (usual.optimizer_offload, usual.offload_to_disks) == (100, False)
    short = replace(DISKS, memory_bytes=100 * GIB)
    assert planned(asked(short, **tight)).configuration.offload_to_disks
    assert not_planned(asked(short, offload=EVERYWHERE[:2], **tight)).closest is not None


def test_a_plan_on_disks_is_sound_and_the_checker_knows_its_bytes_and_time() -> None:
    """Allowed alone, it is planned; less on the disks, in no time, or without disks it is found out."""
    case = asked(offload=(Offload.DISKS,))
    found = planned(case)
    assert found.configuration.offload_to_disks
    assert check_plan(found, case) == ()
    less = replace(found, memory=tuple(replace(each, disk_bytes=0.0) for each in found.memory))
    assert any("bytes on disks" in each for each in check_plan(less, case))
    hasty = replace(found, time=replace(found.time, offload_s=0.1 * found.time.offload_s))
    assert any("update in the nodes' memory" in each for each in check_plan(hasty, case))
    assert any("No node states disks" in each for each in check_plan(found, asked(None, offload=(Offload.DISKS,))))
    full = asked(replace(DISKS, disk_bytes=GIB), offload=(Offload.DISKS,))
    assert any("to its disks" in each for each in check_plan(found, full))
    assert not_planned(full).closest is not None


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"host": None}, "no node states disks with room"),
        ({"offload": (Offload.DISKS,), "framework": framework("torchtitan-2025")}, "keeps no states on disks"),
        ({"offload": (Offload.DISKS,), "sharding": (Sharding.OPTIMIZER,)}, "goes with sharding parameters"),
        ({"offload": (Offload.DISKS,), "pinned": {"optimizer_offload": 50}}, "add optimizer"),
        ({"offload": PARAMETERS[:1], "framework": framework("torchtitan-2025")}, "no such choice for parameters"),
        ({"offload": PARAMETERS[1:], "host": None}, "no node states disks with room"),
    ],
)
def test_what_cannot_be_kept_on_disks_is_refused(changes: dict[str, Any], match: str) -> None:
    """In words, at the field."""
    with pytest.raises(InvalidInput, match=match):
        planned(asked(**changes))


def test_disks_are_stated_whole() -> None:
    """Room without rates says nothing; a configuration on disks has all states there."""
    with pytest.raises(InvalidCluster, match="give disk_gib, disk_read"):
        HostMemory(disk_bytes=1e12)
    found = planned(asked(offload=(Offload.DISKS,)))
    with pytest.raises(InvalidConfiguration, match="optimizer_offload"):
        replace(found.configuration, optimizer_offload=0)


def test_a_prediction_warns_of_disks_without_room() -> None:
    """It is priced all the same."""
    found = planned(asked(offload=(Offload.DISKS,)))
    short = asked(replace(DISKS, disk_bytes=GIB), offload=(Offload.DISKS,))
    assert "disks_too_small" in codes(predict(short, found.configuration).warnings)


def test_offloaded_parameters_travel_for_each_pass_and_need_no_way_back() -> None:
    """16 bits of the shard leave the GPU, passes hide their copies, and processors narrow what they update.

    From disks they are read twice and written once at the GPU's part of both rates, 18 bytes a parameter in all.
    """
    plain, states, memory, disks = (priced(each) for each in (0, 100, WITH_PARAMETERS, ALL_ON_DISKS))
    owned = float(plain[1].optimizer_bytes[0, 0]) / 8.0
    assert states[1].total_bytes - memory[1].total_bytes == pytest.approx(2.0 * owned)
    assert memory[1].host_bytes == pytest.approx(18.0 * owned)
    assert disks[1].disk_bytes == pytest.approx(18.0 * owned)
    assert disks[1].host_bytes == pytest.approx(16.0 * min(owned, 1e9) + 2.0 * min(owned, 1.5e9))
    link = 0.78 * GPU.host_share.link_bytes_per_s
    forward, backward = (float(each[0, 0]) for each in (plain[0].forward_s, plain[0].backward_s))
    hidden = [max(2.0 * owned / link - each, 0.0) for each in (forward, backward)]
    more = float((memory[0].offload_s - states[0].offload_s)[0, 0])
    narrowed = 6.0 * owned / (0.42 * GPU.host_share.memory_bytes_per_s)
    assert more == pytest.approx(narrowed + hidden[0] - 2.0 * owned / link, rel=1e-6)
    read = [max(2.0 * owned / 3e9 - each, 0.0) for each in (forward, backward)]
    more = float((disks[0].offload_s - memory[0].offload_s)[0, 0])
    written = 16.0 * owned * (1 / 3e9 + 1 / 1.5e9) + 2.0 * owned / 1.5e9
    assert more == pytest.approx(written + sum(read) - sum(hidden), rel=1e-6)


def test_parameters_leave_where_nothing_else_fits_and_the_checker_agrees() -> None:
    """States alone need too much of the GPU; a plan that claims to hold less in the node is found out."""
    alone: dict[str, Any] = {"pinned": {"data": 1}, "max_gpus": 1, "model": replace(WIDE, layers=12)}
    alone |= {"global_batch": 1, "host": replace(DISKS, memory_bytes=2000 * GIB)}
    tight, everything = {"memory_headroom": 0.65} | alone, (*EVERYWHERE, *PARAMETERS)
    case = asked(offload=everything, **tight)
    found = planned(case)
    assert found.configuration.offload_parameters
    assert not found.configuration.offload_to_disks
    assert check_plan(found, case) == ()
    assert not_planned(asked(**tight)).closest is not None
    held = tuple(replace(each, host_bytes=16 / 18 * each.host_bytes) for each in found.memory)
    assert any("in the node's memory" in each for each in check_plan(replace(found, memory=held), case))
    assert any("allows" in each for each in check_plan(found, asked(**tight)))
    disks = asked(offload=PARAMETERS[1:], **alone)
    assert check_plan(planned(disks), disks) == ()


def test_a_node_of_v100_holds_what_was_published_of_it() -> None:
    """70 billion parameters in the memory of a DGX-2, a trillion on its 28 TB (arXiv 2104.07857, figure 6a).

    18 bytes each fill 84 % of 1.5 TB, and 64 % of the disks.
    """
    shard = LLAMA_70B.parameters() / 64
    per_parameter = float(priced(WITH_PARAMETERS)[1].host_bytes[0, 0]) / shard
    assert 0.8 < 70e9 * per_parameter / 1.5e12 < 1.0
    assert 1e12 * float(priced(ALL_ON_DISKS)[1].disk_bytes[0, 0]) / shard < 28e12
