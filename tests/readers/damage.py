"""Text that was damaged on its way, for readers that must take whatever comes."""

from __future__ import annotations

from hypothesis import strategies as st

from readers.frame.facts import MatrixFact
from readers.frame.reading import Contents, Format
from tests.readers.real_files import source_of, understood


@st.composite
def damaged(draw: st.DrawFn, whole: str) -> str:
    """``whole`` with lines lost, doubled or swapped, with its end cut off, other blanks, or other digits."""
    lines = whole.split("\n")
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(("drop", "double", "swap", "cut", "blank", "junk")))
        if change == "drop" and len(lines) > 1:
            del lines[place]
        elif change == "double":
            lines.insert(place, lines[place])
        elif change == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[place], lines[other] = lines[other], lines[place]
        elif change == "cut":
            lines[place] = lines[place][: draw(st.integers(0, len(lines[place])))]
        elif change == "blank":
            lines[place] = (
                lines[place].replace("\t", "  ") if "\t" in lines[place] else lines[place].replace("  ", "\t")
            )
        else:
            lines[place] += draw(st.text(max_size=8))
    text = "\n".join(lines)
    digit, instead = draw(st.sampled_from("0123456789")), draw(st.sampled_from(("", "9", "-", "X", "  ")))
    text = text.replace(digit, instead, draw(st.integers(0, 2)))
    return text[: draw(st.integers(len(text) // 2, len(text)))] if draw(st.booleans()) else text


def sound(form: Format, text: str) -> Contents:
    """Read a text, and check the result: every place it names lies in the text, every matrix is whole."""
    found = understood(form, source_of(text))
    lines = text.replace("\r\n", "\n").count("\n") + 1
    for fact in found.facts:
        assert 1 <= fact.origin.first_line <= fact.origin.last_line <= lines
        if isinstance(fact, MatrixFact):
            assert len(fact.rows) == len(fact.values) == len(fact.lines)
            assert all(len(row) == len(fact.columns) for row in fact.values)
    for refusal in found.refusals:
        assert 1 <= refusal.first_line <= refusal.last_line <= max(lines, 1)
        assert refusal.sentence
        assert refusal.remedy
    for doubt in found.doubts:
        assert 1 <= doubt.first_line <= lines
    return found
