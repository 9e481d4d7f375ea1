"""``meshwright lengths``: the part of a workload that says how long documents are, from a list or histogram."""

from __future__ import annotations

import json

import typer

from app.cli.files import read_text
from app.documents.mixed_lengths import MixedLengthsDocument, read_counts
from cluster_models.training.mixed_lengths import Balance, MixedLengths, Packing


def run_lengths(file: str, *, packing: Packing, balance: Balance, as_json: bool) -> None:
    """Print the document of ``lengths`` that a workload takes: in YAML with its key, or as JSON."""
    counts = read_counts(read_text(file))
    found = MixedLengths.of(counts, packing, balance)
    total = sum(counts.values())
    document = MixedLengthsDocument(
        tokens=list(found.lengths),
        counts=[float(f"{share * total:.6g}") for share in found.shares],
        packing=packing,
        balance=balance,
    )
    written = document.model_dump(mode="json", exclude={"log_normal"})
    if as_json:
        typer.echo(json.dumps(written))
        return
    longest = max(tokens for tokens, count in counts.items() if count)
    typer.echo(f"# {total:,.0f} documents of {found.mean:,.0f} tokens in the mean, the longest of {longest:,}")
    typer.echo("lengths:")
    for name, value in written.items():
        typer.echo(f"  {name}: {value}")
