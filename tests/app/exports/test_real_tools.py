"""Exports tried on the sources of the tools themselves: parsers are run, declared names are looked up.

``make fetch-tools`` brings the sources; what is missing is skipped.  Only the functions that are named are run, out
of their modules: the rest of these tools needs GPUs or gigabytes.
"""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml

from app.exports.launch_value import launch_of
from app.exports.measuring import render_kubernetes
from app.exports.megatron import megatron_arguments
from app.exports.megatron_releases import NEWEST, release_of
from app.exports.nemo import overrides
from app.exports.options import Options
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Degrees
from solver.measuring.choose import what_to_measure
from tests.app.exports.fetch_tools import tool_sources
from tests.app.exports.plans import PLANS, export, shaped, under
from tests.app.exports.test_engines import ENGINES
from tests.app.exports.test_engines import REFUSED as ENGINE_REFUSED
from tests.app.exports.test_engines import SHAPES as ENGINE_SHAPES
from tests.app.exports.test_formats import REFUSED
from tests.app.exports.test_known_flags import KNOWN, megatron_flags, variants
from tests.app.exports.test_kubernetes import FORMATS, WHOLE, closed, objects, rendered
from tests.solver.problems import nodes as nodes_of
from tests.solver.problems import problem

_NUMBERS: Final = {"int": int, "float": float}
SECTIONS: Final = {
    "model": ("GPTModelProvider", "TransformerConfig", "ModelParallelConfig"),
    "train": ("TrainingConfig",),
    "dist": ("DistributedInitConfig",),
    "ddp": ("DistributedDataParallelConfig",),
    "optimizer": ("OptimizerConfig",),
    "checkpoint": ("CheckpointConfig",),
    "comm_overlap": ("CommOverlapConfig",),
    "rng": ("RNGConfig",),
    "rerun_state_machine": ("RerunStateMachineConfig",),
}
"""Classes that hold the fields of each part of Megatron-Bridge's ``ConfigContainer``."""


@functools.cache
def trees(tool: str) -> tuple[ast.Module, ...]:
    """The modules of a tool; skips where they are not here."""
    files = sorted((tool_sources() / tool).rglob("*.py"))
    if not files:
        pytest.skip(f"the sources of {tool} are not here: make fetch-tools")
    return tuple(ast.parse(file.read_text("utf-8")) for file in files)


def nodes(tool: str) -> Iterator[ast.AST]:
    """Every part of every module."""
    for tree in trees(tool):
        yield from ast.walk(tree)


def words(tool: str) -> set[str]:
    """All constant texts: flags of parsers, keys of documents."""
    return {node.value for node in nodes(tool) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def fields(tool: str) -> dict[str, set[str]]:
    """The annotated fields of each class."""
    found: dict[str, set[str]] = {}
    for node in nodes(tool):
        if isinstance(node, ast.ClassDef):
            own = {
                line.target.id
                for line in node.body
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            }
            found.setdefault(node.name, set()).update(own)
    return found


def functions(tool: str, names: set[str], **around: Any) -> Mapping[str, Any]:
    """The functions ``names`` of a tool, compiled out of their modules, with what ``around`` gives them.

    Constants of their modules are empty texts unless they are given.
    """
    found = {node.name: node for node in nodes(tool) if isinstance(node, ast.FunctionDef) and node.name in names}
    assert found.keys() == names
    for node in found.values():
        node.decorator_list = []
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
    module = ast.fix_missing_locations(ast.Module(list(found.values()), []))
    used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name) and node.id.isupper()}
    space: dict[str, Any] = dict.fromkeys(used, "") | dict(around)
    exec(compile(module, tool, "exec"), space)  # noqa: S102 - pinned sources that somebody fetched to be run
    return space


@pytest.mark.parametrize("shape", PLANS)
def test_the_parser_of_torchrun_takes_every_line(shape: str) -> None:
    """Nodes, ranks and processes come out as the plan has them, and our script as the program."""
    plan = PLANS[shape]
    kinds = {"env": "store", "check_env": "store_true"}
    parser = functions(
        "torchrun",
        {"get_args_parser"},
        ArgumentParser=argparse.ArgumentParser,
        REMAINDER=argparse.REMAINDER,
        _AffinityMode=(),
        **kinds,
    )["get_args_parser"]()
    (file,) = export("torchrun-nodes").files(plan, Options(command=("train.py", "--lr", "1e-4")))
    lines = [line for line in file.text.splitlines() if not line.startswith("#")]
    ranks = []
    for line in lines:
        _, program, *given = shlex.split(line)
        assert program == "torchrun"
        said = parser.parse_args(given)
        assert (said.nnodes, said.master_addr) == (str(len(lines)), plan.placement.hosts[0])
        assert int(said.nproc_per_node) * len(lines) == plan.configuration.degrees.gpus
        assert [said.training_script, *said.training_script_args] == ["train.py", "--lr", "1e-4"]
        ranks.append(said.node_rank)
    assert ranks == list(range(len(lines)))


