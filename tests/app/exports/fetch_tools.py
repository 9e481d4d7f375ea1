"""Fetch the sources of the tools that exports are for, so that tests can try the exports on them.

``python -m tests.app.exports.fetch_tools [FOLDER [TO...]]`` (``make fetch-tools``) lays what tools.toml names
below the folder, ``.tools`` unless told otherwise, and says what could not be had.  Tests look there and skip what
is missing; ``MESHWRIGHT_TOOL_SOURCES`` names another folder.  Needs pip, git and a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
LISTED: Final = Path(__file__).with_name("tools.toml")
_LONGEST_S: Final = 900


def tool_sources() -> Path:
    """The folder that tests look in; it need not be there."""
    return Path(os.environ.get("MESHWRIGHT_TOOL_SOURCES") or ROOT / ".tools")


def fetch(folder: Path, names: frozenset[str] = frozenset()) -> list[str]:
    """Fetch all that is listed, or what goes into the folders ``names``; a sentence for each that failed."""
    failures = []
    for kind, entries in tomllib.loads(LISTED.read_text("utf-8")).items():
        for entry in entries:
            if names and entry["to"] not in names:
                continue
            what = entry.get("name") or entry["url"]
            try:
                with tempfile.TemporaryDirectory() as scratch:
                    (_package if kind == "packages" else _repository)(entry, folder / entry["to"], Path(scratch))
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
                failures.append(f"{what}: {(said or str(error)).strip().splitlines()[-1]}")
            else:
                sys.stdout.write(f"{what} -> {entry['to']}\n")
    return failures


def _package(entry: Mapping[str, Any], to: Path, scratch: Path) -> None:
    pinned = f"{entry['name']}=={entry['version']}"
    _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), pinned)
    (archive,) = scratch.iterdir()
    found = 0
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(lambda one: _is_wanted(one, entry), wheel.namelist()):
                _keep(to / name, wheel.read(name))
                found += 1
    else:
        with tarfile.open(archive) as source:
            for member in source:
                name = str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))
                content = source.extractfile(member) if _is_wanted(name, entry) else None
                if content is not None:
                    _keep(to / name, content.read())
                    found += 1
    _check(found, entry)


def _repository(entry: Mapping[str, Any], to: Path, scratch: Path) -> None:
    clone = scratch / "clone"
    newest = ("--quiet", "--depth", "1", "--filter=blob:none", "--sparse", "--branch", entry["tag"])
    _run("git", "-c", "advice.detachedHead=false", "clone", *newest, entry["url"], str(clone))
    _run("git", "-C", str(clone), "sparse-checkout", "set", "--no-cone", *(f"/{name}" for name in entry["files"]))
    files = [path for pattern in entry["files"] for path in clone.glob(pattern)]
    for path in files:
        _keep(to / path.relative_to(clone), path.read_bytes())
    _check(len(files), entry)


def _is_wanted(name: str, entry: Mapping[str, Any]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in entry["files"])


def _keep(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _check(found: int, entry: Mapping[str, Any]) -> None:
    if found < len(entry["files"]):
        message = f"{found} files found, {len(entry['files'])} listed: renew tools.toml"
        raise ValueError(message)


def _run(*words: str) -> None:
    program = shutil.which(words[0]) or words[0]
    subprocess.run([program, *words[1:]], check=True, capture_output=True, text=True, timeout=_LONGEST_S)


def main(arguments: list[str]) -> int:
    """0 where everything is there, else 1."""
    folder = Path(arguments[0]) if arguments else tool_sources()
    failures = fetch(folder, frozenset(arguments[1:]))
    for failure in failures:
        sys.stderr.write(f"not fetched: {failure}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
