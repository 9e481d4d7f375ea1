"""The map that a page carries, as the files of an engine."""

from __future__ import annotations

from fastapi.responses import Response
from pydantic import Field
from starlette.datastructures import FormData

from app.documents.reading import Count, Document, close_name, read_document
from app.documents.text import parse_json
from app.experts.answer import ExpertMapDocument
from app.experts.exporting import FORMATS, archive_of
from app.web.clusters.packed_files import unpack
from app.web.forms import number
from cluster_models.errors import InvalidInput
from readers.routing.reading import MOST_LAYERS


class _Wanted(Document):
    """Size of the model in layers."""

    model_layers: Count = Field(le=2 * MOST_LAYERS)


def map_download(data: FormData) -> Response:
    """The files that the form asks for; raises ``InvalidInput`` where it was changed on its way."""
    carried, form, layers = (str(data.get(field) or "") for field in ("carried", "format", "model_layers"))
    files = unpack(carried)
    if len(files) != 1:
        raise InvalidInput("map", len(files), "did not come back whole", "place the experts again")
    document = read_document(ExpertMapDocument, parse_json(files[0].data, what="map"), what="map")
    slots = document.to_slots()
    if form == "json":
        headers = {"Content-Disposition": 'attachment; filename="expert-map.json"'}
        return Response(document.model_dump_json() + "\n", media_type="application/json", headers=headers)
    if form not in FORMATS:
        raise InvalidInput("format", form, "unknown format", close_name(form, list(FORMATS)))
    wanted = read_document(_Wanted, {"model_layers": number(layers)}, what="form")
    headers = {"Content-Disposition": f'attachment; filename="experts-{form}.zip"'}
    return Response(archive_of(form, slots, wanted.model_layers), media_type="application/zip", headers=headers)
