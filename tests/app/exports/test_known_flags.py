"""Every flag and field that leaves is one that the tool knows: facts of each tool, kept beside these tests."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.exports.launch_value import launch_of
from app.exports.nemo import overrides
from cluster_models.frameworks import CudaGraphs, ExpertDispatch, frameworks
from cluster_models.gpus import Precision
from cluster_models.plan import Plan
from tests.app.exports.plans import PLANS, export
from tests.app.exports.test_formats import REFUSED

KNOWN = tomllib.loads(Path(__file__).with_name("known_flags.toml").read_text())
_FLAG = re.compile(r"(?<![\w-])(--?[a-z][\w.-]*)")


def variants(tool: str, *, precisions: tuple[Precision, ...] = tuple(Precision)) -> Iterator[Plan]:
    """Plans that a tool takes, with every precision, framework and dispatch."""
    for shape, plan in PLANS.items():
        if (tool, shape) in REFUSED:
            continue
        assert plan.workload is not None
        for precision, known in itertools.product(precisions, frameworks().values()):
            for dispatch, graphs in zip(ExpertDispatch, CudaGraphs, strict=True):
                framework = replace(known, expert_dispatch=dispatch, cuda_graphs=graphs)
                yield replace(plan, workload=replace(plan.workload, precision=precision, framework=framework))


def code(text: str) -> str:
    """A script without its comments and the options of bash itself."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"#(?!SBATCH)|set -", line))


def test_megatron_knows_its_flags() -> None:
    """Over all precisions, frameworks and shapes."""
    found = {
        flag
        for plan in variants("megatron")
        for flag in _FLAG.findall(code(export("megatron").files(plan)[0].text))
    }
    assert found <= set(KNOWN["megatron"]["names"])
    assert len(found) > 30


def test_bridge_knows_its_fields() -> None:
    """Over all precisions, frameworks and shapes."""
    found = {name for plan in variants("nemo") for name in overrides(launch_of(plan))}
    assert found == set(KNOWN["nemo"]["names"])


def test_deepspeed_knows_its_keys() -> None:
    """Launcher options and the keys of the configuration, nested ones with their table."""
    keys: set[str] = set()
    for plan in variants("deepspeed", precisions=(Precision.BF16, Precision.FP16)):
        settings, _, script = export("deepspeed").files(plan)
        keys |= set(_FLAG.findall(code(script.text)))
        for name, value in json.loads(settings.text).items():
            keys |= {name} | ({f"{name}.{inner}" for inner in value} if isinstance(value, dict) else set())
    assert keys == set(KNOWN["deepspeed"]["names"])


def test_torchtitan_knows_its_fields() -> None:
    """The TOML has the same fields, and one that 0.3 chooses otherwise."""
    found: set[str] = set()
    for plan in variants("torchtitan", precisions=(Precision.BF16, Precision.FP8, Precision.FP32)):
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
    """What follows the launcher's name, up to our own words."""
    for plan in PLANS.values():
        for file in export(name).files(plan):
            lines = [line for line in code(file.text).splitlines() if re.search(r"--|mpirun", line)]
            flags = {flag for line in lines for flag in _FLAG.findall(line.partition(" bash ")[0])}
            assert flags <= set(KNOWN[tool]["names"])


def test_facts_name_their_source() -> None:
    """A list of names without its version and source is worth nothing."""
    for facts in KNOWN.values():
        assert facts["version"]
        assert facts["source"]
        assert len(set(facts["names"])) == len(facts["names"])
