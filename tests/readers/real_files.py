"""Files that other tools printed on real machines; tests that want them skip where they are absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from readers.frame.facts import MatrixFact
from readers.frame.lines import clean_lines
from readers.frame.reading import Contents, Format
from readers.frame.sources import Source

DATA: Final = Path(__file__).parents[3] / "shared" / "data"


def real(path: str, host: str | None = None) -> Source:
    """``path`` below the folder of public data, its tree parsed where its name says JSON or YAML."""
    file = DATA / path
    if not file.exists():
        pytest.skip(f"{path} is not here")
    return source_of(file.read_text(encoding="utf-8", errors="replace"), file.name, host)


def source_of(text: str, name: str = "upload.txt", host: str | None = None) -> Source:
    """A file of this text and name."""
    return Source(name, text, _tree(text, name), host)


def _tree(text: str, name: str) -> Any:
    if name.endswith(".json"):
        try:
            return json.loads(text)
        except ValueError:
            return None
    if name.endswith((".yaml", ".yml")):
        try:
            documents = [document for document in yaml.safe_load_all(text) if document is not None]
        except yaml.YAMLError:
            return None
        return documents[0] if len(documents) == 1 else documents
    return None


def understood(form: Format, source: Source) -> Contents:
    """Read a whole file by the reader of a format."""
    return form.read(source, clean_lines(source.text))


def matrices(found: Contents) -> list[MatrixFact]:
    """The matrices among the facts."""
    return [fact for fact in found.facts if isinstance(fact, MatrixFact)]
