"""The service's settings, with what is wrong about them in our own words."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from app.documents.reading import FieldProblem, InvalidDocument, problems_of_validation
from app.settings import Settings


def read_settings(**given: Any) -> Settings:
    """The settings of the environment and of options; raises ``InvalidDocument`` naming the variables."""
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = problems_of_validation(error.errors(include_url=False), kind=Settings, what="settings")
        raise InvalidDocument(
            [
                FieldProblem(f"MESHWRIGHT_{found.field.upper()}", found.value, found.problem, found.remedy)
                for found in problems
            ]
        ) from error
