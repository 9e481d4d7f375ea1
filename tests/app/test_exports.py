"""Files for launchers, viewers and spreadsheets, and what is never let out."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.plan import plan_from_text
from app.exports.expert_maps import EXPERT_MAPS
from app.exports.megatron_layers import pipeline_layout
from app.exports.registry import EXPORTS
from app.exports.tables import render_csv
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.experts import Experts
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.plan import Degrees, Placement, Plan, RankOrder
from cluster_models.training.workload import Recompute, Sharding
from solver.check.placement import coordinates
from tests.app.exports.plans import under
from tests.plans import small_configuration, small_plan
from tests.solver.problems import nodes, planned, problem


def rendered(name: str, plan: Plan | None = None) -> str:
    """The text of one export."""
    return EXPORTS[name].files(plan or small_plan())[0].text


def with_configuration(**changes: object) -> Plan:
    """The small plan with another configuration."""
    plan = small_plan()
    return replace(plan, configuration=replace(plan.configuration, **changes))  # type: ignore[arg-type]


def with_placement(**changes: object) -> Plan:
    """The small plan with another placement."""
    plan = small_plan()
    return replace(plan, placement=replace(plan.placement, **changes))  # type: ignore[arg-type]


def bash_array(text: str, name: str) -> list[str]:
    """The words of a bash array, as bash itself reads them."""
    script = f'{text}\nprintf "%s\\n" "${{{name}[@]}}"'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_megatron_arguments_are_words_that_bash_reads() -> None:
    """The array holds the degrees, the batch and the sharding."""
    words = bash_array(rendered("megatron"), "MEGATRON_ARGS")
    pairs = dict(itertools.pairwise(words))
    assert pairs["--tensor-model-parallel-size"] == "2"
    assert pairs["--pipeline-model-parallel-size"] == "2"
    assert pairs["--global-batch-size"] == "8"
    assert {"--sequence-parallel", "--use-distributed-optimizer", "--bf16"} <= set(words)
    assert "--use-tp-pp-dp-mapping" not in words
    assert "--pipeline-model-parallel-layout" not in words


def test_uneven_stages_become_a_layout() -> None:
    """The layout is one quoted word: bars would be pipes otherwise."""
    plan = under(small_plan(layers=((1, 3),)), "megatron-core-0.15")
    words = bash_array(rendered("megatron", plan), "MEGATRON_ARGS")
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et|t*3,L"


def test_prediction_layers_stand_before_the_loss() -> None:
    """The layout places them, and their number is a flag of its own."""
    plan = under(small_plan(layers=((1, 3),)), "megatron-core-0.15")
    assert plan.architecture is not None
    plan = replace(plan, architecture=replace(plan.architecture, prediction_layers=1))
    words = bash_array(rendered("megatron", plan), "MEGATRON_ARGS")
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et|t*3,mL"
    assert words[words.index("--mtp-num-layers") + 1] == "1"


def test_even_interleaving_counts_layers_of_a_chunk() -> None:
    """Four layers over two ranks and two chunks are one layer each."""
    words = bash_array(rendered("megatron", small_plan(layers=((1, 1), (1, 1)))), "MEGATRON_ARGS")
    assert words[words.index("--num-layers-per-virtual-pipeline-stage") + 1] == "1"


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_layout_counts_every_layer_once(pipeline: int, virtual: int, data: st.DataObject) -> None:
    """Position is virtual stage x pipeline + rank; E comes first, L last, t's add up."""
    row = st.lists(st.integers(0, 9), min_size=pipeline, max_size=pipeline).map(tuple)
    layers = data.draw(st.lists(row, min_size=virtual, max_size=virtual).map(tuple))
    configuration = replace(
        small_configuration(), degrees=Degrees(pipeline=pipeline, virtual_pipeline=virtual), stage_layers=layers
    )
    stages = pipeline_layout(configuration).split("|")
    assert stages[0].startswith("E")
    assert stages[-1].endswith("L")
    counted = [
        int(body[2:]) if "*" in body else len(body)
        for body in (stage.removeprefix("E").removesuffix("L").rstrip(",") for stage in stages)
    ]
    assert counted == [count for virtual_stage in layers for count in virtual_stage]


