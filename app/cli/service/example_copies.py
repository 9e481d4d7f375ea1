"""``meshwright examples``: the shipped examples as files of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from app.cli.endings import Failed
from app.cli.terminal import console
from app.example_files import examples_folder
from cluster_models.errors import InvalidInput


def run_examples(folder: Path) -> None:
    """Copy the shipped examples into ``folder``, which must not hold anything yet, and say what to run first.

    Raises ``InvalidInput`` where the folder holds something or cannot be written, ``Failed`` where the installation
    carries no examples.
    """
    source = examples_folder()
    if source is None:
        raise Failed("This installation carries no examples; they are in the folder examples of the source archive")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput("FOLDER", str(folder), "holds something already", "name a new folder")
    try:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise InvalidInput("FOLDER", str(folder), f"cannot be written: {error.strerror or error}") from error
    console().print(
        f"Written to {folder}.  A first plan:\n"
        f"meshwright plan --cluster {folder}/clusters/h100-17-nodes.yaml --model llama-3-70b "
        f"--workload {folder}/workloads/llama-3-70b-8k.yaml",
        soft_wrap=True,
        highlight=False,
    )
