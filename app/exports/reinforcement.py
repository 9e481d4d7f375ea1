"""Formats of joint plans of reinforcement learning: veRL for all of it, those of serving for the engine alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from app.exports.contract import JSON, SHELL, ExportFile, Family, Files
from app.exports.options import DEFAULTS, Options
from app.exports.serving.contract import ServingExport, serving_refusal
from app.exports.serving.registry import SERVING_EXPORTS
from app.exports.verl import DESCRIPTION, FILE_NAME, NAME, render_verl
from cluster_models.errors import InvalidConfiguration
from cluster_models.reinforcement.plan import ReinforcementPlan


class JointFormat(NamedTuple):
    """A format that joint plans are exported to; ``engine``: that of serving which starts the engine's part."""

    name: str
    file_name: str
    media_type: str
    description: str
    family: Family
    engine: ServingExport | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it makes several files."""
        return self.engine is not None and self.engine.is_folder

    def files(self, plan: ReinforcementPlan, options: Options = DEFAULTS) -> Files:
        """The files of a plan; raises ``InvalidConfiguration`` where the target cannot do what was planned."""
        if self.engine is not None:
            return self.engine.files(plan.serving, options)
        return (ExportFile(FILE_NAME, render_verl(plan), executable=True),)

    def refusal(self, plan: ReinforcementPlan) -> InvalidConfiguration | None:
        """The error that exporting the plan so would raise; ``None`` where it can be exported."""
        if self.engine is not None:
            return serving_refusal(self.engine, plan.serving)
        try:
            render_verl(plan)
        except InvalidConfiguration as error:
            return error
        return None


def _formats() -> Iterator[JointFormat]:
    yield JointFormat(NAME, FILE_NAME, SHELL, DESCRIPTION, Family.TRAINING)
    for each in SERVING_EXPORTS.values():
        if each.media_type != JSON:
            words = f"The rollout engine alone: {each.description}"
            yield JointFormat(each.name, each.file_name, each.media_type, words, each.family, each)


JOINT_FORMATS: Final = {each.name: each for each in _formats()}