def test_pipeline_before_data_uses_the_other_mapping() -> None:
    """The second rank order has its own flag, and its own coordinates."""
    plan = with_configuration(rank_order=RankOrder.PIPELINE_BEFORE_DATA)
    ranks = []
    for place in plan.placement.ranks:
        tensor, context, data, pipeline = coordinates(place.rank, plan.configuration)
        ranks.append(replace(place, tensor=tensor, context=context, data=data, pipeline=pipeline))
    plan = replace(plan, placement=replace(plan.placement, ranks=tuple(ranks)))
    assert "--use-tp-pp-dp-mapping" in rendered("megatron", plan)
    with pytest.raises(InvalidConfiguration, match="order tp-cp-ep-pp-dp"):
        rendered("megatron", with_configuration(rank_order=RankOrder.PIPELINE_BEFORE_DATA))


def test_experts_out_of_order_come_with_their_permutation() -> None:
    """Megatron holds contiguous experts; any other map is a permutation of the checkpoint."""
    plan = with_configuration(degrees=Degrees(tensor=2, pipeline=2, data=2, expert=2))
    model = replace(plan.architecture, experts=Experts(4, 2, 512))  # type: ignore[type-var]
    rows = ((0, 1, 2, 3), (0, 3, 2, 1))
    natural = replace(plan, architecture=model, expert_slots=ExpertSlots((0, 1), (rows[0], rows[0]), 4, 2))
    assert "EXPERT_ORDER" not in rendered("megatron", natural)
    moved = replace(natural, expert_slots=ExpertSlots((0, 1), rows, 4, 2))
    assert bash_array(rendered("megatron", moved), "EXPERT_ORDER") == ["0 3 2 1"]


@pytest.mark.parametrize(
    ("recompute", "sharding", "flag"),
    [
        (Recompute.FULL, Sharding.NONE, "--recompute-method"),
        (Recompute.SELECTIVE, Sharding.OPTIMIZER, "--use-distributed-optimizer"),
        (Recompute.NONE, Sharding.PARAMETERS, "--use-custom-fsdp"),
    ],
)
def test_recomputation_and_sharding_have_their_flags(recompute: Recompute, sharding: Sharding, flag: str) -> None:
    """Every choice of the planner reaches the framework."""
    words = bash_array(
        rendered("megatron", with_configuration(recompute=recompute, sharding=sharding)), "MEGATRON_ARGS"
    )
    assert flag in words


def test_hostfile_keeps_rank_order() -> None:
    """Hosts stand in rank order, not by name."""
    assert rendered("hostfile") == "b slots=4\na slots=4\n"


@pytest.mark.parametrize(("host", "rank"), [("b", "0"), ("a", "1")])
def test_each_node_finds_its_own_rank(host: str, rank: str) -> None:
    """The torchrun script passes the static node rank of the node it runs on."""
    script = 'torchrun() { echo "$@"; }\n' + rendered("torchrun").replace("exec torchrun", "torchrun")
    done = subprocess.run(
        ["bash", "-c", script, "torchrun.sh", "--lr 1"],
        capture_output=True,
        text=True,
        check=True,
        env={"MESHWRIGHT_HOST": host, "PATH": "/usr/bin:/bin", "CHECKPOINT_PATH": "/ckpt"},
    )
    words = done.stdout.split()
    assert words[words.index("--node-rank") + 1] == rank
    assert words[words.index("--master-addr") + 1] == "b"
    assert words[words.index("pretrain_gpt.py") + 1] == "--num-layers"
    assert words[words.index("--load") + 1] == words[words.index("--save") + 1] == "/ckpt"
    assert words[-2:] == ["--lr", "1"]


def test_a_stranger_is_turned_away() -> None:
    """A node outside the plan must not join with a rank it does not have."""
    done = subprocess.run(
        ["bash", "-c", rendered("torchrun")],
        capture_output=True,
        text=True,
        check=False,
        env={"MESHWRIGHT_HOST": "zz", "PATH": "/usr/bin:/bin", "CHECKPOINT_PATH": "/ckpt"},
    )
    assert done.returncode == 2
    assert "not in this plan" in done.stderr


