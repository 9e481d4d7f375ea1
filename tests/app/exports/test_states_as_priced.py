"""Exports say the formats, shards and documents of a plan as they were priced, or refuse them in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.exports.contract import check_files
from app.exports.launch_value import launch_of
from app.exports.options import Options
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.adapters import AdapterModule, Adapters
from cluster_models.training.framework_choices import ContextExchange, Optimizer
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.mixed_lengths import MixedLengths, Packing
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.plan import Degrees, Plan
from cluster_models.training.workload import Sharding
from tests.app.exports.plans import export, hierarchical, offloaded, shaped, text_of, under, waiting


def in_formats(plan: Plan, states: OptimizerStates) -> Plan:
    """The plan of the same workload with optimizer states in other formats."""
    assert plan.workload is not None
    return replace(plan, workload=replace(plan.workload, optimizer_states=states))


DATA = shaped(Degrees(data=8), ((6,),))


@pytest.mark.parametrize(("shards", "stage"), [(False, 1), (True, 2)])
def test_deepspeed_shards_the_gradients_that_were_priced_so(shards: bool, stage: int) -> None:
    """ZeRO's second stage is the first with gradients on their owners alone."""
    plan = under(DATA, "transformers-2025", shards_gradients=shards)
    assert f'"stage": {stage}' in text_of("deepspeed", plan)
    check_files(export("deepspeed"), export("deepspeed").files(plan, Options()), launch_of(plan))


def test_deepspeed_alone_shards_gradients_beside_whole_weights() -> None:
    """Its second stage, read back; others shard states or parameters."""
    plan = under(shaped(Degrees(data=8), ((6,),), sharding=Sharding.GRADIENTS), "transformers-2025")
    files = export("deepspeed").files(plan, Options())
    assert '"stage": 2' in files[0].text
    with pytest.raises(InvalidConfiguration, match="shards_gradients"):
        check_files(export("deepspeed"), files, launch_of(under(DATA, "transformers-2025")))
    for name in ("megatron", "nemo", "torchtitan"):
        with pytest.raises(InvalidConfiguration, match="parameters as well"):
            text_of(name, plan)


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("megatron", "megatron-bridge-26.02"),
        ("nemo", "megatron-bridge-26.02"),
        ("torchtitan", "torchtitan-2025"),
        ("deepspeed", "transformers-2025"),
    ],
)
def test_files_say_which_documents_were_priced(name: str, framework: str) -> None:
    """No argument fills the sequences: the owner of the data is told."""
    plan = under(DATA, framework, packings=tuple(Packing))
    assert plan.workload is not None
    lengths = MixedLengths.of({300: 9.0, 2000: 1.0}, Packing.WHOLE)
    told = "documents of 470 tokens in the mean"
    assert told not in text_of(name, plan)
    assert told in text_of(name, replace(plan, workload=replace(plan.workload, lengths=lengths)))


def test_pairs_of_sequences_are_left_to_trainers_that_know_them() -> None:
    """Launchers of next-token training refuse; DeepSpeed's starts any script and says what it must do."""
    plan = under(DATA, "transformers-2025")
    assert plan.workload is not None
    configuration = replace(plan.configuration, micro_batch=2)
    workload = replace(plan.workload, method=TrainingMethod.DPO, pinned={}, global_batch=64)
    plan = replace(plan, workload=workload, configuration=configuration)
    for name in ("megatron", "nemo", "torchtitan"):
        with pytest.raises(InvalidConfiguration, match="next tokens alone"):
            text_of(name, plan)
    assert "pairs of sequences (dpo) with a reference model" in text_of("deepspeed", plan)
    learns = replace(workload.framework, methods=(TrainingMethod.POLICY,))
    policy = replace(workload, method=TrainingMethod.POLICY, framework=learns)
    with pytest.raises(InvalidConfiguration, match="export verl"):
        text_of("deepspeed", replace(plan, workload=policy))


def test_groups_that_shard_parameters_are_said_and_read_back() -> None:
    """Torchtitan takes four of eight data ranks twice; others shard over all of them."""
    plan = under(shaped(Degrees(data=8), ((6,),), sharding=Sharding.PARAMETERS), "torchtitan-2025")
    grouped = replace(plan, configuration=replace(plan.configuration, sharding_ranks=4))
    files = export("torchtitan").files(grouped, Options())
    assert "--parallelism.data_parallel_replicate_degree 2" in files[0].text
    assert "--parallelism.data_parallel_shard_degree 4" in files[0].text
    with pytest.raises(InvalidConfiguration, match="sharding_ranks"):
        check_files(export("torchtitan"), files, launch_of(plan))
    for name in ("megatron", "nemo", "deepspeed"):
        with pytest.raises(InvalidConfiguration, match="over all data ranks"):
            text_of(name, grouped)


