"""Every format on a look-alike of our own (``tests/data/formats``): known, understood, and never stopped by damage.

The files are short, written for these tests in the layout of the tool; names, addresses and figures are made up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.imports.sources import SentFile, open_files
from app.imports.summaries import summary
from readers.frame.reading import Format
from readers.frame.sources import Source
from readers.registry import FORMATS, read
from tests.readers.damage import damaged, sound

FOLDER: Final = Path(__file__).parents[1] / "data" / "formats"
FACTS: Final[dict[str, str]] = json.loads(FOLDER.with_suffix(".json").read_text("utf-8"))
"""Summary of the facts of each file, as the report of an upload has it; refused formats give none."""
TEXTS: Final = [form for form in FORMATS if form.fits is None]


def look_alike(form: Format) -> Source:
    """The file of a format, opened as an upload is."""
    (path,) = [path for path in FOLDER.glob(f"{form.name}.*") if path.stem == form.name]
    (source,) = open_files([SentFile(path.name, path.read_bytes())]).sources
    return source


def by_name(form: Format) -> str:
    return form.name


def test_every_file_is_of_a_format() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {form.name for form in FORMATS}
    assert FACTS.keys() == {form.name for form in FORMATS if not form.refused_because}


@pytest.mark.parametrize("form", FORMATS, ids=by_name)
def test_a_look_alike_is_understood(form: Format) -> None:
    ((section, found),) = read(look_alike(form)).sections
    assert section.format == form.name
    assert all(finding.remedy for finding in found.refusals)
    if form.refused_because:
        assert (found.facts, len(found.refusals)) == ((), 1)
    else:
        assert summary(found.facts) == FACTS[form.name]


@pytest.mark.parametrize("form", TEXTS, ids=by_name)
@settings(max_examples=20)
@given(data=st.data())
def test_damage_never_stops_a_reader(form: Format, data: st.DataObject) -> None:
    """Lines lost, doubled, swapped or cut; any characters behind any part of the file."""
    text = look_alike(form).text
    sound(form, data.draw(damaged(text)))
    sound(form, text[: data.draw(st.integers(0, len(text)))] + data.draw(st.text(max_size=80)))
