"""Settings of a configuration that contradict one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster_models.errors import InvalidConfiguration
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.recompute import checked_recomputation
from cluster_models.training.workload import WHOLE_OFFLOAD, Recompute, Sharding

if TYPE_CHECKING:
    from cluster_models.training.plan import Configuration


def check_configuration(configuration: Configuration) -> None:
    """Raise ``InvalidConfiguration`` where settings do not go together."""
    checked_recomputation(configuration.recompute, configuration.recompute_modules, configuration.recompute_layers)
    ranks, group = configuration.degrees.data * configuration.degrees.context, configuration.sharding_ranks
    if group and (group < 1 or ranks % group or group % configuration.degrees.context):
        raise InvalidConfiguration(
            "sharding_ranks",
            group,
            f"must divide the {ranks} data and context ranks into groups of whole context groups",
            "0 stands for all ranks",
        )
    if group and configuration.sharding not in (Sharding.OPTIMIZER, Sharding.PARAMETERS):
        problem = f"goes with sharding optimizer or parameters, not {configuration.sharding}"
        raise InvalidConfiguration("sharding_ranks", group, problem)
    percent = configuration.optimizer_offload
    least = WHOLE_OFFLOAD * (configuration.offload_to_disks or configuration.offload_parameters)
    if not least <= percent <= WHOLE_OFFLOAD:
        problem = "is a share in percent, 100 on disks or beside offloaded parameters"
        raise InvalidConfiguration("optimizer_offload", percent, problem)
    if configuration.offload_parameters and configuration.sharding is not Sharding.PARAMETERS:
        raise InvalidConfiguration("offload_parameters", True, "goes with sharding parameters")
    if not 0 <= configuration.offloaded_layers < max(1, sum(map(sum, configuration.stage_layers))):
        raise InvalidConfiguration(
            "offloaded_layers", configuration.offloaded_layers, "must leave a layer of the model", "0 offloads none"
        )
    if configuration.offloaded_layers and (
        configuration.degrees.pipeline > 1 or configuration.recompute is not Recompute.NONE
    ):
        raise InvalidConfiguration(
            "offloaded_layers", configuration.offloaded_layers, "goes with one pipeline rank and nothing recomputed"
        )
    _check_exchange(configuration)


def _check_exchange(configuration: Configuration) -> None:
    context, heads = configuration.degrees.context, configuration.head_ranks
    if context == 1 and configuration.context_exchange is not ContextExchange.RING:
        raise InvalidConfiguration(
            "context_exchange", str(configuration.context_exchange), "goes with several context ranks", "use ring"
        )
    hierarchical = configuration.context_exchange is ContextExchange.HIERARCHICAL
    if hierarchical and not (1 < heads < context and context % heads == 0):
        raise InvalidConfiguration(
            "head_ranks", heads, f"must cut the {context} context ranks of a hierarchical exchange into groups"
        )
    if heads and not hierarchical:
        raise InvalidConfiguration("head_ranks", heads, "goes with a hierarchical exchange", "leave it out")
