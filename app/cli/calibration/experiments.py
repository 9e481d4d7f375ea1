"""``meshwright experiments``: choose the runs to measure next."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from app.cli.files import check_writable, write_text
from app.cli.planning.planning import ProblemFiles, read_problem
from app.cli.terminal import bullets, console
from app.documents.experiments import ExperimentDocument, ExperimentsDocument
from app.presentation.figures import percent, plural
from app.services.calibration.experiments import experiments_for
from cluster_models.training.recompute import recomputation_words

_FIGURES = ("GPUs", "step", "GiB", "error then")


def run_experiments(files: ProblemFiles, *, runs: int, as_json: bool, output: Path | None) -> None:
    """Choose, print, and write the table to fill in."""
    check_writable(output)
    document = experiments_for(read_problem(files), runs=runs)
    if as_json:
        sys.stdout.write(document.model_dump_json(indent=2) + "\n")
        sys.stdout.flush()
    else:
        console().print(experiments_view(document, output))
    if output is not None:
        write_text(output, document.table)


def experiments_view(document: ExperimentsDocument, output: Path | None) -> Group:
    """The runs on the terminal, and what to do with them."""
    table = Table(box=None, pad_edge=False)
    for head in ("", "configuration", *_FIGURES):
        table.add_column(head, justify="right" if head in _FIGURES else "left", overflow="fold")
    for each in document.runs:
        table.add_row(
            each.id,
            _settings(each),
            str(each.gpus),
            f"{each.predicted_step_s:.3g} s",
            f"{each.predicted_memory_gib:.1f}",
            percent(each.error_fraction),
        )
    name = "runs.csv" if output is None else str(output)
    written = " (--output runs.csv writes the table)" if output is None else ""
    uncertain = (
        f"Parameters leave the steps of {plural(document.competitive, 'competitive configuration')} uncertain by "
        f"{percent(document.error_fraction)} now; what the formulas lack comes on top."
    )
    seen = f"{plural(document.configurations, 'configuration')} that fit the memory were looked at."
    then = (
        f"Fill in iter_time_s, and mem_gib_per_gpu if you can{written}; then: meshwright calibrate --runs {name} "
        "--output ours.json"
    )
    title = Text(f"Measure {plural(len(document.runs), 'run')}, the most telling first", style="bold")
    return Group(title, table, bullets((uncertain, seen, then)))


def _settings(each: ExperimentDocument) -> str:
    configuration = each.configuration
    degrees = " ".join(f"{name}={size}" for name, size in configuration.degrees if size > 1) or "one GPU"
    modules, limit = frozenset(configuration.recompute_modules), configuration.recompute_layers
    again = recomputation_words(configuration.recompute, modules, limit)
    return (
        f"{degrees} micro-batch={configuration.micro_batch_sequences} recompute={again} "
        f"sharding={configuration.sharding}"
    )
