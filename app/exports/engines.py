"""Common parts of inference engines: the degrees of a plan that they can take, and a script for every host.

The plan is one for training.  Its degrees say how weights fit on GPUs and links; batches, sequence lengths and the
cache of a server were not planned, and every file says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.exports.contract import unsupported
from app.exports.launch_value import Launch
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import RankOrder

ENGINE_SAYS: Final = frozenset(
    {"world", "hosts", "first_host", "gpus_per_host", "gpus", "tensor", "pipeline", "data", "expert"}
)
_START_REPLICAS: Final = "start a server for each replica behind a router, or plan with data = 1"


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """A launch as an engine takes it.  ``stages``: decoder layers of each pipeline rank, empty where all equal."""

    engine: str
    model: str
    hosts: tuple[str, ...]
    gpus: tuple[tuple[int, ...], ...]
    tensor: int
    pipeline: int
    data: int
    expert: int
    sparse: bool
    stages: tuple[int, ...]
    order: RankOrder

    @property
    def gpus_per_host(self) -> int:
        """GPUs of each host."""
        return len(self.gpus[0])

    @property
    def replica(self) -> int:
        """GPUs that hold the model once."""
        return self.tensor * self.pipeline

    @property
    def experts_everywhere(self) -> bool:
        """Whether the experts of a stage are spread over all its GPUs, and there are several."""
        return self.expert > 1 and self.expert == self.tensor * self.data

    @property
    def replicas_in_a_row(self) -> bool:
        """Whether the GPUs of every replica are neighbours in rank order, as engines fill hosts with replicas."""
        return self.pipeline == 1 or self.data == 1 or self.order is RankOrder.PIPELINE_BEFORE_DATA

    def refuse(self, field: str, value: object, reason: str, remedy: str = "") -> InvalidConfiguration:
        """The error of this engine about ``configuration.field``."""
        return unsupported(self.engine, field, value, reason, remedy)


def engine_launch(launch: Launch, engine: str) -> EngineLaunch:
    """The launch as an engine sees it; raises ``InvalidConfiguration`` where no engine can do the same."""
    degrees, configuration, model = launch.degrees, launch.configuration, launch.architecture
    rows = configuration.stage_layers
    made = EngineLaunch(
        engine,
        " ".join(launch.plan.model.split()),
        launch.hosts,
        launch.gpus,
        degrees.tensor,
        degrees.pipeline,
        degrees.data,
        degrees.expert,
        model.experts is not None,
        rows[0] if len(set(rows[0])) > 1 else (),
        configuration.rank_order,
    )
    if degrees.context > 1:
        raise made.refuse(
            "degrees.context",
            degrees.context,
            "context parallel training has no counterpart in a server",
            "plan with context = 1",
        )
    if degrees.virtual_pipeline > 1:
        raise made.refuse(
            "degrees.virtual_pipeline",
            degrees.virtual_pipeline,
            "a server gives each pipeline rank one run of layers",
            "plan with virtual_pipeline = 1",
        )
    if 0 in made.stages:
        raise made.refuse("stage_layers", rows, "a pipeline rank has no layer", "plan with even stages")
    if max(degrees.tensor, model.kv_heads) % min(degrees.tensor, model.kv_heads):
        raise made.refuse(
            "degrees.tensor",
            degrees.tensor,
            f"{model.kv_heads} key-value heads are neither shared nor copied evenly",
            f"plan with a tensor degree that divides {model.kv_heads} or is a multiple of it",
        )
    if degrees.expert not in {1, degrees.tensor * degrees.data}:
        raise made.refuse(
            "degrees.expert",
            degrees.expert,
            f"experts lie on all {degrees.tensor * degrees.data} GPUs of a stage or are cut with its tensors",
            f"plan with expert = {degrees.tensor * degrees.data} or 1",
        )
    if degrees.expert_tensor > 1 and (degrees.expert > 1 or degrees.expert_tensor != degrees.tensor * degrees.data):
        raise made.refuse(
            "degrees.expert_tensor",
            degrees.expert_tensor,
            f"experts are whole, or cut over all {degrees.tensor * degrees.data} GPUs of a stage",
            "plan with expert_tensor = 1",
        )
    return made


def needs_server_each(engine: EngineLaunch, reason: str) -> InvalidConfiguration:
    """The error where one server cannot hold the replicas of the plan."""
    return engine.refuse("degrees.data", engine.data, reason, _START_REPLICAS)


def check_stages_in_a_row(engine: EngineLaunch) -> None:
    """Raise ``InvalidConfiguration`` where the replicas of a stage are not neighbours in rank order.

    Data parallel attention numbers all GPUs of a stage one after the other.
    """
    if engine.data > 1 and engine.pipeline > 1 and engine.order is not RankOrder.DATA_BEFORE_PIPELINE:
        raise engine.refuse(
            "rank_order",
            engine.order,
            "replicas of one stage must be neighbours",
            f"plan with rank order {RankOrder.DATA_BEFORE_PIPELINE}",
        )


def script(engine: EngineLaunch, name: str, environment: dict[str, str], command: list[str]) -> str:
    """A script to run on every host: it finds its node rank and GPUs, and starts the engine.

    ``command`` are lines of shell, the first the program; on other hosts than the first, a line that begins with
    ``[`` may change the arguments.
    """
    cases = [
        f"    {host}) NODE_RANK={slot}; GPUS={','.join(map(str, gpus))} ;;"
        for slot, (host, gpus) in enumerate(zip(engine.hosts, engine.gpus, strict=True))
    ]
    before = [line for line in command if line.startswith("[")]
    lines = [line for line in command if not line.startswith("[")]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *remarks(engine),
            f"# Run on each of {len(engine.hosts)} hosts: bash {name} [MORE FLAGS]",
            "set -euo pipefail",
            'case "${MESHWRIGHT_HOST:-$(hostname)}" in',
            *cases,
            '    *) echo "$(hostname) is not in this plan; set MESHWRIGHT_HOST to its name there" >&2; exit 2 ;;',
            "esac",
            'export CUDA_VISIBLE_DEVICES="$GPUS"',
            *(f"export {key}={value}" for key, value in environment.items()),
            *before,
            f"exec {lines[0]} \\",
            *(f"    {line} \\" for line in lines[1:]),
            '    "$@"',
            "",
        ]
    )


def remarks(engine: EngineLaunch) -> list[str]:
    """The comments on top of every file."""
    degrees = f"tensor {engine.tensor}, pipeline {engine.pipeline}, data {engine.data}, expert {engine.expert}"
    return [
        f"# Meshwright: {engine.model} by {engine.engine}, {degrees}.",
        "# These are the degrees of a plan for TRAINING: requests, sequence lengths and cache were not planned.",
    ]


def partition(engine: EngineLaunch, variable: str) -> dict[str, str]:
    """The environment variable that gives each pipeline rank its layers, where they are not as many everywhere."""
    return {variable: ",".join(map(str, engine.stages))} if engine.stages else {}
