"""One engine as exports know it: the words that start a server, for hosts and for operators that add hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.exports.options import Options
from app.exports.serving.deployment import Server
from cluster_models.serving.flags import engine_program, flag_problems
from cluster_models.serving.replicas import GpuPlace
from cluster_models.serving.workload import WeightFormat

Flag = tuple[str, ...]
"""An argument with its value, or a switch alone."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Words of one engine family.

    ``shape``: arguments of a server wherever it runs; raises ``InvalidConfiguration`` where the engine cannot do
    what was planned.  ``hosts``: its hosts in rank order with their GPUs.  ``process``: arguments of the process on
    one of them; the address of the first host is ``leader``.  ``image``: a container image of the generation.
    """

    family: str
    shape: Callable[[Server, Options], Iterable[Flag]]
    hosts: Callable[[Server], tuple[GpuPlace, ...]]
    process: Callable[[Server, int, str, Options], Iterable[Flag]]
    image: Callable[[str], str]


def command(engine: Engine, server: Server, slot: int, leader: str, options: Options) -> list[str]:
    """The words of the process on host ``slot`` of a server, arguments as its generation knows them.

    Raises ``InvalidConfiguration`` where it does not.
    """
    given = [*engine.shape(server, options), *engine.process(server, slot, leader, options)]
    check_flags(server, given)
    return [*engine_program(server.engine), server.model_path, *(word for flag in given for word in flag)]


def check_flags(server: Server, given: Iterable[Flag]) -> None:
    """Raise ``InvalidConfiguration`` where the server's generation has no such argument, or not this value."""
    for problem in flag_problems(server.engine, ((flag[0], flag[1:]) for flag in given)):
        raise server.refused("worker", str(server.worker), problem, "name a newer engine in the workload")


def weight_remarks(server: Server) -> list[str]:
    """Demand on the checkpoint, where an argument alone does not make the planned format."""
    workload, model = server.served.workload, server.served.architecture
    attention = workload.attention_format(model)
    if workload.weights is WeightFormat.BF16:
        return []
    kept = f", attention in {attention}" if attention is not workload.weights else ""
    if workload.weights is WeightFormat.FP8 and not kept and server.engine.family != "trtllm":
        return [
            "--quantization fp8 quantises 16-bit weights on loading; leave it out where the checkpoint has FP8."
        ]
    return [f"{server.model_path} must hold weights of {model.name} in {workload.weights}{kept}."]
