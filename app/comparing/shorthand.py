"""Configurations in the shorthand that plans are named by: ``tp4 pp8 dp2 vpp4 mb1 recompute=full``.

Recomputation may name modules or a number of layers: ``recompute=selective:moe_act``, ``recompute=full:2``.
"""

from __future__ import annotations

import re
from typing import Final

from app.documents.configuration import ConfigurationDocument, DegreesDocument
from app.documents.reading import close_name
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Configuration, Degrees, Plan
from cluster_models.training.recompute import read_recomputation, recomputation_words
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding

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

    Micro-batch, recomputation, sharding and schedule are those of ``plan`` where they are not said; layers are
    those of the alternative of the plan that has these sizes, else as even as they can be.
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
    return ConfigurationDocument(
        degrees=DegreesDocument.from_value(degrees),
        micro_batch_sequences=micro_batch or own.micro_batch,
        recompute=policy,
        recompute_modules=sorted(modules),
        recompute_layers=layers,
        sharding=Sharding(choices.get("sharding", own.sharding)),
        schedule=PipelineSchedule(choices.get("schedule", own.schedule)),
    )


def _words(text: str) -> tuple[dict[str, int], int | None, dict[str, str]]:
    sizes: dict[str, int] = {}
    choices: dict[str, str] = {}
    micro_batch: int | None = None
    for word in text.lower().replace(",", " ").split():
        if size := _SIZE.fullmatch(word):
            name, number = size[1], int(size[2])
            if number < 1:
                raise InvalidConfiguration(name, number, "must be at least 1")
            if name in _MICRO_BATCH:
                micro_batch = number
                continue
            if name in _DEGREES:
                if sizes.setdefault(_DEGREES[name], number) != number:
                    raise InvalidConfiguration(name, text, "is given with two sizes", "give each degree once")
                continue
        elif (choice := _CHOICE.fullmatch(word)) and choice[1] == "recompute":
            choices["recomputation"] = recomputation_words(*read_recomputation(choice[2]))
            continue
        elif choice and choice[1] in _CHOICES:
            if choice[2] not in _CHOICES[choice[1]]:
                known = close_name(choice[2], [str(each) for each in _CHOICES[choice[1]]])
                raise InvalidConfiguration(choice[1], choice[2], "is no choice", known)
            choices[choice[1]] = choice[2]
            continue
        raise InvalidConfiguration("configuration", word, "is no degree and no setting", _REMEDY)
    return sizes, micro_batch, choices


def _known(plan: Plan, degrees: Degrees, micro_batch: int | None, choices: dict[str, str]) -> Configuration | None:
    """The configuration of the plan or of an alternative that the words name."""
    for known in (plan.configuration, *(other.configuration for other in plan.alternatives)):
        if (
            known.degrees == degrees
            and micro_batch in (None, known.micro_batch)
            and all(getattr(known, name) == value for name, value in choices.items())
        ):
            return known
    return None
