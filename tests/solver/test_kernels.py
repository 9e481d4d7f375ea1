"""The cache of compiled loops: code of one file is compiled anew where another file that it calls has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from solver import kernels

SOLVER = Path(kernels.__file__).parent
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
