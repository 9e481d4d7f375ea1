"""Pages of which a part, between two marks, is written by a benchmark."""

from __future__ import annotations

from pathlib import Path

from cluster_models.errors import InvalidInput


def has_part(page: Path, name: str) -> bool:
    """Whether the page is there and has the marks of that part."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    begin, end = _marks(name)
    return end in text.partition(begin)[2]


def put_part(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of that part; raises ``InvalidInput`` where the page has none."""
    begin, end = _marks(name)
    if not has_part(page, name):
        raise InvalidInput("page", str(page), f"has no lines {begin} and {end}")
    head, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
