"""Every flag and field that leaves is one that the tool knows: facts of each tool, kept beside these tests."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from app.exports.launch_value import launch_of
from app.exports.megatron import megatron_arguments
from app.exports.megatron_releases import has, release_of
from app.exports.nemo import overrides
from app.exports.primus import primus_overrides
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.adapters import Adapters
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance, ExpertDispatch
from cluster_models.training.frameworks import frameworks
from cluster_models.training.optimizer_states import MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Recompute, RecomputeModule, Sharding
from tests.app.exports.plans import PLANS, UNLIKE, export, hierarchical, offloaded, under, waiting
from tests.app.exports.test_formats import REFUSED

KNOWN = tomllib.loads(Path(__file__).with_name("known_flags.toml").read_text())
BALANCES = (ExpertBalance.NATURAL, ExpertBalance.FORCED, ExpertBalance.CAPACITY)
_ARRAYS = re.compile(r"^(MEGATRON_ARGS=\(.*?^\)|CHECKPOINT_ARGS=[^\n]*)$", re.MULTILINE | re.DOTALL)
_FLAG = re.compile(r"(?<![\w-])(--?[a-z][\w.-]*)")


def variants(tool: str, *, precisions: tuple[Precision, ...] = tuple(Precision)) -> Iterator[Plan]:
    """Plans that a tool takes, with every precision, framework and dispatch."""
    for shape, plan in PLANS.items():
        if (tool, shape) in REFUSED:
            continue
        assert plan.workload is not None
        for precision, known in itertools.product(precisions, frameworks().values()):
            for dispatch, graphs, balance, ranks in zip(
                ExpertDispatch, CudaGraphs, BALANCES, (0, 2, 4), strict=True
            ):
                framework = replace(
                    known,
                    expert_dispatch=dispatch,
                    cuda_graphs=graphs,
                    expert_balance=balance,
                    sharding_ranks=ranks,
                )
                yield replace(plan, workload=replace(plan.workload, precision=precision, framework=framework))


def memory_options() -> Iterator[Plan]:
    """Modules that run again beside narrow optimizer states, and offloaded ones, under each generation with all."""
    plan = PLANS["dense"]
    assert plan.workload is not None
    modules = frozenset({RecomputeModule.MLP})
    chosen = replace(plan.configuration, recompute=Recompute.SELECTIVE, recompute_modules=modules)
    states = OptimizerStates(MomentFormat.FP16, MomentFormat.FP16, MasterFormat.FP16)
    for known in frameworks().values():
        if known.megatron_core >= 12:
            workload = replace(plan.workload, framework=known, optimizer_states=states)
            yield replace(plan, workload=workload, configuration=chosen)
            yield offloaded(known.name)
            yield hierarchical(known.name)
            yield waiting(known.name)


def adapted() -> Plan:
    """A plan that trains adapters."""
    plan = under(PLANS["dense"], "megatron-bridge-26.06")
    assert plan.workload is not None
    return replace(plan, workload=replace(plan.workload, adapters=Adapters(16)))


@cache
def megatron_flags() -> Mapping[int, frozenset[str]]:
    """By release of Megatron-Core, every argument that the plans of its generations are given."""
    found: dict[int, set[str]] = {}
    for plan in itertools.chain(variants("megatron"), UNLIKE.values(), memory_options()):
        assert plan.workload is not None
        with suppress(InvalidConfiguration):  # the generation cannot launch it
            said = {flag.partition(" ")[0] for flag in megatron_arguments(launch_of(plan)).flags}
            found.setdefault(release_of(plan.workload.framework), set()).update(said)
    return {release: frozenset(said) for release, said in found.items()}


def code(text: str) -> str:
    """A script without its comments and the options of bash itself."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"#(?!SBATCH)|set -", line))


def test_megatron_knows_its_flags() -> None:
    """Over all precisions, frameworks and shapes."""
    found = frozenset().union(*megatron_flags().values())
    assert found == set(KNOWN["megatron"]["names"])