@pytest.mark.parametrize(("host", "rank"), [("b", "0"), ("a", "1")])
def test_slurm_takes_node_ranks_from_our_list(host: str, rank: str) -> None:
    """Whatever order Slurm has, each task finds its place by its node's name."""
    stand_in = 'srun() { while [[ "$1" != bash ]]; do shift; done; "$@"; }\n'
    shell = rendered("slurm").replace("exec torchrun", "echo")
    done = subprocess.run(
        ["bash", "-c", stand_in + shell, "slurm.sh", "--lr", "1"],
        capture_output=True,
        text=True,
        check=False,
        env={"SLURMD_NODENAME": host, "PATH": "/usr/bin:/bin", "CHECKPOINT_PATH": "/ckpt"},
    )
    first = done.stdout.splitlines()[0].split()
    assert first[first.index("--node-rank") + 1] == rank
    assert {"pretrain_gpt.py", "/ckpt"} <= set(first)
    assert first[-2:] == ["--lr", "1"]
    assert first[first.index("--tensor-model-parallel-size") + 1] == "2"


def test_ranks_are_bound_to_the_gpus_that_are_free() -> None:
    """Beside other jobs every host gets its own list of GPUs, and Slurm is not asked for whole nodes."""
    plan = small_plan()
    ranks = tuple(
        replace(place, gpu=place.gpu + 4) if place.node == "a" else place for place in plan.placement.ranks
    )
    beside = replace(plan, placement=replace(plan.placement, ranks=ranks))
    assert "    a) NODE_RANK=1; GPUS=4,5,6,7 ;;\n" in rendered("torchrun", beside)
    assert 'export GPUS="0,1,2,3 4,5,6,7"' in rendered("slurm", beside)
    assert "--exclusive" not in rendered("slurm", beside)
    assert "which others hold or which are lost" in rendered("slurm", beside)
    assert "#SBATCH --exclusive" in rendered("slurm", plan)


def test_csv_has_a_line_for_each_rank() -> None:
    """Ranks come with node, GPU and coordinates."""
    rows = list(csv.DictReader(io.StringIO(rendered("csv"))))
    assert len(rows) == 8
    assert rows[5] == {
        "rank": "5",
        "node": "a",
        "gpu": "1",
        "tensor": "1",
        "context": "0",
        "data": "0",
        "pipeline": "1",
        "expert": "0",
        "expert_tensor": "0",
    }


def test_csv_names_are_no_formulas() -> None:
    """A spreadsheet would run a node called ``=cmd()``."""
    plan = small_plan()
    ranks = tuple(replace(place, node=f"={place.node}") for place in plan.placement.ranks)
    hosts = tuple(f"={host}" for host in plan.placement.hosts)
    table = render_csv(replace(plan, placement=replace(plan.placement, hosts=hosts, ranks=ranks)))
    assert {row["node"][:2] for row in csv.DictReader(io.StringIO(table))} == {"'="}


def test_perfetto_events_are_in_microseconds() -> None:
    """The viewer wants microseconds, a process for each replica and a thread for each stage."""
    events = json.loads(rendered("perfetto"))["traceEvents"]
    boxes = [event for event in events if event["ph"] == "X"]
    assert boxes[1]["ts"] == pytest.approx(31_000)
    assert {event["tid"] for event in boxes} == {0, 1}
    assert any(event.get("args") == {"name": "stage 1"} for event in events)
    with pytest.raises(InvalidConfiguration, match="no timeline"):
        rendered("perfetto", replace(small_plan(), timeline=()))


def test_json_is_read_back_as_the_same_plan() -> None:
    """The export is the document that the export command reads."""
    assert plan_from_text(rendered("json")) == small_plan()


