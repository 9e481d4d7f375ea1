"""Files by their text, read as an upload is, and what is proposed of them."""

from __future__ import annotations

from typing import Any

from app.imports.dry_run import Report, dry_run
from app.imports.sources import SentFile
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import Cluster
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers, Proposal


def report_of(
    files: dict[str, str],
    answers: Answers | None = None,
    *,
    known: Cluster | None = None,
    samples: tuple[Sample, ...] = (),
) -> Report:
    """The report of an upload to a cluster called "site"."""
    return dry_run(
        [SentFile(name, text.encode()) for name, text in files.items()],
        name="site",
        known=known,
        known_samples=samples,
        aliases=AliasTable(),
        answers=answers or Answers(),
    )


def fields_of(proposal: Proposal) -> dict[str, dict[str, Any]]:
    """The values of each node's fields."""
    return {node.name: {field: said.value for field, said in node.fields.items()} for node in proposal.nodes}


def codes_of(proposal: Proposal) -> list[str]:
    """The codes of all doubts."""
    return [doubt.code for doubt in proposal.doubts]


def slurm_nodes(*names: str, gpus: str = "gpu:h100:8") -> str:
    """``scontrol show node`` of nodes with these GPUs."""
    return "".join(
        f"NodeName={name} Arch=x86_64 CoresPerSocket=48\n   Gres={gpus}\n   State=IDLE ThreadsPerCore=2\n\n"
        for name in names
    )
