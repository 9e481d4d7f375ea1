"""Reference pages of the manual, in Markdown, made from the code that they describe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client.metrics import MetricWrapperBase
from pydantic_core import PydanticUndefined
from typer.main import get_command

from app.api.description import description_text
from app.cli.commands import app as cli
from app.documents.values import ValueAnswer, parts
from app.metrics import make_metrics
from app.settings import Settings
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.catalogue import catalogue_models
from cluster_models.serving.engines import serving_engines
from cluster_models.training.frameworks import frameworks
from cluster_models.units import GIB, TBYTE

_METHODS: Final = ("get", "post", "put", "patch", "delete")
_SHELL: Final = ("help", "install_completion", "show_completion")
_REFERENCE: Final = "#/components/schemas/"
_UNIT: Final = re.compile(r"_(?:[a-z]+_per_)?[a-z]+$")
"""The unit in the name of a field."""
_SI: Final = re.compile(r"(?:flops_per_s|bytes_per_s|s_per_byte|bytes|s)$")
"""That of the value that it holds."""


def api() -> str:
    """Every route by its subject, then every body and answer with its fields."""
    described = json.loads(description_text())
    by_tag: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for method in _METHODS:
            if method in operations:
                operation = operations[method]
                by_tag.setdefault(operation.get("tags", ["service"])[0], []).append(
                    _operation(method, path, operation)
                )
    routes = [f"## {tag.capitalize()}\n\n" + "\n\n".join(parts) for tag, parts in by_tag.items()]
    schemas = described["components"]["schemas"]
    bodies = [_schema(name, schemas[name]) for name in sorted(schemas)]
    return "\n\n".join([*routes, "## Bodies and answers", *bodies])


def command_line() -> str:
    """Every command with its arguments and options."""
    return "## Every command\n\n" + "\n\n".join(_command("meshwright", get_command(cli)))


def _command(name: str, command: Any) -> Iterator[str]:
    parts = [f"### `{name}`", command.help or ""]
    given = [each for each in command.params if not each.hidden and each.name not in _SHELL]
    rows = [(_names(each), each.help, "" if each.param_type_name == "argument" else each.metavar) for each in given]
    yield "\n\n".join(
        filter(None, [*parts, _table(("argument or option", "meaning", "value"), rows) if rows else ""])
    )
    for below in command.list_commands(None) if hasattr(command, "list_commands") else ():
        each = command.get_command(None, below)
        if not each.hidden:
            yield from _command(f"{name} {below}", each)


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def settings() -> str:
    """Every variable of the environment, its default and meaning."""
    rows = (
        (f"`MESHWRIGHT_{name.upper()}`", _default(field.get_default(call_default_factory=False)), field.description)
        for name, field in Settings.model_fields.items()
    )
    return _table(("variable", "default", "meaning"), rows)


def metrics() -> str:
    """Every metric at ``/metrics``."""
    made = make_metrics()
    found = (getattr(made, name) for name in made.__slots__ if name != "registry")
    rows = (
        (f"`{family.name}`", family.type, family.documentation)
        for metric in found
        if isinstance(metric, MetricWrapperBase)
        for family in metric.describe()
    )
    return _table(("metric", "kind", "meaning"), rows)


def catalogue() -> str:
    """GPU kinds, generations of frameworks and engines, and models that are known by name."""
    gpus = (
        (
            f"`{name}`",
            f"{kind.memory_bytes / GIB:.0f}",
            f"{kind.memory_bytes_per_s / TBYTE:.2f}",
            _peaks(kind),
            kind.source,
        )
        for name, kind in gpu_kinds().items()
    )
    generations = [*frameworks().values(), *serving_engines().values()]
    shapes = (
        (f"`{name}`", shape.layers, shape.hidden, f"{shape.parameters() / 1e9:.3g}")
        for name, shape in catalogue_models().items()
    )
    return "\n\n".join(
        [
            "## GPU kinds",
            _table(("kind", "memory, GiB", "memory, TB/s", "dense peak, TFLOP/s", "source"), gpus),
            "## Training frameworks and serving engines",
            _table(
                ("generation", "meaning", "current from"),
                ((f"`{each.name}`", each.title, each.released) for each in generations),
            ),
            "## Models",
            _table(("model", "layers", "hidden size", "parameters, billion"), shapes),
        ]
    )


def documents() -> str:
    """Every unit other than SI that the name of a field ends in, from the fields themselves."""
    description_text()  # makes every document and answer
    fields: dict[tuple[str, float], set[str]] = {}
    si: dict[str, str] = {}
    for document in _below(ValueAnswer):
        for part in parts(document) if document.model_fields else ():
            name = part.field.removesuffix("_per_gpu")
            if part.unit is not None and (ending := _UNIT.search(name)) is not None:
                fields.setdefault((ending[0], part.unit), set()).add(part.field)
                if (plain := _SI.search(part.attribute.removesuffix("_per_gpu"))) is not None:
                    si[ending[0]] = plain[0]
    rows = (
        (f"`{ending}`", f"{unit:.10g} `{si[ending]}`", ", ".join(f"`{name}`" for name in sorted(names)))
        for (ending, unit), names in sorted(fields.items())
    )
    head = "Endings of names that carry a unit other than SI, and fields that have them."
    return f"## Every unit\n\n{head}\n\n{_table(('ending', 'is', 'fields, among others'), rows)}"


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    """All classes of the program made from ``kind``."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("app."):
            yield each
        yield from _below(each)


def _peaks(kind: GpuKind) -> str:
    return ", ".join(f"{precision} {flops / 1e12:.0f}" for precision, flops in kind.peak_flops.items())


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"### `{method.upper()} {path}`", operation.get("description", "")]
    if parameters := operation.get("parameters"):
        rows = ((f"`{each['name']}`", each["in"], each.get("description", "")) for each in parameters)
        parts.append(_table(("parameter", "in", "meaning"), rows))
    if body := operation.get("requestBody"):
        parts.append(f"Body: {_content(body)}.")
    answers = (
        f"{status}: {_content(answer)}" for status, answer in operation["responses"].items() if "X" not in status
    )
    parts.append("Answers: " + "; ".join(answers) + ". Errors are problem details.")
    return "\n\n".join(filter(None, parts))


def _content(described: Mapping[str, Any]) -> str:
    content = described.get("content", {})
    return " or ".join(f"{_type(each.get('schema', {}))} ({kind})" for kind, each in content.items()) or "nothing"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    parts = [f"(schema-{name.lower()})=\n### {name}", schema.get("description", "")]
    if values := schema.get("enum"):
        parts.append("One of " + ", ".join(f"`{value}`" for value in values) + ".")
    if fields := schema.get("properties"):
        needed = set(schema.get("required", ()))
        rows = (
            (f"`{key}`", _type(field), "yes" if key in needed else "", field.get("description", ""))
            for key, field in fields.items()
        )
        parts.append(_table(("field", "type", "needed", "meaning"), rows))
    return "\n\n".join(filter(None, parts))


def _type(schema: Mapping[str, Any]) -> str:
    """Type of a value in few words, with a link to the schema that it names."""
    if reference := schema.get("$ref"):
        name = reference.removeprefix(_REFERENCE)
        return f"[{name}](#schema-{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[several])))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(extra)}"
    return str(schema.get("type", "anything"))


def _default(value: object) -> str:
    return "" if value is PydanticUndefined or value in (None, "", (), {}) else f"`{value}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value or "").replace("|", "\\|").split())


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "api": api,
    "command_line": command_line,
    "settings": settings,
    "metrics": metrics,
    "catalogue": catalogue,
    "documents": documents,
}