def test_megatron_declares_every_flag() -> None:
    """Flags are written out, or made of fields of its configurations ("no-" before those that are on)."""
    said, every = words("megatron"), set().union(*fields("megatron").values())

    def is_known(flag: str) -> bool:
        name = flag.removeprefix("--")
        return flag in said or {name.replace("-", "_"), name.removeprefix("no-").replace("-", "_")} & every != set()

    assert [flag for flag in sorted(megatron_flags()[NEWEST]) if not is_known(flag)] == []
    assert not is_known("--pipeline-model-parallel-layouts")


def parser_of(tool: str) -> argparse.ArgumentParser:
    """The parser that a release of Megatron-LM makes: its arguments with their actions, numbers and choices."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for node in nodes(tool):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if node.func.attr != "add_argument" or not names:
            continue
        given: dict[str, Any] = {"dest": names[0]}
        for keyword in node.keywords:
            if keyword.arg in {"action", "nargs", "choices"}:
                with suppress(ValueError):
                    given[keyword.arg] = ast.literal_eval(keyword.value)
            elif keyword.arg == "type" and isinstance(keyword.value, ast.Name) and keyword.value.id in _NUMBERS:
                given["type"] = _NUMBERS[keyword.value.id]
        parser.add_argument(*names, **given)
    return parser


@pytest.mark.parametrize("release", [8, 12, 15])
def test_the_parser_of_each_release_takes_every_line(release: int) -> None:
    """The parser of a generation's own release of Megatron-Core takes the arguments that it is launched with."""
    parser = parser_of(f"megatron-0.{release}")
    taken = 0
    for plan in variants("megatron"):
        assert plan.workload is not None
        if release_of(plan.workload.framework) != release:
            continue
        with suppress(InvalidConfiguration):
            flags = megatron_arguments(launch_of(plan)).flags
            parser.parse_args([word for flag in flags for word in shlex.split(flag)])
            taken += 1
    assert taken > 50
    with pytest.raises(SystemExit):
        parser.parse_args(["--pipeline-model-parallel-layouts", "Et|tL"])


@pytest.mark.parametrize("shape", ["uneven", "uneven virtual", "own ends"])
def test_the_release_before_layouts_builds_the_stages_of_the_plan(shape: str) -> None:
    """The arguments before layouts, through the function of 0.12 that counts the layers of a stage."""
    rows = {"own ends": ((1, 3), (1, 3))}.get(shape)
    plan = PLANS[shape] if rows is None else shaped(Degrees(pipeline=2, data=4, virtual_pipeline=2), rows)
    said = parser_of("megatron-0.12").parse_args(
        [word for flag in megatron_arguments(launch_of(plan)).flags for word in shlex.split(flag)]
    )
    told = {name.removeprefix("--").replace("-", "_"): value for name, value in vars(said).items()}
    degrees = plan.configuration.degrees
    config = SimpleNamespace(
        num_layers=told["num_layers"],
        pipeline_model_parallel_size=degrees.pipeline,
        num_layers_in_first_pipeline_stage=told["decoder_first_pipeline_num_layers"],
        num_layers_in_last_pipeline_stage=told["decoder_last_pipeline_num_layers"],
        account_for_embedding_in_pipeline_split=told["account_for_embedding_in_pipeline_split"],
        account_for_loss_in_pipeline_split=told["account_for_loss_in_pipeline_split"],
    )
    virtual = told["num_virtual_stages_per_pipeline_rank"]
    assert (virtual or 1) == degrees.virtual_pipeline
    for row, counts in enumerate(plan.configuration.stage_layers):
        for rank, count in enumerate(counts):
            ends = (rank == 0, rank == degrees.pipeline - 1)
            stage = (ends[0] and row == 0, ends[1] and row == degrees.virtual_pipeline - 1)
            state = SimpleNamespace(
                get_pipeline_model_parallel_world_size=lambda: degrees.pipeline,
                get_virtual_pipeline_model_parallel_world_size=lambda: virtual,
                is_pipeline_first_stage=lambda ignore_virtual=False, e=ends, s=stage: (e if ignore_virtual else s)[
                    0
                ],
                is_pipeline_last_stage=lambda ignore_virtual=False, e=ends, s=stage: (e if ignore_virtual else s)[
                    1
                ],
            )
            build = functions("megatron-0.12", {"get_num_layers_to_build"}, parallel_state=state)
            assert build["get_num_layers_to_build"](config) == count


