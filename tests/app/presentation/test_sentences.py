"""Sentences of remarks: each code of the solver has one, over just the figures that it comes with."""

from __future__ import annotations

import ast
import functools
import inspect
import string
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.documents.remarks import RemarkDocument
from app.presentation.sentences.rendering import SENTENCES, sentence
from cluster_models.remarks import Remark, remark

ROOT = Path(__file__).parents[3]
ROOMS = ("cluster_models", "readers", "solver", "app")


@functools.cache
def _uses() -> dict[str, set[frozenset[str]]]:
    """By code the names of figures with which ``remark`` is called anywhere."""
    found = defaultdict(set)
    texts = (path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    for tree in (ast.parse(text) for text in texts if "remark(" in text):
        constants = {
            node.target.id: node.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "remark":
                for code in _codes(node.args[0], constants):
                    found[code].add(frozenset(keyword.arg or "**" for keyword in node.keywords))
    return found


def _codes(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """The codes that an argument may have: texts, choices among them, and constants of the module."""
    match node:
        case ast.Constant(value=str(code)):
            yield code
        case ast.IfExp(body=body, orelse=other):
            yield from _codes(body, constants)
            yield from _codes(other, constants)
        case ast.Name(id=name) if name in constants:
            yield from _codes(constants[name], constants)
        case _:
            raise AssertionError(ast.unparse(node))


def _figures(code: str) -> frozenset[str]:
    words = SENTENCES[code]
    if isinstance(words, str):
        return frozenset(name for _, name, _, _ in string.Formatter().parse(words) if name)
    return frozenset(inspect.signature(words).parameters)


@pytest.mark.parametrize("code", sorted(SENTENCES))
def test_every_code_comes_with_the_figures_of_its_sentence(code: str) -> None:
    """No more, which nobody would see, and no fewer, which would leave no sentence."""
    assert _uses()[code] == {_figures(code)}


def test_every_code_has_a_sentence_and_every_sentence_is_said_by_something() -> None:
    """Sentences that no code of ours says any more go."""
    assert set(_uses()) == set(SENTENCES)


def test_documents_of_other_versions_keep_their_text() -> None:
    """A sentence alone, a code that is not known here, and one with other figures."""
    old = RemarkDocument.model_validate("Links were not measured.")
    new = RemarkDocument(code="not_known_here", figures={"share": 0.1}, text="Something new.")
    other = RemarkDocument(code="unpin", figures={"degree": "tensor"}, text="Unpin it.")
    texts = [RemarkDocument.from_value(each.to_value()).text for each in (old, new, other)]
    assert texts == ["Links were not measured.", "Something new.", "Unpin it."]


def test_remarks_that_other_versions_stored_have_words() -> None:
    """A stored plan is shown, whatever figures and codes were called when it was made."""
    figures = {"level": 0.9, "step_low_s": 1.0, "step_high_s": 2.0, "runs": 5, "independent_runs": 3.0}
    before = Remark("step_interval", figures | {"family": "", "basis": "new", "respects_outside": 2})
    assert sentence(before).endswith("The range is widened because this plan is unlike all of them.")
    assert sentence(Remark("gone_since", {"links": 3})) == "gone since: links 3"


def test_remarks_come_back_from_their_document() -> None:
    """Numbers stay whole or broken, and lists become tuples again."""
    value = remark("rules_by_counting", fitting=2, candidates=30, rules=("a", "b"), ruled_out=(1, 2))
    document = RemarkDocument.model_validate_json(RemarkDocument.from_value(value).model_dump_json())
    assert document.to_value() == value
    assert sentence(document.to_value()) == document.text
    assert "'b' rules out 2 candidates" in document.text


def test_texts_with_braces_are_no_templates() -> None:
    """Figures come from users' files."""
    assert sentence(Remark("text", {"text": "{0} {x} }{"})) == "{0} {x} }{"


@pytest.mark.parametrize(("seconds", "words"), [(20.0, "20 s"), (303.0, "5 min 3 s"), (7200.0, "2 h")])
def test_downtime_is_said_as_elsewhere(seconds: float, words: str) -> None:
    assert sentence(remark("longer_downtime", seconds=seconds)) == f"{words} more downtime"
