"""Lists that may be long: one of garbage ends at its first bad slice, not in millions of problems."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

SLICE: Final = 1000


def long_list(most: int) -> WrapValidator:
    """The validator of a list with up to ``most`` entries."""

    def read(values: object, handler: ValidatorFunctionWrapHandler) -> object:
        if not isinstance(values, list) or len(values) <= SLICE:
            return handler(values)
        if len(values) > most:
            context = {"field_type": "List", "max_length": most, "actual_length": len(values)}
            raise PydanticKnownError("too_long", context)
        done: list[object] = []
        for start in range(0, len(values), SLICE):
            try:
                done += handler(values[start : start + SLICE])
            except ValidationError as error:
                raise _moved(error, start) from None
        return done

    return WrapValidator(read)


def _moved(error: ValidationError, start: int) -> ValidationError:
    """The error of the slice that begins at ``start`` as one of the whole list."""
    return ValidationError.from_exception_data(
        error.title,
        [
            InitErrorDetails(
                type=PydanticCustomError(
                    found["type"], found["msg"], {key: str(value) for key, value in found.get("ctx", {}).items()}
                ),
                loc=(int(found["loc"][0]) + start, *found["loc"][1:]),
                input=found["input"],
            )
            for found in error.errors(include_url=False)
        ],
    )
