"""Expert maps as the files of engines, under the names that users type."""

from __future__ import annotations

from typing import Final

from app.experts.links import check_model
from app.exports.contract import Family, Files
from app.exports.expert_maps import EXPERT_MAPS
from app.exports.packing import archive
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.training.expert_slots import ExpertSlots
from solver.experts.dispatch import RouterRule
from solver.experts.grouped import keeps_groups

FORMATS: Final = {name.removeprefix("experts-"): form for name, form in EXPERT_MAPS.items()}


def files_of(name: str, slots: ExpertSlots, model_layers: int) -> Files:
    """The files of a format; raises ``InvalidInput`` where it cannot say the map."""
    return FORMATS[name].files(slots, model_layers)


def check_groups(name: str, slots: ExpertSlots, model: Architecture | None, rule: RouterRule | None = None) -> None:
    """Raise ``InvalidInput`` where the engine of a format would give tokens other experts with this map.

    A format for training renumbers experts in the checkpoint, and routers form their groups by these numbers; the
    router is that of the model, or what ``rule`` says where no model is named.
    """
    if model is not None and model.experts is not None:
        rule = RouterRule.of(model.experts)
    groups = 1 if rule is None else rule.groups
    if FORMATS[name].family is not Family.TRAINING or groups == 1:
        return
    for layer, row in zip(slots.layers, slots.slots, strict=True):
        if len(row) == slots.experts and not keeps_groups(row, groups):
            problem = f"would mix the {groups} router groups of layer {layer}, which are formed by position"
            remedy = "plan a training with --routing: its orders keep groups together"
            raise InvalidInput("format", name, problem, remedy)


def archive_of(name: str, slots: ExpertSlots, model_layers: int) -> bytes:
    """The same as a ZIP archive."""
    return archive(files_of(name, slots, model_layers))


def model_layers_of(slots: ExpertSlots, model: Architecture | None, given: int | None) -> int:
    """Decoder layers of the model, dense ones included; without a model the last one placed is its last."""
    if model is not None and given is not None:
        raise InvalidInput("model_layers", given, "conflicts with a model, which says it", "give one of them")
    if model is not None:
        check_model(model, slots.experts)
        return model.layers
    return slots.layers[-1] + 1 if given is None else given
