"""Every training format on plans of every shape: what it says, and what a target cannot take."""

from __future__ import annotations

import io
import subprocess
import zipfile
from dataclasses import replace
from typing import Any

import pytest

from app.exports.claims import Claims, claims_of
from app.exports.contract import check_files
from app.exports.launch_value import launch_of
from app.exports.options import options_of
from app.exports.packing import packed
from app.exports.registry import EXPORTS
from app.exports.report_html import COLOURS
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.model.layer_kinds import Mixer
from cluster_models.model.mixers import StateSpace
from cluster_models.remarks import remark
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Placement
from cluster_models.training.rank_costs import MEMORY_PARTS, TIME_PARTS
from tests.app.exports.plans import PLANS, TRAINING, UNLIKE, export, text_of, unlike
from tests.plans import small_plan

REFUSED = {
    ("deepspeed", "dense"): "PipelineModule",
    ("deepspeed", "uneven"): "PipelineModule",
    ("deepspeed", "virtual"): "PipelineModule",
    ("deepspeed", "uneven virtual"): "PipelineModule",
    ("deepspeed", "larger groups"): "PipelineModule",
    ("deepspeed", "empty stage"): "PipelineModule",
    ("deepspeed", "any stages"): "PipelineModule",
    ("deepspeed", "whole model"): "PipelineModule",
    ("deepspeed", "pipeline first"): "PipelineModule",
    ("deepspeed", "experts"): "expert groups",
    ("deepspeed", "few experts"): "expert groups",
    ("deepspeed", "cut experts"): "expert groups",
    ("deepspeed", "context"): "Ulysses",
    ("torchtitan", "cut experts"): "does not cut experts",
    ("torchtitan", "empty stage"): "stage without layers",
    ("torchtitan", "larger groups"): "makes otherwise or refuses",
    ("torchtitan", "pipeline first"): "pipeline ranks last",
    ("deepspeed", "delta net"): "PipelineModule",
    ("deepspeed", "indexer"): "PipelineModule",
    ("deepspeed", "blocks"): "PipelineModule",
    ("torchtitan", "delta net"): "no attention gate, gated delta net",
    ("torchtitan", "indexer"): "no sparse attention",
    ("torchtitan", "blocks"): "no latent experts, mamba 2",
    ("primus", "whole model"): "windows and sinks",
    ("primus", "delta net"): "gated delta net",
    ("primus", "indexer"): "sparse attention",
    ("primus", "blocks"): "mamba 2",
    ("primus", "even blocks"): "mamba 2",
    ("nemo", "blocks"): "pattern of a recipe",
    ("nemo", "even blocks"): "pattern of a recipe",
    ("deepspeed", "even blocks"): "PipelineModule",
    ("torchtitan", "even blocks"): "no mamba 2",
}


@pytest.mark.parametrize("shape", PLANS | UNLIKE)
@pytest.mark.parametrize("name", TRAINING)
def test_every_format_says_what_the_plan_does(name: str, shape: str) -> None:
    """Files come out and are read back as the launch, or the target is said not to do it, and why."""
    plan = (PLANS | UNLIKE)[shape]
    reason = REFUSED.get((name, shape))
    if reason:
        with pytest.raises(InvalidConfiguration, match=f"cannot take it: .*{reason}"):
            export(name).files(plan)
        return
    files = export(name).files(plan)
    found, meant = export(name).read_back(files), claims_of(launch_of(plan))
    said = {field for field in Claims.__slots__ if getattr(found, field) is not None}
    assert said >= {field for field in export(name).says if getattr(meant, field) is not None}
    assert files == export(name).files(plan)
    assert len({file.name for file in files}) == len(files)


@pytest.mark.parametrize("name", sorted(set(EXPORTS) - {"json"}))
def test_a_described_framework_is_started_like_the_generation_it_is_like(name: str) -> None:
    """Its own name is in no rule: files, and refusals, are those of the generation."""
    plan = PLANS["experts"]
    assert plan.workload is not None
    for like in map(framework, ("megatron-core-0.12", "nemo-25.04", "torchtitan-2025")):
        outcomes = []
        for each in (like, replace(like, name="ours", title="Ours", like=like.name)):
            workload = replace(plan.workload, framework=each)
            try:
                outcomes.append(EXPORTS[name].files(replace(plan, workload=workload)))
            except InvalidInput as refused:
                outcomes.append(str(refused))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("shape", PLANS)
