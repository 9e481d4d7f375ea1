"""Exchanges of context ranks in Megatron-Core's words, for arguments and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.exports.contract import unreadable, unsupported
from app.exports.launch_value import Launch
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.plan import Configuration

NAMES: Final[Mapping[ContextExchange, str]] = MappingProxyType(
    {
        ContextExchange.RING: "p2p",
        ContextExchange.GATHER: "all_gather",
        ContextExchange.ALL_TO_ALL: "a2a",
        ContextExchange.HIERARCHICAL: "a2a+p2p",
    }
)
BY_NAME: Final[Mapping[str, ContextExchange]] = MappingProxyType(
    {name: each for each, name in NAMES.items()} | {"allgather": ContextExchange.GATHER}
)
KIND: Final = "cp_comm_type"
SIZES: Final = "hierarchical_context_parallel_sizes"


def group_sizes(configuration: Configuration) -> tuple[int, ...]:
    """Context ranks that exchange heads, and those of a ring over their groups; empty unless hierarchical."""
    heads = configuration.head_ranks
    return (heads, configuration.degrees.context // heads) if heads else ()


def exchange_said(name: str, sizes: tuple[int, ...], context: int) -> str:
    """The words of the exchange that a name and sizes of groups stand for, a ring unless told otherwise."""
    exchange = BY_NAME.get(name or "p2p")
    if exchange is None:
        raise unreadable(f"exports.{KIND}", name, f"is not one of {', '.join(NAMES.values())}")
    if exchange is not ContextExchange.HIERARCHICAL:
        return str(exchange)
    if len(sizes) != 2 or sizes[0] * sizes[1] != context:
        raise unreadable(f"exports.{SIZES}", sizes, f"do not make {context} context ranks")
    return f"{exchange}:{sizes[0]}"


def refuse_exchange(target: str, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where context ranks exchange otherwise than in a target's ring."""
    exchange = launch.configuration.context_exchange
    if exchange is not ContextExchange.RING:
        problem, remedy = "its context ranks pass keys and values on", "plan with ring, or export megatron"
        raise unsupported(target, "context_exchange", str(exchange), problem, remedy)