@pytest.mark.parametrize("optimizer", [Optimizer.MUON, Optimizer.LION, Optimizer.ADAPTIVE_MUON, Optimizer.SGD])
def test_optimizers_are_told_to_the_release_that_has_them(optimizer: Optimizer) -> None:
    """Megatron-Core 0.18 shards whole matrices of two; others are not told, and refuse what is not Adam."""
    plan = under(DATA, "megatron-bridge-26.06")
    assert plan.workload is not None
    other = replace(plan, workload=replace(plan.workload, optimizer=optimizer))
    text = text_of("megatron", other)
    assert f"--optimizer {optimizer}\n" in text
    assert "--use-distributed-optimizer" in text
    for name in ("nemo", "torchtitan", "deepspeed"):
        with pytest.raises(InvalidConfiguration, match=str(optimizer)):
            text_of(name, other)


@pytest.mark.parametrize(
    ("name", "framework", "said"),
    [
        ("megatron", "megatron-core-0.12", "--cp-comm-type a2a+p2p\n    --hierarchical-context-parallel-sizes 4 2"),
        ("nemo", "megatron-bridge-26.02", "model.cp_comm_type=a2a+p2p"),
    ],
)
def test_exchanges_of_context_ranks_are_said_and_read_back(name: str, framework: str, said: str) -> None:
    """In Megatron-Core's words; a plan that exchanges otherwise is found out, and torchtitan has rings alone."""
    plan = hierarchical(framework)
    files = export(name).files(plan, Options())
    assert said in files[0].text
    alone = replace(plan.configuration, context_exchange=ContextExchange.RING, head_ranks=0)
    with pytest.raises(InvalidConfiguration, match="exchange"):
        check_files(export(name), files, launch_of(replace(plan, configuration=alone)))
    with pytest.raises(InvalidConfiguration, match="pass keys and values on"):
        text_of("torchtitan", plan)


@pytest.mark.parametrize(
    ("name", "framework", "sharding", "percent", "said"),
    [
        ("megatron", "megatron-core-0.12", Sharding.OPTIMIZER, 40, "--optimizer-offload-fraction 0.4"),
        ("nemo", "megatron-bridge-26.02", Sharding.OPTIMIZER, 100, "optimizer.optimizer_offload_fraction=1"),
        ("deepspeed", "transformers-2025", Sharding.GRADIENTS, 100, '"device": "cpu"'),
        ("torchtitan", "torchtitan-2025", Sharding.PARAMETERS, 100, "--training.enable_cpu_offload"),
    ],
)
def test_offloaded_states_are_said_and_read_back(
    name: str, framework: str, sharding: Sharding, percent: int, said: str
) -> None:
    """Each in its own words, FP32 states beside them; a plan that offloads another share is found out."""
    plan = under(shaped(Degrees(data=8), ((6,),), sharding=sharding), framework)
    offloaded = replace(plan, configuration=replace(plan.configuration, optimizer_offload=percent))
    files = export(name).files(offloaded, Options())
    assert said in files[0].text
    with pytest.raises(InvalidConfiguration, match="optimizer_offload"):
        check_files(export(name), files, launch_of(plan))
    assert "offload" not in text_of(name, plan)


def test_states_on_disks_are_said_by_deepspeed_alone() -> None:
    """Its device nvme; a plan that keeps them in memory is found out, the others refuse."""
    plan = under(offloaded("transformers-2025", Sharding.PARAMETERS), "transformers-2025")
    on_disks = replace(plan, configuration=replace(plan.configuration, offload_to_disks=True))
    assert '"device": "nvme"' in text_of("deepspeed", on_disks)
    with pytest.raises(InvalidConfiguration, match="offload_to_disks"):
        check_files(export("deepspeed"), export("deepspeed").files(on_disks, Options()), launch_of(plan))
    for name in ("megatron", "nemo", "torchtitan"):
        with pytest.raises(InvalidConfiguration, match="offload"):
            export(name).files(on_disks)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("megatron", "--cpu-offloading-num-layers 5"),
        ("nemo", "model.cpu_offloading_num_layers=5"),
        ("primus", "cpu_offloading_num_layers: 5"),
    ],
)
def test_layers_that_wait_are_said_and_read_back(name: str, said: str) -> None:
    """A plan that offloads others is found out; older releases, DeepSpeed and torchtitan refuse."""
    plan = waiting("megatron-bridge-26.02")
    files = export(name).files(plan, Options())
    assert said in files[0].text
    fewer = replace(plan, configuration=replace(plan.configuration, offloaded_layers=4))
    with pytest.raises(InvalidConfiguration, match="offloaded_layers"):
        check_files(export(name), files, launch_of(fewer))
    for target, framework in (
        ("megatron", "megatron-core-0.12"),
        ("deepspeed", "transformers-2025"),
        ("torchtitan", "torchtitan-2025"),
    ):
        with pytest.raises(InvalidConfiguration, match=r"cpu-offloading|offloaded_layers"):
            text_of(target, waiting(framework))


