"""The page about frameworks says of every fact what the code says, and its example works."""

from __future__ import annotations

import json
from pathlib import Path

from app.documents.framework import FACTS, FrameworkDescription, WireFact
from app.documents.reading import parse_text, read_document
from cluster_models.training.frameworks import framework

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "frameworks.md"
EXAMPLE = ROOT / "examples" / "frameworks" / "our-megatron.yaml"


def row(fact: WireFact) -> str:
    """The line of a fact in the page's table."""
    values = ", ".join(f"`{each}`" for each in fact.choices) or ("yes or no" if fact.kind is bool else "number")
    return f"| `{fact.name}` | {values} | {'yes' if fact.fact.setting else ''} | {fact.fact.meaning} |"


def test_the_page_explains_every_fact_as_the_code_does() -> None:
    """One row each, in order; the meaning stands beside the field of the code, and here once more for readers."""
    expected = "\n".join(map(row, FACTS))
    table = f"| fact | values | setting | meaning |\n|---|---|---|---|\n{expected}\n\n"
    assert table in PAGE.read_text("utf-8"), f"put this table into the page:\n{table}"


def test_the_example_is_a_fork_that_says_only_what_differs() -> None:
    """Nothing in the file is as in the generation it starts from; the page and the README link it."""
    data = parse_text(EXAMPLE.read_text("utf-8"), what="framework")
    own = read_document(FrameworkDescription, data, what="framework").to_framework()
    like = framework(own.like)
    assert [fact.name for fact in FACTS if fact.name in data and fact.stated(own) == fact.stated(like)] == []
    assert f"../{EXAMPLE.relative_to(ROOT).as_posix()}" in PAGE.read_text("utf-8")


def test_the_request_of_the_page_is_one() -> None:
    """The mapping that stands in place of the name is a description."""
    (block,) = (part.split("```")[0] for part in PAGE.read_text("utf-8").split("```json\n")[1:])
    described = json.loads(block)["workload"]["framework"]
    assert FrameworkDescription.model_validate(described).to_framework().like in described["like"]
