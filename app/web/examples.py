"""The shipped examples that fill a form in one click."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.documents.reading import parse_text
from app.example_files import Story, stories
from app.web.forms import Typed


def plan_examples(*, serving: bool) -> tuple[Story, ...]:
    """The stories of training, or of serving."""
    return tuple(story for story in stories() if story.is_serving == serving)


def with_example(
    values: Typed, name: str, fill: Callable[[Typed, Mapping[str, Any]], Typed], *, serving: bool
) -> Typed:
    """The texts of a form with the story of that name in place, its workload by ``fill``; unchanged without one."""
    for story in plan_examples(serving=serving):
        if story.name == name:
            values = fill(values, parse_text(story.workload.read_text("utf-8"), what="workload"))
            values |= {"cluster_text": story.cluster.read_text("utf-8"), "model": story.model}
    return values
