"""The house rules that a program can check: layers, style, types, sizes, and nothing that names a machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.conftest import LONG

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent
MOST_LINES = 400
FORBIDDEN = (
    (r"(?i)\b(pypi|files\.pythonhosted|registry\.npmjs|registry-1\.docker)\.(org|io)\b", "a package registry"),
    (r"(?i)\bindex[-]url\b", "a package index"),
    (r"(?<![\w.~}$-])/(work|root|home|Users)/\w", "a path of one machine"),
)
OF_OTHERS = {"dsa.py", "parallel_state.py", "placement_group.py", "pretrain_gpt.py"}
"""Files of Megatron-LM, NeMo and vLLM that pages name."""
SECRET_FOLDERS = {".git", ".venv", ".venv-lock", "build", "dist"}


def _tracked_files() -> list[Path]:
    """Files that git would commit; without git, everything outside of build and environment folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        names = [path for path in ROOT.rglob("*") if not SECRET_FOLDERS & set(path.relative_to(ROOT).parts)]
    return [path for path in names if path.is_file() and "__pycache__" not in path.parts]


def _run(*command: str) -> None:
    done = subprocess.run(
        [str(TOOLS / command[0]), *command[1:]], cwd=ROOT, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def test_arrows_run_one_way() -> None:
    """The import contracts hold: app -> solver | readers -> cluster_models, one door per library."""
    _run("lint-imports", "--no-cache")


def test_the_code_is_clean() -> None:
    """Ruff has nothing to say under the rules of pyproject.toml."""
    _run("ruff", "check", ".")


def test_the_code_is_laid_out_by_the_formatter() -> None:
    """Nobody formats by hand."""
    _run("ruff", "format", "--check", ".")


@pytest.mark.slow
def test_types_hold() -> None:
    """The strict type check passes on app, solver, readers and cluster_models."""
    _run("mypy")


@pytest.mark.parametrize(
    ("package", "foreign"),
    [
        ("cluster_models", {"networkx", "numpy"}),
        ("readers", {"networkx", "numpy"}),
        ("solver", {"highspy", "networkx", "numba", "numpy", "pulp", "scipy"}),
    ],
)
def test_inner_layers_import_only_their_libraries(package: str, foreign: set[str]) -> None:
    """The domain and the solver name every library they may use; whatever else they import is the standard's."""
    graph = grimp.build_graph("cluster_models", "readers", "solver", include_external_packages=True)
    modules = {package} | graph.find_descendants(package)
    imported = {name for module in modules for name in graph.find_modules_directly_imported_by(module)}
    roots = {name.partition(".")[0] for name in imported}
    assert roots - set(sys.stdlib_module_names) - {"cluster_models", "readers", "solver"} <= foreign


def test_files_stay_small() -> None:
    """A Python file beyond 400 lines has more than one reason to change, unless one kernel needs them."""
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in _tracked_files()
        if path.suffix == ".py"
    }
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


@pytest.mark.parametrize(("pattern", "what"), FORBIDDEN)
def test_nothing_names_a_registry_or_a_machine(pattern: str, what: str) -> None:
    """A clone works anywhere: no file points at a package registry or into somebody's folders."""
    found = []
    for path in _tracked_files():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in re.finditer(pattern, text)]
    assert found == [], f"{what} is named"


def test_paths_on_the_page_of_the_architecture_are_there() -> None:
    """Whoever follows the page finds every file and folder that it names."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:app|solver|cluster_models|readers|tests)/[\w/.]+)`", page))
    assert len(named) > 40
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_files_named_on_pages_of_the_manual_are_there() -> None:
    """A page that says where its code is has followed every renaming."""
    files = _tracked_files()
    names = {path.name for path in files} | OF_OTHERS
    missing = []
    for page in (path for path in files if path.suffix == ".md" and path.name != "CHANGELOG.md"):
        text = page.read_text()
        paths = set(re.findall(r"`((?:app|solver|cluster_models|readers|tests|benchmarks)/[\w/.]+)`", text))
        missing += [f"{page.name}: {path}" for path in sorted(paths) if not (ROOT / path).exists()]
        bare = set(re.findall(r"`(\w+\.py)`", text))
        missing += [f"{page.name}: {name}" for name in sorted(bare - names)]
    assert missing == []


def test_every_room_is_on_the_page_of_the_architecture() -> None:
    """Whoever meets a folder reads there what it is for."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = ("app", "solver", "readers", "cluster_models")
    rooms = [init.parent for package in packages for init in (ROOT / package).glob("*/__init__.py")]
    assert len(rooms) > 40
    assert [
        str(room.relative_to(ROOT))
        for room in rooms
        if not {f"`{room.name}`", f"`{room.parent.name}.{room.name}`"} & set(re.findall(r"`[^`\n]+`", page))
        and f"{room.relative_to(ROOT)}/" not in page
    ] == []


def test_files_that_start_first_are_there() -> None:
    """One that is renamed would start late and leave a worker alone with it."""
    found = ["/".join(path.parts[-2:]) for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(name for name in LONG if found.count(name) != 1) == []
