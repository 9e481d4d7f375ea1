"""The manual is true: links, files, make targets, and the examples it prints."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from itertools import takewhile
from pathlib import Path
from textwrap import dedent

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sphinx.cmd.build import build_main as sphinx_build
from typer.main import get_command

from app.cli.commands import app as cli
from app.documents.cluster import ClusterDocument
from app.documents.reading import parse_text, read_document
from app.documents.workload import WorkloadDocument
from app.web import manual

ROOT = Path(__file__).parents[1]
PAGE = re.compile(r"docs/[\w/-]+\.md")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file or folder of the repository."""
    targets = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_reachable_from_the_index() -> None:
    """The index links each page of the manual, and the folder of decisions."""
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md"]
    assert [name for name in pages if f"]({name})" not in index] == []


def test_pages_that_the_code_refers_to_exist() -> None:
    """A docstring that says "derived in docs/x.md" is right."""
    folders = ("app", "benchmarks", "cluster_models", "readers", "solver")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = {(path.name, page) for path in files for page in PAGE.findall(path.read_text("utf-8"))}
    assert sorted((name, page) for name, page in named if not (ROOT / page).exists()) == []


def test_the_readme_names_real_make_targets() -> None:
    """Every ``make x`` of the README is a target."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE))
    assert named
    assert named <= targets


def test_the_cluster_and_the_workload_of_the_readme_are_valid() -> None:
    """A reader who copies the two YAML blocks gets two nodes and a run."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    cluster, workload = (parse_text(block, what="README") for block in blocks)
    document = read_document(ClusterDocument, cluster, what="cluster")
    read = document.to_cluster()
    assert [node.name for node in read.nodes] == ["alpha", "beta"]
    assert len(document.to_samples(read)) == 3
    assert read_document(WorkloadDocument, workload, what="workload").to_value().pinned == {"tensor": 8}


def test_the_example_of_a_commit_fits_the_catalogue() -> None:
    """Its kind is not there yet, and its figures have the names of those that are."""
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    written = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert written is not None
    shipped = tomllib.loads((ROOT / "cluster_models" / "data" / "gpu_kinds.toml").read_text("utf-8"))
    known = {figure for kind in shipped.values() for figure in kind}
    for name, kind in tomllib.loads(dedent(written[1])).items():
        assert name not in shipped
        assert kind.keys() <= known


def commands_of(page: Path) -> list[list[str]]:
    """The words of every ``meshwright ...`` in a code block of a page, up to a pipe, an operator or a comment."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    lines = (
        "\n".join(text for language, text in blocks if language in ("", "sh", "bash"))
        .replace("\\\n", " ")
        .splitlines()
    )
    found = [re.match(r"\s*(?:[./]*\.venv/bin/)?meshwright (-.*|[a-z].*)", line) for line in lines]
    words = [shlex.split(each[1], comments=True) for each in found if each]
    return [list(takewhile(lambda word: word not in ("|", ">", "&&", ";"), line)) for line in words]


def unknown_words(words: list[str]) -> list[str]:
    """The commands and options of a command line that the program does not have."""
    command, options, unknown = get_command(cli), set[str](), []
    for word in words:
        options |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        below = command.list_commands(None) if hasattr(command, "list_commands") else ()
        if word.startswith("--"):
            unknown += [] if word.partition("=")[0] in {*options, "--help"} else [word]
        elif word in below:
            command = command.get_command(None, word)
    return unknown if command.name != "meshwright" or "--version" in words else [*unknown, words[0]]


def test_commands_that_pages_print_are_those_of_the_program() -> None:
    """Commands and options in code blocks exist."""
    found = [(page.name, words) for page in PAGES for words in commands_of(page)]
    assert len(found) > 60
    assert [(name, words, unknown) for name, words in found if (unknown := unknown_words(words))] == []
    assert unknown_words(["plan", "--frobnicate", "3"]) == ["--frobnicate"]
    assert unknown_words(["plann", "--cluster", "a.yaml"]) == ["--cluster", "plann"]


def test_units_of_the_manual_are_those_that_fields_convert() -> None:
    """Each ending with its size in SI units and the fields that have it."""
    units = runpy.run_path(str(ROOT / "docs" / "manual" / "reference.py"))["documents"]()
    rows = {line.split(" | ")[0]: line for line in units.splitlines()}
    assert "1073741824 `bytes`" in rows["| `_gib`"]
    assert "`latency_us`" in rows["| `_us`"]
    assert "125000000 `bytes_per_s`" in rows["| `_gbits_per_s`"]


@pytest.mark.slow
def test_the_manual_is_built_without_a_warning_and_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page is in a table of contents, every link leads somewhere; reference pages say what the code says.

    Only those pages are written.
    """
    folder = tmp_path / "manual"
    monkeypatch.chdir(ROOT)
    command = ["--quiet", "--conf-dir", "docs/manual", "--doctree-dir", str(tmp_path / "read")]
    assert sphinx_build([*command, "--fail-on-warning", "--builder", "dummy", ".", str(tmp_path / "none")]) == 0
    pages = [f"docs/{page}.md" for page in ("index", "settings", "metrics", "api", "command_line")]
    assert sphinx_build([*command, "--builder", "html", ".", str(folder), *pages]) == 0
    monkeypatch.setattr(manual, "FOLDER", folder)
    application = FastAPI()
    manual.install(application)
    client = TestClient(application)
    assert "docs/index.html" in client.get("/manual/").text
    assert "MESHWRIGHT_DATA_DIR" in client.get("/manual/docs/settings.html").text
    assert "meshwright_gap_at_stop" in client.get("/manual/docs/metrics.html").text
    assert "/api/v1/plans" in client.get("/manual/docs/api.html").text
    assert "meshwright replans approve" in client.get("/manual/docs/command_line.html").text
    assert "frame-ancestors 'none'" in client.get("/manual/docs/api.html").headers["Content-Security-Policy"]
