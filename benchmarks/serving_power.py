"""How much of their boards' power GPUs draw as they serve: ``python -m benchmarks.serving_power --models FOLDER``.

The folder is ``public/data/models`` of github.com/ml-energy/leaderboard: runs of vLLM on H100 and B200, by model
and requests in flight, with the mean power of all GPUs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from cluster_models.cluster.catalogue import gpu_kind

KINDS: Final = {"H100": "H100-SXM5-80GB", "B200": "B200-SXM-180GB"}
IN_FLIGHT: Final = (1, 17, 65, 257, 10_000)
"""Bounds of the classes of requests in flight on a GPU's worker."""


def shares_of(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Kind, requests in flight and mean power over that of the boards, of every run that has tokens."""
    for path in sorted(folder.glob("*.json")):
        for run in json.loads(path.read_text("utf-8"))["configurations"]:
            if (kind := KINDS.get(run["gpu_model"])) is not None and "median_itl_ms" in run:
                watts = run["num_gpus"] * gpu_kind(kind).power_watts
                yield kind, float(run["avg_batch_size"]), run["avg_power_watts"] / watts


def report(rows: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    """A line for each kind and class of load: runs, and the 10th, 50th and 90th percentile of the share."""
    yield f"{'kind':<16}{'in flight':>12}{'runs':>6}{'p10':>7}{'median':>8}{'p90':>7}"
    for kind in KINDS.values():
        for low, high in (*pairwise(IN_FLIGHT), (IN_FLIGHT[0], IN_FLIGHT[-1])):
            shares = [share for own, load, share in rows if own == kind and low <= load < high]
            if shares:
                low_share, median, high_share = np.percentile(shares, (10, 50, 90))
                load = f"{low} to {high - 1}"
                yield f"{kind:<16}{load:>12}{len(shares):>6}{low_share:>7.0%}{median:>8.0%}{high_share:>7.0%}"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", type=Path, required=True, help="folder with a JSON file for each model and task"
    )
    print("\n".join(report(list(shares_of(parser.parse_args().models)))))


if __name__ == "__main__":
    main()
