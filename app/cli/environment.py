"""The service's settings, with what is wrong about them in our own words."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.documents.reading import FieldProblem, InvalidDocument, problems_of_validation
from app.settings import Settings
from cluster_models.errors import InvalidInput


def read_settings(**given: Any) -> Settings:
    """The settings of the environment and of options; raises ``InvalidDocument`` naming the variables."""
    try:
        return Settings(**given)
    except SettingsError as error:
        name = next((name for name in Settings.model_fields if f'"{name}"' in str(error)), "")
        variable = f"MESHWRIGHT_{name.upper()}"
        problem, remedy = "is not JSON", 'write a list as ["first", "second"]'
        raise InvalidInput(variable, os.environ.get(variable), problem, remedy) from error
    except ValidationError as error:
        problems = problems_of_validation(error.errors(include_url=False), kind=Settings, what="settings")
        raise InvalidDocument(
            [
                FieldProblem(f"MESHWRIGHT_{found.field.upper()}", found.value, found.problem, found.remedy)
                for found in problems
            ]
        ) from error
