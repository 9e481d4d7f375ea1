"""Plans of serving as other programs read them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from app.api.v1.plan_exports import ExportAnswer, export_answers, export_file, sent, set_options
from app.exports.registry import EXPORTS
from app.exports.reinforcement import JOINT_FORMATS
from app.exports.serving.contract import serving_refusal
from app.exports.serving.registry import SERVING_EXPORTS
from app.services.errors import NotFound
from app.services.running.plan_contents import AnyPlan
from cluster_models.reinforcement.plan import ReinforcementPlan
from cluster_models.serving.plan import ServingPlan


def known_format_of_any(
    name: Annotated[
        str, Path(alias="format", description="Name of the format, as listed under exports.", examples=["torchrun"])
    ],
) -> str:
    """The name of a format of some kind of plan; raises ``NotFound`` where there is none of that name."""
    if name not in EXPORTS and name not in SERVING_EXPORTS and name not in JOINT_FORMATS:
        raise NotFound("export format", name)
    return name


def serving_export_answers(plan: ServingPlan, *place: str) -> list[ExportAnswer]:
    """The formats of the plan whose address has these parts."""
    return [ExportAnswer.of(each, serving_refusal(each, plan), *place) for each in SERVING_EXPORTS.values()]


def serving_export_file(plan: ServingPlan, name: str, given: list[str] | None) -> Response:
    """The file of a plan; raises ``InvalidInput`` of an option or a refusal, ``NotFound`` of a training format."""
    export = SERVING_EXPORTS.get(name)
    if export is None:
        raise NotFound("export format of a serving plan", name)
    return sent(export, export.files(plan, set_options(given or [])))


def joint_export_answers(plan: ReinforcementPlan, *place: str) -> list[ExportAnswer]:
    """The formats of a joint plan whose address has these parts."""
    return [ExportAnswer.of(each, each.refusal(plan), *place) for each in JOINT_FORMATS.values()]


def any_export_answers(plan: AnyPlan | ReinforcementPlan, *place: str) -> list[ExportAnswer]:
    """The formats of a plan of whatever kind, whose address has these parts."""
    if isinstance(plan, ReinforcementPlan):
        return joint_export_answers(plan, *place)
    if isinstance(plan, ServingPlan):
        return serving_export_answers(plan, *place)
    return export_answers(plan, *place)


def any_export_file(
    plan: AnyPlan | ReinforcementPlan, name: str, given: list[str] | None, *, report: str = ""
) -> Response:
    """The file of such a plan; raises ``InvalidInput`` of an option or refusal, ``NotFound`` of another kind."""
    if isinstance(plan, ReinforcementPlan):
        if name not in JOINT_FORMATS:
            raise NotFound("export format of a plan of reinforcement learning", name)
        return sent(JOINT_FORMATS[name], JOINT_FORMATS[name].files(plan, set_options(given or [])))
    if isinstance(plan, ServingPlan):
        return serving_export_file(plan, name, given)
    if name not in EXPORTS:
        raise NotFound("export format of a training plan", name)
    return export_file(plan, name, given, report=report)
