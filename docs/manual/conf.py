"""Site of the manual: the pages of ``docs`` and reference pages made from the code, built by ``make manual``."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

from reference import PAGES

project = "Meshwright"
version = release = metadata.version("meshwright")
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md", "docs/decisions/*.md"]
extensions = ["myst_parser"]
highlight_language = "none"
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["manual.css"]
html_title = f"Meshwright {release}"
html_show_copyright = html_show_sourcelink = html_copy_source = False
_LINK: Final = re.compile(r"^\| \[[^]]+\]\((?:\.\./)?([\w/]+)\.md\)", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Let pages be completed when they are read, and the folder be opened at its index."""
    app.connect("source-read", _complete)
    app.connect("build-finished", _begin_at_index)


def _begin_at_index(app: Sphinx, _error: Exception | None) -> None:
    page = f'<!doctype html><title>Meshwright</title><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
    Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def _complete(_app: Sphinx, name: str, source: list[str]) -> None:
    """Give the index its tables of contents, and reference pages what the code says."""
    page = name.removeprefix("docs/")
    if name == root_doc:
        source[0] += _contents(source[0])
    elif page in PAGES:
        source[0] += "\n" + PAGES[page]()
    elif page == "decisions/index":
        source[0] += "\n```{toctree}\n:glob:\n\n0*\n```\n"


def _contents(index: str) -> str:
    """A hidden table of contents for every section of the index, of the pages that it links."""
    trees = []
    for section in index.split("\n## ")[1:]:
        caption, _, text = section.partition("\n")
        pages = _LINK.findall(text)
        trees.append(_tree(caption, [f"/{page}" if page.isupper() else f"/docs/{page}" for page in pages]))
    return "\n" + "\n".join(trees)


def _tree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])