@pytest.mark.parametrize("shape", [name for name in PLANS if ("megatron", name) not in REFUSED])
def test_megatron_parses_every_layout(shape: str) -> None:
    """Decoder layers of each stage, in Megatron's order: chunk after chunk, each over all stages."""
    plan = under(PLANS[shape], "megatron-core-0.15")
    match = re.search(r"--pipeline-model-parallel-layout [\"']?([^\"'\s]+)", export("megatron").files(plan)[0].text)
    layers = Enum("layers", "embedding loss decoder mtp")
    parse = functions("nemo", {"parse_str_to_list"}, re=re, LayerType=layers)["parse_str_to_list"]
    if match is None:
        assert len({count for row in plan.configuration.stage_layers for count in row}) == 1
        return
    found = parse(match[1])
    counts = tuple(count for row in plan.configuration.stage_layers for count in row)
    assert tuple(stage.count(layers["decoder"]) for stage in found) == counts
    assert found[0][0] is layers["embedding"]
    assert found[-1][-1] is layers["loss"]


def test_bridge_declares_every_field() -> None:
    """Each override names a field of the class behind its part; precisions are recipes by that name."""
    declared = fields("nemo")
    for name in set(KNOWN["nemo"]["names"]) - {"model.cuda_graph_modules"}:  # came with Megatron-Core 0.18
        part, _, field = name.partition(".")
        assert part in declared["ConfigContainer"]
        assert not field or any(field in declared[one] for one in SECTIONS[part]), name
    recipes = {node.name for node in nodes("nemo") if isinstance(node, ast.FunctionDef)}
    asked = {overrides(launch_of(plan))["mixed_precision"] for plan in variants("nemo")}
    assert asked - {"null"} <= recipes
    assert len(asked) == 6


def test_torchtitan_declares_every_field() -> None:
    """Its arguments are its configuration's fields by part."""
    declared = fields("torchtitan")
    parts = {"training": "TrainingConfig", "parallelism": "ParallelismConfig"}
    for name in KNOWN["torchtitan"]["names"]:
        part, _, field = name.removeprefix("--").partition(".")
        assert field in declared[parts[part]], name


def test_deepspeed_declares_every_key() -> None:
    """Keys of the document and of its tables."""
    declared, said = fields("deepspeed"), words("deepspeed")
    classes = {
        "zero_optimization": "DeepSpeedZeroConfig",
        "bf16": "DeepSpeedBF16Config",
        "fp16": "DeepSpeedFP16Config",
        "tensor_parallel": "TPTrainingConfig",
    }
    for name in KNOWN["deepspeed"]["names"]:
        part, _, field = name.partition(".")
        assert part in said or name == "--deepspeed_config", name
        assert not field or field in declared[classes[part]], name


@pytest.mark.parametrize("shape", [name for name in PLANS if ("deepspeed", name) not in REFUSED])
def test_the_launcher_of_deepspeed_chooses_the_gpus_of_the_plan(shape: str) -> None:
    """Its own readers of host file, command line and ``--include``."""
    plan = PLANS[shape]
    names = {"parse_args", "_parse_hostfile", "parse_resource_filter", "parse_inclusion_exclusion"}
    names |= {"parse_node_config", "parse_node_config_list", "_stable_remove_duplicates"}
    stand_in = SimpleNamespace(error=pytest.fail, info=print, warning=print)
    runner = functions(
        "deepspeed",
        names,
        argparse=argparse,
        collections=collections,
        defaultdict=collections.defaultdict,
        re=re,
        json=json,
        logger=stand_in,
        deepcopy=lambda value: json.loads(json.dumps(value)),
        TORCH_DISTRIBUTED_DEFAULT_PORT=29500,
    )
    settings, hosts, script = export("deepspeed").files(plan)
    text = re.sub(r"\\\n", "", script.text.partition("exec deepspeed")[2])
    said = runner["parse_args"](shlex.split(text.replace('"$@"', "")))
    pool = runner["_parse_hostfile"](hosts.text.splitlines())
    chosen = runner["parse_inclusion_exclusion"](pool, said.include, said.exclude)
    assert list(chosen.items()) == [
        (host, list(gpus)) for host, gpus in zip(plan.placement.hosts, launch_of(plan).gpus, strict=True)
    ]
    assert said.master_addr == plan.placement.hosts[0]
    assert said.user_args[-2] == "--deepspeed_config"
    assert json.loads(settings.text)["train_batch_size"] > 0