def test_shares_that_a_target_lacks_are_refused() -> None:
    """DeepSpeed and FSDP offload all or none; Megatron-Core since 0.12, and states that are sharded."""
    half = replace(DATA, configuration=replace(DATA.configuration, optimizer_offload=50))
    for name, framework, problem in (
        ("deepspeed", "transformers-2025", "all optimizer states or none"),
        ("torchtitan", "torchtitan-2025", "sharding parameters"),
        ("megatron", "megatron-core-0.8", "precision-aware"),
    ):
        with pytest.raises(InvalidConfiguration, match=problem):
            text_of(name, under(half, framework))
    whole = replace(half, configuration=replace(half.configuration, sharding=Sharding.NONE))
    for name in ("megatron", "nemo"):
        with pytest.raises(InvalidConfiguration, match="sharding optimizer"):
            text_of(name, under(whole, "megatron-bridge-26.02"))


def test_adapters_are_said_and_read_back() -> None:
    """Bridge takes rank and modules, none of them of routed experts; others pass them to a script or refuse."""
    plan = under(shaped(Degrees(data=8), ((6,),), experts=4), "megatron-bridge-26.06")
    assert plan.workload is not None
    adapters = Adapters(16, (AdapterModule.QUERY_KEY_VALUE, AdapterModule.MLP_OUT))
    tuned = replace(plan, workload=replace(plan.workload, adapters=adapters))
    files = export("nemo").files(tuned, Options())
    said = "peft.target_modules=[*.self_attention.linear_qkv,*.mlp.linear_fc2,*.shared_experts.linear_fc2]"
    assert said in files[0].text
    check_files(export("nemo"), files, launch_of(tuned))
    for other in (plan, replace(plan, workload=replace(plan.workload, adapters=replace(adapters, rank=8)))):
        with pytest.raises(InvalidConfiguration, match="adapters"):
            check_files(export("nemo"), files, launch_of(other))
    for name in ("megatron", "torchtitan"):
        with pytest.raises(InvalidConfiguration, match="no setting for them"):
            text_of(name, tuned)
    assert "rank 16 beside linear_qkv, linear_fc2" in text_of("deepspeed", under(tuned, "transformers-2025"))


@pytest.mark.parametrize("name", ["megatron", "nemo"])
@pytest.mark.parametrize(
    "states",
    [
        FULL_STATES,
        OptimizerStates(MomentFormat.BF16, MomentFormat.BF16, MasterFormat.REMAINDER),
        OptimizerStates(MomentFormat.FP16, MomentFormat.FP32, MasterFormat.FP16),
    ],
)
def test_formats_of_optimizer_states_are_said_and_read_back(name: str, states: OptimizerStates) -> None:
    """``--exp-avg-dtype`` and its like, or the same fields of Bridge; other formats do not pass for them."""
    plan = in_formats(under(DATA, "megatron-bridge-26.06"), states)
    files = export(name).files(plan, Options())
    check_files(export(name), files, launch_of(plan))
    other = in_formats(plan, OptimizerStates(first_moment=MomentFormat.FP8))
    with pytest.raises(InvalidInput):
        check_files(export(name), files, launch_of(other))


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("torchtitan", OptimizerStates(first_moment=MomentFormat.BF16)),
        ("nemo", OptimizerStates(first_moment=MomentFormat.FP8)),
        ("megatron", OptimizerStates(MomentFormat.INT8, MomentFormat.INT8)),
    ],
)
def test_formats_that_a_launcher_cannot_be_told_are_refused(name: str, states: OptimizerStates) -> None:
    """Torchtitan has no setting, Bridge another FP8, Megatron no blocks of eight bits."""
    with pytest.raises(InvalidConfiguration) as refused:
        export(name).files(in_formats(under(DATA, "megatron-bridge-26.06"), states), Options())
    assert refused.value.field == "configuration.optimizer_states"


@pytest.mark.parametrize("name", ["megatron", "nemo"])
def test_instances_of_the_optimizer_are_said_and_read_back(name: str) -> None:
    """Four of eight data ranks share states out: two copies; files for one do not pass for it."""
    one, two = (under(DATA, "megatron-bridge-26.06", sharding_ranks=ranks) for ranks in (0, 4))
    chosen = replace(one, configuration=replace(one.configuration, sharding_ranks=4))
    files = export(name).files(chosen, Options())
    assert files == export(name).files(two, Options())
    check_files(export(name), files, launch_of(two))
    with pytest.raises(InvalidConfiguration, match="sharding_ranks"):
        export("deepspeed").files(under(chosen, "transformers-2025"))
    with pytest.raises(InvalidInput):
        check_files(export(name), files, launch_of(one))
