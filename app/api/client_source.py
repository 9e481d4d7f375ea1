"""Writes the operations of ``app.client`` from the routes: ``python -m app.api.client_source``.

Each route becomes a method by its name, with its path, query and headers as arguments and the models of its body
and answer as types.
"""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
import types
import typing
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from fastapi import Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

import app
from app.answers.addresses import PREFIX
from app.main import API

FOLDER: Final = Path(app.__file__).parent / "client"
_ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "clusters": ("clusters", "aliases", "measurements", "measuring", "imports"),
    "jobs": ("running_jobs", "running_plans", "occupancy", "resilience", "portfolios"),
    "failures": ("events", "event_sources", "replans", "replan_settings", "sweeps"),
    "service": ("access", "keys", "audit", "webhooks"),
}
_REST: Final = "planning"
_HEADERS: Final = {"idempotency-key": "Idempotency-Key", "if-match": "If-Match"}
_OBJECT: Final = "Mapping[str, Any]"
_LONGEST_SUMMARY: Final = 100
_BUILT_IN: Final = frozenset({"str", "int", "float", "bool", "bytes", "None", "Any"})


class _Names:
    """Names that the source of one module uses, by the module each is from."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}

    def of(self, annotation: Any) -> str:
        """The source text of an annotation; what it needs is imported."""
        if annotation is None or annotation is types.NoneType:
            return "None"
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return " | ".join(dict.fromkeys(map(self.of, arguments)))
        if origin is not None:
            return f"{origin.__name__}[{', '.join(map(self.of, arguments))}]"
        generic = getattr(annotation, "__pydantic_generic_metadata__", {})
        if generic.get("origin") is not None:
            return f"{self.of(generic['origin'])}[{', '.join(map(self.of, generic['args']))}]"
        name: str = annotation.__name__
        if name not in _BUILT_IN:
            self.modules[name] = annotation.__module__
        return name


def sources() -> dict[str, str]:
    """The source of every module that is made, by its file name."""
    models: dict[str, str] = {}
    made: dict[str, str] = {}
    for room in (*_ROOMS, _REST):
        names = _Names()
        methods = [
            _method(route, names, models)
            for module in API
            if _room_of(module) == room
            for route in module.router.routes
            if isinstance(route, APIRoute)
        ]
        made[f"{room}.py"] = _formatted(_module(room, names, methods))
    made["models.py"] = _formatted(_table(models))
    return made


def _room_of(module: types.ModuleType) -> str:
    name = module.__name__.rpartition(".")[2]
    return next((room for room, modules in _ROOMS.items() if name in modules), _REST)


def _module(room: str, names: _Names, methods: list[str]) -> str:
    body = "\n\n".join(methods)
    used = [line for word, line in _STANDARD.items() if word in body]
    imports = "\n".join(f"    from {module} import {name}" for name, module in sorted(names.modules.items()))
    return f'''"""Operations of the API; made by ``app.api.client_source``, changed only there."""

from __future__ import annotations

{chr(10).join(used)}

from app.client.connection import Connection, part

if TYPE_CHECKING:
{imports}


class {room.capitalize()}Operations(Connection):
    """Operations of the service."""

{body}
'''


_STANDARD: Final = {
    "Iterator[": "from collections.abc import Iterator",
    _OBJECT: "from collections.abc import Mapping",
    "datetime": "from datetime import datetime",
    "": "from typing import TYPE_CHECKING, Any",
    "ServerSentEvent": "from httpx2 import ServerSentEvent",
}


def _method(route: APIRoute, names: _Names, models: dict[str, str]) -> str:
    """One operation as a method."""
    method = next(iter(route.methods or ()))
    path = (PREFIX + route.path).replace(":path}", "}")
    answer = _answer(route)
    streams = typing.get_origin(answer) is AsyncIterator
    places = {each: _argument(each) for each in re.findall(r"{(\w+)}", path)}
    arguments = ["self", *(f"{name}: str" for name in places.values())]
    for place, name in places.items():
        path = path.replace(f"{{{place}}}", f"{{part({name})}}")
    if body := _body(route, names):
        arguments.append(f"body: {body}")
    arguments.append("*")
    query = []
    for alias, parameter in _parameters(route.dependant, "query_params").items():
        text = names.of(parameter.field_info.annotation)
        optional = text if text.endswith("| None") else f"{text} | None"
        arguments.append(f"{_argument(alias)}: {optional} = None")
        query.append(f'"{alias}": {_argument(alias)}')
    headers = []
    for alias in _parameters(route.dependant, "header_params"):
        if header := _HEADERS.get(alias):
            name = alias.replace("-", "_")
            arguments.append(f"{name}: str | None = None")
            headers.append(f'"{header}": {name}')
    if arguments[-1] == "*":
        arguments.pop()
    returned, kind = _returned(answer, names, models)
    quoted = f'f"{path}"' if "{" in path else f'"{path}"'
    call = [f'"{method}"', quoted, f'"{kind}"']
    call += [f"query={{{', '.join(query)}}}"] if query else []
    call += [f"headers={{{', '.join(headers)}}}"] if headers else []
    call += ["body=body"] if body else []
    asked = f"self._ask({', '.join(call)})"
    statements = [asked] if returned == "None" else [f"told: {returned} = {asked}", "return told"]
    if streams:
        returned, statements = "Iterator[ServerSentEvent]", [f"return self._events({quoted})"]
    lines = "\n        ".join(statements)
    return f'''    def {route.name}({", ".join(arguments)}) -> {returned}:
        """{_summary(route)}"""
        {lines}'''


def _argument(name: str) -> str:
    """The name of an argument, which must not hide what Python has built in."""
    return f"{name}_" if hasattr(builtins, name) else name


def _summary(route: APIRoute) -> str:
    """The first sentence of what a route says of itself, or its beginning where that is long."""
    paragraph = " ".join((inspect.getdoc(route.endpoint) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=\.) ", paragraph)[0]
    return sentence if len(sentence) <= _LONGEST_SUMMARY else re.split(r"[;:,]", sentence)[0] + "."


def _parameters(dependant: Dependant, kind: str) -> dict[str, Any]:
    """The parameters of a route and of what it depends on, by the names that are sent."""
    found = {parameter.alias: parameter for parameter in getattr(dependant, kind)}
    for inner in dependant.dependencies:
        found |= _parameters(inner, kind)
    return found


def _answer(route: APIRoute) -> Any:
    """The annotation of what a route answers; ``bytes`` of a file."""
    answer = inspect.get_annotations(route.endpoint, eval_str=True)["return"]
    if isinstance(answer, type) and issubclass(answer, Response):
        return bytes
    if isinstance(answer, types.UnionType):
        return next(each for each in typing.get_args(answer) if issubclass(each, BaseModel))
    return answer


def _returned(answer: Any, names: _Names, models: dict[str, str]) -> tuple[str, str]:
    """The annotation of a method's answer, and the name under which the connection reads it."""
    if answer is bytes:
        return "bytes", ""
    own = _Names()
    text = own.of(answer) if typing.get_origin(answer) is not AsyncIterator else ""
    names.modules |= own.modules
    models |= own.modules
    return text, text


def _body(route: APIRoute, names: _Names) -> str:
    if route.body_field is not None:
        text = names.of(route.body_field.field_info.annotation)
        optional = text.endswith(" | None")
        text = text.removesuffix(" | None")
        return f"{text} | {_OBJECT}" + (" | None = None" if optional else "")
    if not route.openapi_extra:
        return ""
    taken = route.openapi_extra["requestBody"]["content"]
    return _OBJECT if "application/json" in taken else "bytes"


def _table(models: dict[str, str]) -> str:
    lines = "\n".join(f'    "{name}": "{module}",' for name, module in sorted(models.items()))
    return f'''"""Modules of the models of answers; made by ``app.api.client_source``, changed only there."""

from typing import Final

MODELS: Final = {{
{lines}
}}
'''


def _formatted(source: str) -> str:
    for command in (["check", "--select", "I,F401", "--fix", "--quiet", "--exit-zero"], ["format"]):
        run = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / "made.py"), "-"]
        source = subprocess.run(run, input=source, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return source


if __name__ == "__main__":
    for _name, _source in sources().items():
        (FOLDER / _name).write_text(_source)