@pytest.mark.parametrize("name", TRAINING)
def test_scripts_are_scripts(name: str, shape: str) -> None:
    """Bash finds nothing wrong with any shell file."""
    if (name, shape) in REFUSED:
        return
    for file in export(name).files(PLANS[shape]):
        if file.name.endswith(".sh"):
            done = subprocess.run(["bash", "-n"], input=file.text, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("host", ["b; rm -rf x", "$(id)", "b\nc", "-b", "b c", "", "b: {}", "b'", 'b"', "`id`"])
@pytest.mark.parametrize("name", ["deepspeed", "torchrun-nodes", "openmpi", "slurm-hostfile", "ray"])
def test_host_names_cannot_carry_commands(name: str, host: str) -> None:
    """Names come from a file somebody uploaded."""
    plan = PLANS["replicas"]
    old = plan.placement.hosts[0]
    ranks = tuple(replace(place, node=host if place.node == old else place.node) for place in plan.placement.ranks)
    hostile = replace(plan, placement=Placement((host, *plan.placement.hosts[1:]), 4, ranks))
    with pytest.raises(InvalidConfiguration, match="not a host name"):
        export(name).files(hostile)


def test_the_page_shows_every_part_of_a_step() -> None:
    """One more where states lie in the nodes' memory; no colour stands for two parts."""
    plan = PLANS["replicas"]
    page = export("report").files(replace(plan, time=replace(plan.time, offload_s=0.5)))[0].text
    assert "memory 500.0 ms" in page
    assert len(set(COLOURS)) >= max(len(TIME_PARTS), len(MEMORY_PARTS))


def test_the_page_shows_any_name_as_text() -> None:
    """A report launches nothing: names may be anything, and stay text."""
    plan = PLANS["replicas"]
    name = "<script>alert(1)</script> & 'b'"
    ranks = tuple(
        replace(place, node=name if place.node == plan.placement.hosts[0] else place.node)
        for place in plan.placement.ranks
    )
    odd = replace(
        plan,
        model=name,
        placement=Placement((name, *plan.placement.hosts[1:]), 4, ranks),
        warnings=(remark("text", text=name),),
    )
    page = export("report").files(odd)[0].text
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("job", "Job 1"),
        ("image", "a b"),
        ("image", "$(id)"),
        ("image", ""),
        ("port", "0"),
        ("port", "http"),
        ("command", ""),
        ("command", "train.py 'x"),
        ("queue", "q\nr"),
        ("topology_label", "a: b"),
        ("colour", "red"),
    ],
)
def test_options_are_checked(option: str, value: str) -> None:
    """An option that could break out of a file is refused by its name."""
    with pytest.raises(InvalidInput, match=f"options.{option}"):
        options_of({option: value})


def test_options_reach_the_files() -> None:
    """Words of the command stay words, whatever stands in them."""
    options = options_of({"command": "train.py --note 'a b; $(id)'", "port": "12345", "job": "run-7"})
    assert options.command == ("train.py", "--note", "a b; $(id)")
    for name in ("torchrun-nodes", "openmpi", "slurm-hostfile", "deepspeed"):
        text = "".join(file.text for file in export(name).files(PLANS["replicas"], options))
        assert "train.py --note 'a b; $(id)'" in text
        assert "12345" in text
    assert "#SBATCH --job-name=run-7\n" in export("slurm-hostfile").files(PLANS["replicas"], options)[0].text


def test_a_folder_is_packed_the_same_way_every_time() -> None:
    """An archive holds the files as they are, and depends on nothing but them."""
    found = export("openmpi")
    files = found.files(PLANS["dense"])
    assert packed(found, files) == packed(found, files)
    with zipfile.ZipFile(io.BytesIO(packed(found, files))) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            file.name: file.text for file in files
        }
        assert archive.getinfo("rank.sh").external_attr >> 16 == 0o755
        assert archive.getinfo("hostfile").external_attr >> 16 == 0o644


def test_names_and_families_are_in_order() -> None:
    """Each format has its own name, and a file name that goes with its type."""
    for name, found in EXPORTS.items():
        assert found.name == name
        assert found.is_folder == found.file_name.endswith(".zip")
    assert list(EXPORTS)[:7] == ["megatron", "torchrun", "slurm", "hostfile", "perfetto", "csv", "json"]


def test_a_format_that_forgets_a_figure_is_found_out() -> None:
    """A fact that a format must state is missed where its files lack it."""
    found, plan = export("hostfile"), PLANS["dense"]
    greedy = replace(found, says=found.says | {"tensor"})
    with pytest.raises(InvalidConfiguration, match=r"exports.hostfile.tensor"):
        greedy.files(plan)