def test_no_release_is_given_what_came_later() -> None:
    """Every argument is at least as old as the release that the plan's generation holds."""
    seen = megatron_flags()
    assert set(seen) == {8, 9, 11, 12, 14, 16, 15, 17, 18, 19}
    assert {(release, flag) for release, flags in seen.items() for flag in flags if not has(release, flag)} == set()
    assert "--pipeline-model-parallel-layout" in seen[15]
    assert "--decoder-first-pipeline-num-layers" in seen[12] - seen[15]
    assert "--use-custom-fsdp" in seen[12] - seen[14]
    assert {"--moe-enable-deepep", "--external-cuda-graph"} <= seen[14]


def test_bridge_knows_its_fields() -> None:
    """Over all precisions, frameworks and shapes."""
    plans = itertools.chain(variants("nemo"), memory_options(), [adapted()])
    found = {name for plan in plans for name in overrides(launch_of(plan))}
    assert found == set(KNOWN["nemo"]["names"])


def test_primus_knows_its_settings() -> None:
    """Over all precisions, frameworks and shapes: it would pass over names that it does not know."""
    found: set[str] = set()
    some = ("primus-26", "megatron-bridge-25.09", "torchtitan-2025")
    for plan in itertools.chain(variants("primus"), memory_options()):
        assert plan.workload is not None
        if plan.workload.framework.name in some:
            with suppress(InvalidConfiguration):
                found |= primus_overrides(launch_of(plan)).keys()
    assert found == set(KNOWN["primus"]["names"])


def test_deepspeed_knows_its_keys() -> None:
    """Launcher options and the keys of the configuration, nested ones with their table."""
    keys: set[str] = set()
    plans = variants("deepspeed", precisions=(Precision.BF16, Precision.FP16))
    for plan in itertools.chain(plans, [offloaded("transformers-2025")]):
        settings, _, script = export("deepspeed").files(plan)
        keys |= set(_FLAG.findall(code(script.text)))
        for name, value in json.loads(settings.text).items():
            keys |= {name} | ({f"{name}.{inner}" for inner in value} if isinstance(value, dict) else set())
    assert keys == set(KNOWN["deepspeed"]["names"])


def test_torchtitan_knows_its_fields() -> None:
    """The TOML has the same fields, and one that 0.3 chooses otherwise."""
    found: set[str] = set()
    plans = variants("torchtitan", precisions=(Precision.BF16, Precision.FP8, Precision.FP32))
    for plan in itertools.chain(plans, [offloaded("torchtitan-2025", Sharding.PARAMETERS)]):
        arguments, *toml = export("torchtitan").files(plan)
        flags = set(_FLAG.findall(code(arguments.text)))
        found |= flags
        for file in toml:
            tables = tomllib.loads(file.text)
            assert tables.pop("activation_checkpoint")
            assert {f"--{table}.{name}" for table, rows in tables.items() for name in rows} == flags
    assert found == set(KNOWN["torchtitan"]["names"])


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("torchrun", "torchrun"),
        ("torchrun-nodes", "torchrun"),
        ("openmpi", "openmpi"),
        ("slurm-hostfile", "slurm"),
    ],
)
def test_launchers_know_their_flags(name: str, tool: str) -> None:
    """Arguments after the launcher's name, up to our own words."""
    for plan in PLANS.values():
        for file in export(name).files(plan):
            text = _ARRAYS.sub("", code(file.text))
            lines = [line for line in text.splitlines() if re.search(r"--|mpirun", line)]
            flags = {flag for line in lines for flag in _FLAG.findall(re.split(" bash | pretrain_", line)[0])}
            assert flags <= set(KNOWN[tool]["names"])


def test_facts_name_their_source() -> None:
    """A list of names without its version and source is worth nothing."""
    for facts in KNOWN.values():
        assert facts["version"]
        assert facts["source"]
        assert len(set(facts["names"])) == len(facts["names"])
