"""The shipped examples: clusters, models, workloads and more, as files."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).parents[1] / "examples"
_INSTALLED: Final = Path(sysconfig.get_path("data")) / "share" / "meshwright" / "examples"
"""Where a wheel puts them."""
_ENDINGS: Final = (".yaml", ".yml", ".json")


def examples_folder() -> Path | None:
    """The folder of the shipped examples; ``None`` where the installation carries none."""
    return next((folder for folder in (_CHECKOUT, _INSTALLED) if (folder / "clusters").is_dir()), None)


@cache
def documents_of(kind: str) -> tuple[Path, ...]:
    """The documents in the folder ``kind`` of the examples, by name."""
    folder = examples_folder()
    if folder is None or not (folder / kind).is_dir():
        return ()
    return tuple(sorted(path for path in (folder / kind).iterdir() if path.suffix in _ENDINGS))
