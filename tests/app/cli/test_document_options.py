"""Options that commands take from documents."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from app.cli.commands import main
from app.cli.common_options import Effort, Seed, SolverName
from app.cli.document_options import with_fields
from app.documents.reading import Count, Document, Positive
from app.documents.run_reports import RunReportDocument
from app.experts.request import PlacementFields
from app.services.planning.requests import OptionsDocument
from cluster_models.calibration.training_run import MemoryCounter
from solver.problem import Backend


class Asked(Document):
    """A request with every kind of field that options stand for."""

    ranks: Count = Field(description="Ranks of a map.")
    nodes: Count = Field(3, description="Nodes of the ranks.")
    sent_bytes: Positive | None = Field(None, le=9, description="Bytes of a message.")


def _typed(*words: str) -> dict[str, Any]:
    """The fields that a command gets for these words."""
    got: dict[str, Any] = {}
    asking = typer.Typer()

    @asking.command()
    @with_fields(Asked, {"ranks": "--ranks", "nodes": "--nodes", "sent_bytes": "--sent"})
    def ask(*, fields: dict[str, Any], loud: bool = False) -> None:
        got.update(fields, loud=loud)

    result = CliRunner().invoke(asking, words)
    assert (result.exit_code == 0) == bool(got), result.output
    return got


def test_fields_that_were_typed_arrive_with_the_types_of_the_document() -> None:
    """Numbers as numbers; what was not typed is left to the document, but for defaults that help shows."""
    assert _typed("--ranks", "8", "--loud") == {"ranks": 8, "nodes": 3, "loud": True}
    assert _typed("--ranks", "8", "--nodes", "2", "--sent", "1e6") == {
        "ranks": 8,
        "nodes": 2,
        "sent_bytes": 1e6,
        "loud": False,
    }
    assert _typed() == {}, "what the document requires must be typed"


def test_help_has_meaning_choices_units_and_defaults_of_the_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentences are those of the description of the API."""
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["experts", "place", "--help"]) == 0
    told = capsys.readouterr().out
    for field in ("ranks", "nodes", "slots", "between_nodes_gbit_per_s_per_gpu", "seed"):
        assert str(PlacementFields.model_fields[field].description) in told
    assert "nearest|any|both" in told
    assert "GBIT_PER_S" in told
    assert "[default: 1]" in told


def test_commands_load_what_they_need() -> None:
    """``--help`` is quick, though commands of experts take options from requests, and plans need no database."""
    code = """
import sys, app.cli.commands as commands
commands.main(["--help"])
assert "app.experts.request" not in sys.modules
import app.cli.planning.planning
sys.exit(str({"sqlalchemy", "psycopg", "app.client", "scipy.cluster"} & {*sys.modules}).removeprefix("set()"))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stderr.strip(), "experts" in ended.stdout) == ("", True)


@pytest.mark.parametrize(("option", "name"), [(Effort, "effort"), (Seed, "seed")])
def test_options_spelled_by_hand_allow_what_their_document_allows(option: Any, name: str) -> None:
    """Those of commands in the list that ``--help`` loads."""
    (info,) = option.__metadata__
    limits = OptionsDocument.model_fields[name].metadata
    assert info.min == max(each.ge for each in limits if hasattr(each, "ge"))
    assert info.max == min(each.le for each in limits if hasattr(each, "le"))


def test_words_of_options_are_those_of_their_documents(capsys: pytest.CaptureFixture[str]) -> None:
    """Solvers, and counters of memory with the one that is taken where none is typed."""
    assert SolverName.__metadata__[0].metavar == "|".join(Backend)  # type: ignore[attr-defined]
    assert main(["runs", "report", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(word in told for word in MemoryCounter if word is not MemoryCounter.FORMULA)
    assert f"[default: {RunReportDocument.model_fields['memory_counter'].default}]" in told
