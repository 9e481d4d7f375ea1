"""Outlook of a plan in its form, before it is sent, with a link to the form as filled and requests to copy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final
from urllib.parse import urlencode

import yaml
from starlette.datastructures import URL

from app.db.engine import SessionFactory
from app.presentation.outlook import OutlookWords, outlook_words
from app.services.planning.pricing_beside import outlook_of
from app.services.planning.requests import PlanRequest, ServingPlanRequest
from app.web.forms import Typed
from app.web.planning.form import UPLOADS

LONGEST_LINK: Final = 6_000
"""Characters of an address that every browser and proxy takes."""
LONGEST_TEXT: Final = 60_000
_FILES: Final = ("cluster", "model", "workload")
_OPTIONS: Final = {"time_limit_s": "--time-limit", "effort": "--effort"}
"""Options of the command by the fields of the form that set them."""


@dataclass(frozen=True, slots=True)
class RequestText:
    """The request as a program would make it; ``name`` says which."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FormOutlook:
    """An outlook, the address of the form as it is filled (empty where that is too long), and requests to copy."""

    words: OutlookWords
    link: str
    requests: tuple[RequestText, ...]


def form_outlook(
    sessions: SessionFactory, asked: PlanRequest | ServingPlanRequest, values: Typed, *, empty: Typed, form: URL
) -> FormOutlook:
    """The outlook of a request that the form at ``form`` spells; raises ``InvalidInput``, and ``NotFound``."""
    words = outlook_words(outlook_of(sessions, asked))
    base = str(form.replace(path="", query="", fragment=""))
    return FormOutlook(words, _link(form.path, values, empty), _requests(asked, base))


def prefilled(values: Typed, query: Mapping[str, list[str]]) -> Typed:
    """The form with the fields that an address names; files cannot be among them."""
    return values | {
        name: tuple(query[name]) if isinstance(values[name], tuple) else query[name][-1]
        for name in values
        if name in query and name not in UPLOADS
    }


def _link(path: str, values: Typed, empty: Typed) -> str:
    changed = {name: value for name, value in values.items() if value != empty[name] and name not in UPLOADS}
    link = f"{path}?{urlencode(changed, doseq=True)}"
    return link if len(link) <= LONGEST_LINK else ""


def _requests(asked: PlanRequest | ServingPlanRequest, base: str) -> tuple[RequestText, ...]:
    body = asked.model_dump(mode="json", exclude_defaults=True)
    made = [RequestText("curl", _curl(body, base)), RequestText("Python", _python(body, base))]
    if body.keys() <= {*_FILES, "options"}:
        made.append(RequestText("command line", _command_line(body, base)))
    return tuple(each for each in made if len(each.text) <= LONGEST_TEXT)


def _curl(body: dict[str, Any], base: str) -> str:
    return f"curl --fail-with-body --json @- {base}/api/v1/plans <<'END'\n{json.dumps(body, indent=2)}\nEND"


def _python(body: dict[str, Any], base: str) -> str:
    return (
        "from app.client import connect\n\n"
        f"with connect({base!r}) as service:\n"
        f"    plan = service.create_plan(\n{_indented(pformat(body, width=90, sort_dicts=False), 8)}\n    )\n"
        "    for event in service.stream_plan(plan.id):\n"
        "        print(event.event, event.data)"
    )


def _command_line(body: dict[str, Any], base: str) -> str:
    """Files for what has no name, and the command that takes them."""
    files, options = "", ""
    for part in _FILES:
        if isinstance(body[part], str):
            options += f" --{part} {shlex.quote(body[part])}"
        else:
            files += f"cat >{part}.yaml <<'END'\n{yaml.safe_dump(body[part], sort_keys=False)}END\n"
            options += f" --{part} {part}.yaml"
    for name, value in body.get("options", {}).items():
        options += f" {_OPTIONS[name]} {value:g}"
    return f"{files}meshwright --server {base} plan{options}"


def _indented(text: str, columns: int) -> str:
    return "\n".join(" " * columns + line for line in text.splitlines())
