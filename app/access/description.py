"""Access in the description of the API: keys, and the scope of each operation."""

from __future__ import annotations

from typing import Any, Final

from app.access.rights import ADMIN, RIGHTS

_BY_OPERATION: Final = {name.rpartition(".")[2]: right for name, right in RIGHTS.items() if "_pages." not in name}
_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key of the API (meshwright keys create). Needed where the service runs with access control.",
}


def describe(description: dict[str, Any]) -> None:
    """Add to an OpenAPI description which scope each operation asks for."""
    description["components"]["securitySchemes"] = {"key": _KEY}
    for path in description["paths"].values():
        for operation in path.values():
            right = _BY_OPERATION.get(operation["operationId"], ADMIN)
            operation["security"] = [] if right.scope is None else [{"key": [right.scope.value]}]
