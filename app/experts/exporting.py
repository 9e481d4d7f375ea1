"""Expert maps as the files of engines, under the names that users type."""

from __future__ import annotations

from typing import Final

from app.experts.links import check_model
from app.exports.contract import Files
from app.exports.expert_maps import EXPERT_MAPS
from app.exports.packing import archive
from cluster_models.architecture import Architecture
from cluster_models.errors import InvalidInput
from cluster_models.expert_slots import ExpertSlots

FORMATS: Final = {name.removeprefix("experts-"): form for name, form in EXPERT_MAPS.items()}


def files_of(name: str, slots: ExpertSlots, model_layers: int) -> Files:
    """The files of a format; raises ``InvalidInput`` where it cannot say the map."""
    return FORMATS[name].files(slots, model_layers)


def archive_of(name: str, slots: ExpertSlots, model_layers: int) -> bytes:
    """The same as a ZIP archive."""
    return archive(files_of(name, slots, model_layers))


def model_layers_of(slots: ExpertSlots, model: Architecture | None, given: int | None) -> int:
    """Decoder layers of the model, dense ones included; without a model the last one placed is its last."""
    if model is not None and given is not None:
        raise InvalidInput("model_layers", given, "stands beside a model, which says it", "give one of them")
    if model is not None:
        check_model(model, slots.experts)
        return model.layers
    return slots.layers[-1] + 1 if given is None else given