SHORT = small_plan().placement.ranks[:-1]
SWAPPED = (small_plan().placement.ranks[1], small_plan().placement.ranks[0], *small_plan().placement.ranks[2:])
DOUBLED = tuple(replace(place, gpu=0) for place in small_plan().placement.ranks)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (with_placement(ranks=SHORT), "need 8 ranks"),
        (with_placement(ranks=SWAPPED), "the host list puts rank 0"),
        (with_placement(ranks=DOUBLED), "share a GPU"),
        (with_placement(hosts=("b", "b")), "listed twice"),
        (with_placement(hosts=("b",)), "are not 8 ranks"),
        (with_configuration(stage_layers=((2, 3),)), "adds up to 5 layers"),
        (with_configuration(stage_layers=((4,),)), "row.s. of 2 stages"),
        (with_configuration(micro_batch=3), "global batch"),
        (with_configuration(degrees=Degrees(tensor=2, pipeline=2, data=2, expert=2)), "has no experts"),
    ],
)
@pytest.mark.parametrize("target", ["megatron", "torchrun", "slurm", "hostfile"])
def test_broken_sums_never_leave(plan: Plan, words: str, target: str) -> None:
    """A launcher would hang or train something else; the export refuses instead."""
    with pytest.raises(InvalidConfiguration, match=words):
        rendered(target, plan)


@pytest.mark.parametrize("host", ["b; rm -rf x", "$(id)", "b\nc", "-b", "b c", ""])
@pytest.mark.parametrize("target", ["torchrun", "slurm", "hostfile"])
def test_host_names_cannot_carry_commands(host: str, target: str) -> None:
    """Names come from a file somebody uploaded."""
    plan = small_plan()
    ranks = tuple(replace(p, node=host if p.node == "b" else p.node) for p in plan.placement.ranks)
    placement = Placement(hosts=(host, "a"), gpus_per_node=4, ranks=ranks)
    with pytest.raises(InvalidConfiguration, match="not a host name"):
        rendered(target, replace(plan, placement=placement))


def test_names_stay_inside_their_comment() -> None:
    """A model's name with a line break cannot add a line to the script."""
    text = rendered("megatron", replace(small_plan(), model="x\nrm -rf y"))
    assert not any(line.startswith("rm") for line in text.splitlines())


@pytest.mark.parametrize(
    ("fact", "flag"),
    [
        ("overlap_tensor", "--tp-comm-overlap"),
        ("overlap_gradients", "--overlap-grad-reduce"),
        ("overlap_parameters", "--overlap-param-gather"),
        ("defer_head_gradient", "--defer-embedding-wgrad-compute"),
        ("fused_loss", "--cross-entropy-loss-fusion"),
    ],
)
def test_what_the_cost_model_counts_on_is_switched_on(fact: str, flag: str) -> None:
    """A fact of the framework that made the step shorter has its flag, and only then."""
    plan = small_plan()
    assert plan.workload is not None
    for switched in (True, False):
        framework = replace(plan.workload.framework, **{fact: switched})  # type: ignore[arg-type]
        asked = replace(plan, workload=replace(plan.workload, framework=framework))
        assert (flag in bash_array(rendered("megatron", asked), "MEGATRON_ARGS")) is switched


def test_flags_need_model_and_workload() -> None:
    """A plan made by hand may lack them; then there is nothing to export."""
    with pytest.raises(InvalidConfiguration, match="model and workload"):
        rendered("megatron", replace(small_plan(), workload=None))


@given(
    st.builds(
        Degrees,
        tensor=st.integers(1, 4),
        context=st.integers(1, 3),
        data=st.integers(1, 4),
        pipeline=st.integers(1, 4),
    ),
    st.sampled_from(RankOrder),
)
def test_coordinates_number_every_rank_once(degrees: Degrees, order: RankOrder) -> None:
    """Ranks and coordinates are two names of the same thing."""
    configuration = replace(small_configuration(), degrees=degrees, rank_order=order)
    found = {coordinates(rank, configuration) for rank in range(degrees.gpus)}
    assert len(found) == degrees.gpus
    assert max(found, key=lambda c: c[3])[3] == degrees.pipeline - 1


@pytest.mark.parametrize("name", sorted(EXPORTS.keys() - EXPERT_MAPS.keys()))
def test_a_plan_on_a_part_of_a_node_can_be_launched(name: str) -> None:
    """Launchers are told the GPUs that are used, not those that the node has."""
    plan = planned(problem(nodes(2, gpus=4), max_gpus=2, pinned={"tensor": 2}))
    assert (plan.placement.gpus_per_node, len(plan.placement.hosts)) == (2, 1)
    text = rendered(name, plan)
    if name == "hostfile":
        assert text == "n0 slots=2\n"
