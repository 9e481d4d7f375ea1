"""The cache of compiled loops: code of one file is compiled anew where another file that it calls has changed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from solver import kernels
from solver.candidates import FloatArray
from solver.kernels import kernel

SOLVER = Path(kernels.__file__).parent
ROOT = SOLVER.parent
CALLER = """\
from solver.compiled_callee import value
from solver.kernels import kernel

@kernel
def doubled() -> int:
    return 2 * value()
"""
CALLEE = """\
from solver.kernels import kernel

@kernel
def value() -> int:
    return {value}
"""


def test_a_caller_is_compiled_anew_after_a_change_in_the_file_of_its_callee(tmp_path: Path) -> None:
    """By Numba's own stamps the second run would print 2 again."""
    package = tmp_path / "solver"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(kernels.__file__, package)
    (package / "compiled_caller.py").write_text(CALLER)
    printed = []
    for value in (1, 5):
        (package / "compiled_callee.py").write_text(CALLEE.format(value=value))
        run = [sys.executable, "-B", "-c", "from solver.compiled_caller import doubled; print(doubled())"]
        printed.append(subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, text=True, env={}).stdout)
    assert printed == ["2\n", "10\n"]


def test_all_compiled_loops_are_in_files_that_the_digest_covers() -> None:
    compiled = {file.name for file in SOLVER.rglob("*.py") if "import numba" in file.read_text()}
    assert {name for name in compiled if not name.startswith("compiled")} == {"kernels.py"}


def test_only_kernels_keep_compiled_code() -> None:
    """A function that is compiled past ``solver.kernels`` would be kept under a stamp of its own file alone."""
    assert [file.name for file in SOLVER.rglob("*.py") if "cache=True" in file.read_text()] == ["kernels.py"]


def _made_by(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator).split("(")[0] for decorator in function.decorator_list}


def _python_names(node: ast.AST, imported: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Modules and names in what Python runs; parts handed to an annealer are called by what it compiles."""
    if isinstance(node, ast.FunctionDef) and _made_by(node) & {"kernel", "inner", "enclosed", "inlined", "relaxed"}:
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "annealer":
        return
    if isinstance(node, ast.Name):
        yield imported.get(node.id, ("", node.id))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield ".".join(imported.get(node.value.id, ())), node.attr
    for child in ast.iter_child_nodes(node):
        yield from _python_names(child, imported)


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """The module and name behind each name that a file imports."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def test_python_calls_no_inner_kernel() -> None:
    """It would crash; and a kernel that only kernels call is compiled in half the time if it is an inner one."""
    trees = {}
    for file in [file for room in ("solver", "app", "benchmarks", "tests") for file in (ROOT / room).rglob("*.py")]:
        if "compiled" in (text := file.read_text()) or "kernel" in text:
            trees[".".join(file.relative_to(ROOT).with_suffix("").parts)] = ast.parse(text)
    made: dict[str, set[tuple[str, str]]] = {"kernel": set(), "inner": set()}
    called = set()
    for module, tree in trees.items():
        for node in tree.body:
            for kind in _made_by(node) & set(made) if isinstance(node, ast.FunctionDef) else ():
                made[kind].add((module, node.name))
        called |= {(home or module, name) for home, name in _python_names(tree, _imported(tree))}
    assert len(made["inner"]) > 100
    assert sorted(made["inner"] & called) == []
    assert sorted(made["kernel"] - called) == []


@kernel
def _copied(source: FloatArray, target: FloatArray) -> None:
    target[:] = source


def test_arrays_of_different_sizes_are_refused_without_a_word_on_sizes() -> None:
    """Numba's own message names both shapes, for which each process would compile its strings for four seconds."""
    with pytest.raises(ValueError, match=r"^cannot assign slice from input of different size$"):
        _copied(np.zeros(2), np.zeros(3))