def test_a_renderer_of_another_plan_is_found_out() -> None:
    """Files for 16 ranks never leave for a plan of 8."""
    found = export("torchrun-nodes")
    with pytest.raises(InvalidConfiguration, match=r"exports.torchrun-nodes.world.* 8"):
        check_files(found, found.files(PLANS["shards"]), launch_of(PLANS["replicas"]))


@pytest.mark.parametrize("name", TRAINING)
def test_plans_made_by_hand_are_refused_or_launched(name: str) -> None:
    """Without a model and a workload there are no flags, but hosts have an order all the same."""
    bare = replace(PLANS["replicas"], workload=None, architecture=None)
    if name in {"megatron", "nemo", "primus", "deepspeed", "torchtitan"}:
        with pytest.raises(InvalidConfiguration, match="model and workload"):
            export(name).files(bare)
    else:
        assert export(name).files(bare)


def test_half_precision_is_refused_where_there_is_none() -> None:
    """A target that trains in other numbers would train something else."""
    for name, precision in (("deepspeed", Precision.FP8), ("torchtitan", Precision.FP16)):
        plan = PLANS["replicas"]
        assert plan.workload is not None
        other = replace(plan, workload=replace(plan.workload, precision=precision))
        with pytest.raises(InvalidConfiguration, match="precision"):
            export(name).files(other)


def test_expert_groups_need_sharded_ranks_in_torchtitan() -> None:
    """Replicas do not lend their ranks to experts there."""
    plan = PLANS["experts"]
    replicas = replace(
        plan, configuration=replace(plan.configuration, sharding=PLANS["replicas"].configuration.sharding)
    )
    with pytest.raises(InvalidConfiguration, match="expert groups share out 2 ranks"):
        export("torchtitan").files(replicas)
    assert [file.name for file in export("torchtitan").files(PLANS["few experts"])] == ["torchtitan_args.sh"]


def test_launches_are_values_with_sums_that_hold() -> None:
    """There is no launch of a plan with a broken sum."""
    plan = PLANS["dense"]
    with pytest.raises(InvalidConfiguration, match="are not 8 ranks"):
        launch_of(replace(plan, placement=replace(plan.placement, hosts=plan.placement.hosts[:1])))


@pytest.mark.parametrize(
    ("mixers", "parts", "reason"),
    [
        ((Mixer.PARALLEL,), {"state_space": StateSpace(8, 64, 128, groups=8)}, "no parallel mixers"),
        ((Mixer.CONVOLUTION,), {"short_convolution": 3}, "no short convolution"),
        ((Mixer.STATE_SPACE, Mixer.FULL), {"state_space": StateSpace(8, 64, 128, groups=8)}, "not single blocks"),
    ],
)
def test_megatron_says_what_models_it_cannot_be_told(
    mixers: tuple[Mixer, ...], parts: dict[str, Any], reason: str
) -> None:
    """Mixers side by side, convolutions, and layers of a state space that are not blocks by themselves."""
    with pytest.raises(InvalidConfiguration, match=reason):
        export("megatron").files(unlike(mixers=mixers, **parts))


@pytest.mark.parametrize("name", ["torchrun", "slurm", "jobset", "megatron", "nemo", "primus"])
def test_power_caps_are_set_before_a_run(name: str) -> None:
    """One line for all hosts; none where no cap binds."""
    plan = small_plan()
    plan = replace(plan, stages=tuple(replace(stage, gpu_kind="H100-SXM5-80GB") for stage in plan.stages))
    assert plan.workload is not None
    for watts, times in ((490.0, 1), (700.0, 0), (None, 0)):
        capped = replace(plan, workload=replace(plan.workload, gpu_power_cap_watts=watts))
        text = text_of(name, capped)
        assert (
            text.count("# Before, as root on every host: nvidia-smi -i 0,1,2,3 -pl 490")
            == text.count("nvidia-smi")
            == times
        )


def test_power_caps_name_the_hosts_that_have_them() -> None:
    """Caps reach those of several kinds whose boards have more, AMD's by its own command."""
    plan = small_plan()
    assert plan.workload is not None
    workload = replace(plan.workload, gpu_power_cap_watts=490.0)
    for first, second, words in (
        ("H100-SXM5-80GB", "A100-SXM4-80GB", "on b: nvidia-smi -i 0,1,2,3 -pl 490"),
        ("MI300X", "MI300X", "on every host: rocm-smi -d 0 1 2 3 --setpoweroverdrive 490"),
    ):
        kinds = zip(plan.stages, (first, second), strict=True)
        stages = tuple(replace(stage, gpu_kind=kind) for stage, kind in kinds)
        text = text_of("torchrun", replace(plan, stages=stages, workload=workload))
        assert [line for line in text.splitlines() if "as root" in line] == [f"# Before, as root {words}"]
