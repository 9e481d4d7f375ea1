"""The files that a map of experts can be taken as, and what brings the map back when one is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from app.experts.answer import ExpertMapDocument
from app.experts.exporting import FORMATS, check_groups, files_of, model_layers_of
from app.imports.sources import SentFile
from app.web.clusters.packed_files import pack
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture


@dataclass(frozen=True, slots=True)
class FormatLine:
    """A format, or why it cannot say the map."""

    name: str
    description: str
    refused: str


@dataclass(frozen=True, slots=True)
class MapFiles:
    """``model_layers``: decoder layers, dense ones included; those placed last are the last where no model says."""

    formats: tuple[FormatLine, ...]
    carried: str
    model_layers: int
    model_known: bool


def map_files(document: ExpertMapDocument, model: Architecture | None) -> MapFiles:
    """All formats of a map; raises ``InvalidInput`` where the model has other experts."""
    slots = document.to_slots()
    model_layers = model_layers_of(slots, model, None)
    lines = []
    for name, form in FORMATS.items():
        refused = ""
        try:
            files_of(name, slots, model_layers)
            check_groups(name, slots, model)
        except InvalidInput as error:
            refused = "; ".join(filter(None, (error.problem, error.remedy)))
        lines.append(FormatLine(name, form.description, refused))
    carried = pack([SentFile("map.json", document.model_dump_json().encode())])
    return MapFiles(tuple(lines), carried, model_layers, model is not None)
