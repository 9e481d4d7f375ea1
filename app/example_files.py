"""The shipped examples: clusters, models, workloads and more, as files, and the stories that they tell."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

_CHECKOUT: Final = Path(__file__).parents[1] / "examples"
_INSTALLED: Final = Path(sysconfig.get_path("data")) / "share" / "meshwright" / "examples"
"""Where a wheel puts them."""
_ENDINGS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Story:
    """A model of the catalogue with a workload, of training or of serving, on a cluster."""

    name: str
    title: str
    cluster: Path
    model: str
    workload: Path

    @property
    def is_serving(self) -> bool:
        """Whether the workload is one of serving."""
        return self.workload.stem.startswith("serving-")


def examples_folder() -> Path | None:
    """The folder of the shipped examples; ``None`` where the installation carries none."""
    return next((folder for folder in (_CHECKOUT, _INSTALLED) if (folder / "clusters").is_dir()), None)


@cache
def example_clusters() -> tuple[Path, ...]:
    """The documents of the shipped clusters, by name."""
    folder = examples_folder()
    if folder is None:
        return ()
    return tuple(sorted(path for path in (folder / "clusters").iterdir() if path.suffix in _ENDINGS))


@cache
def stories() -> tuple[Story, ...]:
    """The shipped stories, in the order in which they are offered."""
    folder = examples_folder()
    if folder is None:
        return ()
    return tuple(
        Story(
            name=row["name"],
            title=row["title"],
            cluster=folder / "clusters" / f"{row['cluster']}.yaml",
            model=row["model"],
            workload=folder / "workloads" / f"{row['workload']}.yaml",
        )
        for row in yaml.safe_load((folder / "stories.yaml").read_text("utf-8"))
    )
