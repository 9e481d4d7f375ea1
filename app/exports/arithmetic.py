"""The sums a launcher relies on, checked again before a plan leaves the product."""

from __future__ import annotations

import re
from typing import Final

from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Degrees, Plan, RankPlace
from solver.check.placement import coordinates

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_world(plan: Plan) -> None:
    """World size, host list and every rank's place and coordinates agree; else ``InvalidConfiguration``."""
    degrees, placement = plan.configuration.degrees, plan.placement
    world = degrees.gpus
    if len(placement.ranks) != world:
        raise InvalidConfiguration(
            "ranks", len(placement.ranks), f"the degrees {degrees} need {world} ranks", "plan again"
        )
    if len(placement.hosts) * placement.gpus_per_node != world:
        raise InvalidConfiguration(
            "configuration.hosts",
            len(placement.hosts),
            f"{len(placement.hosts)} hosts x {placement.gpus_per_node} GPUs are not {world} ranks",
        )
    if len(set(placement.hosts)) < len(placement.hosts):
        raise InvalidConfiguration("configuration.hosts", placement.hosts, "a host is listed twice")
    for rank, place in enumerate(placement.ranks):
        _check_place(plan, rank, place)
    for slot, host in enumerate(placement.hosts):
        gpus = gpus_of_host(plan, slot)
        if len(set(gpus)) < len(gpus):
            raise InvalidConfiguration(f"ranks on {host}", gpus, "two ranks share a GPU")


def check_layers(plan: Plan) -> None:
    """The layers of all stages add up to the model's; else ``InvalidConfiguration``."""
    configuration = plan.configuration
    degrees, rows = configuration.degrees, configuration.stage_layers
    if len(rows) != degrees.virtual_pipeline or any(len(row) != degrees.pipeline for row in rows):
        raise InvalidConfiguration(
            "configuration.stage_layers",
            rows,
            f"needs {degrees.virtual_pipeline} row(s) of {degrees.pipeline} stages",
        )
    total = sum(map(sum, rows))
    if plan.architecture is not None and total != plan.architecture.layers:
        raise InvalidConfiguration(
            "configuration.stage_layers",
            rows,
            f"adds up to {total} layers; {plan.architecture.name} has {plan.architecture.layers}",
        )


def check_divisions(plan: Plan) -> None:
    """Batch, heads and experts divide by the degrees that share them; else ``InvalidConfiguration``."""
    configuration, model, workload = plan.configuration, plan.architecture, plan.workload
    degrees = configuration.degrees
    if workload is not None:
        share = configuration.micro_batch * degrees.data
        _check_division("global batch", workload.global_batch, "micro-batch x data", share)
    if model is None:
        return
    _check_division("attention heads", model.heads, "tensor", degrees.tensor)
    fold = degrees.tensor * degrees.context * degrees.data
    _check_division("tensor x context x data", fold, "expert", degrees.expert)
    if model.experts is not None:
        _check_division("experts", model.experts.count, "expert", degrees.expert)
        _check_division("tensor x context x data", fold, "expert x expert tensor", degrees.expert_block)
        _check_division("width of an expert", model.experts.hidden, "expert tensor", degrees.expert_tensor)
    else:
        for name in ("expert", "expert_tensor"):
            if getattr(degrees, name) > 1:
                raise InvalidConfiguration(
                    f"degrees.{name}", getattr(degrees, name), f"{model.name} has no experts"
                )


def check_host_names(plan: Plan) -> None:
    """Host names are safe to stand in a script; else ``InvalidConfiguration``."""
    for host in plan.placement.hosts:
        check_host_name(host, "configuration.hosts")


def check_host_name(host: str, field: str) -> None:
    """The name of a host may stand in a script; else ``InvalidConfiguration`` of ``field``."""
    if not _HOST_NAME.fullmatch(host):
        problem = "is not a host name that a launcher could reach"
        raise InvalidConfiguration(field, host, problem, "use letters, digits, dots and dashes in node names")


def gpus_of_host(plan: Plan, slot: int) -> list[int]:
    """GPU numbers of the ranks on host ``slot``, in rank order."""
    size = plan.placement.gpus_per_node
    return [place.gpu for place in plan.placement.ranks[slot * size : (slot + 1) * size]]


def expert_rank(place: RankPlace, degrees: Degrees) -> int:
    """Expert parallel rank: expert groups fold over tensor, context and data ranks, expert tensor ranks fastest."""
    return _inside_stage(place, degrees) // degrees.expert_tensor % degrees.expert


def expert_tensor_rank(place: RankPlace, degrees: Degrees) -> int:
    """Number of the share of its experts' width that a rank holds."""
    return _inside_stage(place, degrees) % degrees.expert_tensor


def _inside_stage(place: RankPlace, degrees: Degrees) -> int:
    """The number of a rank among those of its stage."""
    return place.tensor + degrees.tensor * (place.context + degrees.context * place.data)


def _check_place(plan: Plan, rank: int, place: RankPlace) -> None:
    configuration, placement = plan.configuration, plan.placement
    host = placement.hosts[rank // placement.gpus_per_node]
    if place.rank != rank or place.node != host:
        raise InvalidConfiguration(
            f"ranks[{rank}]", (place.rank, place.node), f"the host list puts rank {rank} on {host}"
        )
    expected = coordinates(rank, configuration)
    found = (place.tensor, place.context, place.data, place.pipeline)
    if found != expected:
        raise InvalidConfiguration(
            f"ranks[{rank}]",
            found,
            f"order {configuration.rank_order} makes (tensor, context, data, pipeline) = {expected}",
        )


def _check_division(what: str, number: int, by: str, share: int) -> None:
    if number % share:
        raise InvalidConfiguration(what, number, f"is not divisible by {by} = {share}")
