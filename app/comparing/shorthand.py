"""Configurations in the shorthand that plans are named by: ``tp4 pp8 dp2 vpp4 mb1 recompute=full``.

Recomputation may name modules or a number of layers: ``recompute=selective:moe_act``, ``recompute=full:2``;
``offload=50`` is a share of the optimizer states in percent, ``exchange=hierarchical:8`` that of context ranks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from app.documents.configuration import ConfigurationDocument, DegreesDocument, RunSettingsDocument
from app.documents.reading import close_name
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.framework_choices import ContextExchange, CudaGraphs
from cluster_models.training.free_settings import that_matter
from cluster_models.training.plan import Configuration, Degrees, Plan
from cluster_models.training.recompute import read_recomputation, recomputation_words
from cluster_models.training.run_settings import RunSettings
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import WHOLE_OFFLOAD, Recompute, RecomputeModule, Sharding

_DEGREES: Final = {
    "tp": "tensor",
    "pp": "pipeline",
    "dp": "data",
    "cp": "context",
    "ep": "expert",
    "etp": "expert_tensor",
    "vpp": "virtual_pipeline",
}
_MICRO_BATCH: Final = ("mb", "mbs")
_OFFLOAD: Final = "offload"
_EXCHANGE: Final = "exchange"
_CHOICES: Final = {
    "sharding": tuple(Sharding),
    "schedule": tuple(PipelineSchedule),
}
_SIZE: Final = re.compile(r"([a-z]+)[=:]?(\d{1,9})")
_CHOICE: Final = re.compile(r"([a-z]+)[=:]([a-z0-9_:+]+)")
_REMEDY: Final = "write degrees as in 'tp8 pp4 dp2 mb1 recompute=full', or name a file"


def is_shorthand(text: str) -> bool:
    """Whether a text is written as degrees are: its first word has one of their names and a number."""
    match = _SIZE.fullmatch(text.split(maxsplit=1)[0].lower()) if text.split() else None
    return match is not None and (match[1] in _DEGREES or match[1] in _MICRO_BATCH)


def read_shorthand(text: str, plan: Plan, *, gpus: int) -> ConfigurationDocument:
    """The configuration that ``text`` names, on ``gpus`` GPUs where it does not say ``dp``.

    Micro-batch, recomputation, sharding, offloading and schedule are those of ``plan`` where they are not said;
    layers are those of the alternative of the plan that has these sizes, else as even as they can be.
    """
    sizes, micro_batch, choices = _words(text)
    if "data" not in sizes:
        cell = sizes.get("tensor", 1) * sizes.get("pipeline", 1) * sizes.get("context", 1)
        if gpus % cell:
            raise InvalidConfiguration(
                "dp",
                None,
                f"is not said, and {cell} ranks of a replica do not divide {gpus} GPUs",
                "say dp, or other sizes",
            )
        sizes["data"] = gpus // cell
    degrees, own = Degrees(**sizes), plan.configuration
    found = _known(plan, degrees, micro_batch, choices)
    if found is not None:
        return ConfigurationDocument.from_value(found)
    policy, modules, layers = read_recomputation(choices.get("recomputation", own.recomputation))
    alike = own.exchange_words if degrees.context == own.degrees.context else str(ContextExchange.RING)
    exchange, _, head_ranks = choices.get("exchange_words", alike).partition(":")
    schedule = PipelineSchedule(choices.get("schedule", own.schedule))
    return ConfigurationDocument(
        degrees=DegreesDocument.from_value(degrees),
        micro_batch_sequences=micro_batch or own.micro_batch,
        recompute=policy,
        recompute_modules=sorted(modules),
        recompute_layers=layers,
        sharding=Sharding(choices.get("sharding", own.sharding)),
        offload_to_disks=own.offload_to_disks and "optimizer_offload" not in choices,
        offload_parameters=own.offload_parameters and not {"optimizer_offload", "sharding"} & choices.keys(),
        offloaded_layers=own.offloaded_layers * (degrees.pipeline == 1 and policy is Recompute.NONE),
        optimizer_offload_percent=int(choices.get("optimizer_offload", own.optimizer_offload)),
        context_exchange=ContextExchange(exchange),
        head_ranks=int(head_ranks or 0),
        settings=RunSettingsDocument.from_value(_settings_in(own, degrees, policy, modules, schedule)),
        schedule=schedule,
    )


def _settings_in(
    own: Configuration,
    degrees: Degrees,
    policy: Recompute,
    modules: frozenset[RecomputeModule],
    schedule: PipelineSchedule,
) -> RunSettings:
    """The settings chosen for a plan, ``own``, as far as they go with other degrees, recomputation and schedule."""
    shape = Configuration(
        degrees, 1, policy, own.sharding, own.rank_order, (), schedule, modules, settings=own.settings
    )
    found = that_matter(shape)
    graphs = found.cuda_graphs
    without = graphs is CudaGraphs.PARTIAL and policy is Recompute.FULL  # no framework has both
    return replace(found, cuda_graphs=None if without else graphs)


def _words(text: str) -> tuple[dict[str, int], int | None, dict[str, str]]:
    sizes: dict[str, int] = {}
    choices: dict[str, str] = {}
    micro_batch: int | None = None
    for word in text.lower().replace(",", " ").split():
        size = _SIZE.fullmatch(word)
        if size is None or size[1] == _OFFLOAD:
            choices |= _setting(word)
            continue
        name, number = size[1], int(size[2])
        if number < 1:
            raise InvalidConfiguration(name, number, "must be at least 1")
        if name in _MICRO_BATCH:
            micro_batch = number
        elif name not in _DEGREES:
            raise _unknown(word)
        elif sizes.setdefault(_DEGREES[name], number) != number:
            raise InvalidConfiguration(name, text, "is given with two sizes", "give each degree once")
    return sizes, micro_batch, choices


def _setting(word: str) -> dict[str, str]:
    """A setting that is not a degree, by its name in ``Configuration``."""
    choice = _CHOICE.fullmatch(word)
    if choice is None or choice[1] not in ("recompute", _OFFLOAD, _EXCHANGE, *_CHOICES):
        raise _unknown(word)
    name, value = choice[1], choice[2]
    if name == "recompute":
        return {"recomputation": recomputation_words(*read_recomputation(value))}
    if name == _OFFLOAD:
        if not value.isdigit() or int(value) > WHOLE_OFFLOAD:
            raise InvalidConfiguration(name, value, f"is a share in percent, from 0 to {WHOLE_OFFLOAD}")
        return {"optimizer_offload": str(int(value))}
    if name == _EXCHANGE:
        exchange, _, ranks = value.partition(":")
        if exchange not in [*ContextExchange] or not (ranks or "0").isdigit():
            known = close_name(exchange, [str(each) for each in ContextExchange])
            raise InvalidConfiguration(name, value, "is not an exchange of context ranks", known)
        return {"exchange_words": value}
    if value not in _CHOICES[name]:
        known = close_name(value, [str(each) for each in _CHOICES[name]])
        raise InvalidConfiguration(name, value, "is not a choice", known)
    return {name: value}


def _unknown(word: str) -> InvalidConfiguration:
    return InvalidConfiguration("configuration", word, "is neither a degree nor a setting", _REMEDY)


def _known(plan: Plan, degrees: Degrees, micro_batch: int | None, choices: dict[str, str]) -> Configuration | None:
    """The configuration of the plan or of an alternative that the words name."""
    for known in (plan.configuration, *(other.configuration for other in plan.alternatives)):
        if (
            known.degrees == degrees
            and micro_batch in (None, known.micro_batch)
            and all(str(getattr(known, name)) == value for name, value in choices.items())
        ):
            return known
    return None