@pytest.mark.parametrize("name", ENGINES)
def test_engines_declare_every_flag(name: str) -> None:
    """As a flag of a parser, or as a field of the arguments that the parser is made of."""
    tool = f"engines/{name}"
    said, every = words(tool), set().union(*fields(tool).values())
    written: set[str] = set()
    for shape in ENGINE_SHAPES.keys() - ENGINE_REFUSED[name].keys():
        text = export(name).files(ENGINE_SHAPES[shape])[0].text
        server = text.partition("trtllm-serve")[2] if name == "trtllm" else text.partition("\nexec ")[2]
        written |= set(re.findall(r"--[a-z][a-z_-]+", server))
    assert len(written) > 4
    unknown = {flag for flag in written if flag.removeprefix("--").replace("-", "_") not in every | said}
    assert unknown - said == set()


@pytest.mark.parametrize("pairs", [1, 6])
def test_the_operator_of_mpi_jobs_knows_every_field(pairs: int) -> None:
    """Jobs that measure pairs fit the published definition, closed to fields that it does not name."""
    validators = pytest.importorskip("jsonschema_rs")
    file = next((tool_sources() / "crds").rglob("kubeflow.org_mpijobs.yaml"), None)
    if file is None:
        pytest.skip("the definition of MPI jobs is not here: make fetch-tools")
    (version,) = yaml.safe_load(file.read_text("utf-8"))["spec"]["versions"]
    validator = validators.validator_for(closed(version["schema"]["openAPIV3Schema"]))
    plan = what_to_measure(
        problem(nodes_of(4, gpus=2)).snapshot, at=datetime(2026, 5, 1, tzinfo=UTC), most_pairs=pairs
    )
    jobs = objects(render_kubernetes(plan)[1:])
    assert len(jobs) == pairs
    for job in jobs:
        assert job["apiVersion"] == f"kubeflow.org/{version['name']}"
        validator.validate(job)
    with pytest.raises(validators.ValidationError):
        validator.validate(jobs[0] | {"spec": jobs[0]["spec"] | {"slots": 8}})


def pod_templates(tree: Any) -> Iterator[Any]:
    """Whatever holds a pod's specification with containers."""
    if isinstance(tree, list):
        for item in tree:
            yield from pod_templates(item)
    elif isinstance(tree, dict):
        if isinstance(tree.get("spec"), dict) and "containers" in tree["spec"]:
            yield {key: tree[key] for key in ("metadata", "spec") if key in tree}
        for value in tree.values():
            yield from pod_templates(value)


@pytest.mark.parametrize("name", FORMATS)
def test_pods_are_pods_of_kubernetes(name: str) -> None:
    """Each pod template fits the schema of Kubernetes itself, which knows no other fields."""
    validators = pytest.importorskip("jsonschema_rs")
    folder = next((tool_sources() / "kubernetes").rglob("podtemplatespec-v1.json"), None)
    if folder is None:
        pytest.skip("the schemas of Kubernetes are not here: make fetch-tools")
    definitions = json.loads(folder.with_name("_definitions.json").read_text("utf-8"))
    text = folder.read_text("utf-8").replace("/api/_definitions.json#/$defs", "#/$defs")
    schema = json.loads(text)
    inner = json.dumps(definitions["$defs"]).replace("/api/_definitions.json#/$defs", "#/$defs")
    schema["$defs"] = json.loads(inner)
    schema.pop("$id", None)
    validator = validators.validator_for(schema)
    checked = 0
    for plan in (WHOLE, PLANS["uneven"]):
        for template in pod_templates(objects(rendered(name, plan))):
            validator.validate(template)
            checked += 1
    assert checked > 1
    with pytest.raises(validators.ValidationError):
        validator.validate({"spec": {"containers": [{"name": "a", "image": "b", "gpus": 8}]}})
