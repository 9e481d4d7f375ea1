"""Plans as other programs read them, wherever a plan comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import BaseModel, Field

from app.api.v1.answers import address
from app.exports.contract import Export, Family, Files, refusals
from app.exports.options import Options, options_of
from app.exports.packing import Format, packed
from app.exports.registry import EXPORTS
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.plan import Plan

FILE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The file.",
        "content": {kind: {} for kind in sorted({export.media_type for export in EXPORTS.values()})},
    }
}
SetOptions = Annotated[
    list[str] | None,
    Query(
        alias="set",
        max_length=20,
        description=f"An option of the launch as name=value, once each: {', '.join(Options.__slots__)}, "
        "as far as the format has a use for it.",
        examples=[["image=registry.example/train:7", "queue=team-a"]],
    ),
]


class ExportAnswer(BaseModel):
    """A format that plans are exported to."""

    name: str = Field(description="Last part of its address.", examples=["torchrun"])
    file_name: str = Field(description="Name of the file.", examples=["torchrun.sh"])
    media_type: str = Field(description="Type of the content.", examples=["text/x-shellscript"])
    description: str = Field(description="Use of the file.", examples=["Script for every node"])
    address: str = Field(description="Where to get it.")
    family: Family = Field(description="Whom it is for.", examples=["training"])
    refusal: str | None = Field(
        description="Why the target cannot run this plan; null where it can.", examples=[None]
    )

    @classmethod
    def of(cls, export: Format, error: InvalidConfiguration | None, *place: str) -> ExportAnswer:
        """A format of the plan whose address has these parts, with the ``error`` that exporting to it raises."""
        return cls(
            name=export.name,
            file_name=export.file_name,
            media_type=export.media_type,
            description=export.description,
            address=address(*place, "exports", export.name),
            family=export.family,
            refusal=None if error is None else str(error),
        )


def export_answers(plan: Plan, *place: str) -> list[ExportAnswer]:
    """The formats of the plan whose address has these parts."""
    exports = EXPORTS.values()
    return [ExportAnswer.of(*each, *place) for each in zip(exports, refusals(exports, plan), strict=True)]


def export_file(plan: Plan, name: str, given: list[str] | None, *, report: str = "") -> Response:
    """The file of a plan in a known format; raises ``InvalidInput`` of an option or a refusal.

    ``report``: the id under which its launch script reports the run, unless another one is given.
    """
    export, options = EXPORTS[name], set_options(given or [])
    if isinstance(export, Export) and not options.report:
        options = replace(options, report=report)
    return sent(export, export.files(plan, options))


def sent(export: Format, files: Files) -> Response:
    """The answer with the files of a format."""
    disposition = f'attachment; filename="{export.file_name}"'
    content = packed(export, files)
    return Response(content, media_type=export.media_type, headers={"Content-Disposition": disposition})


def set_options(given: list[str]) -> Options:
    """The options of ``set`` parameters; raises ``InvalidInput`` naming the option."""
    values: dict[str, str] = {}
    for entry in given:
        name, equals, text = entry.partition("=")
        if not equals:
            raise InvalidInput("query.set", entry, "is not name=value", "write set=image=registry.example/train:7")
        if name in values:
            raise InvalidInput(f"options.{name}", text, "is given twice", "give each option once")
        values[name] = text
    return options_of(values)
