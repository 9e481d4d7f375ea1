"""Answers that nothing asks for: named in the report, with the nearest that something does."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from app.imports.dry_run import Report, dry_run
from app.imports.sources import SentFile
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers
from tests.app.import_files import NODES, TABLE

TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-9\nGPU1\tNV18\t X \t0-9\n"
SLOW = TABLE.replace("41.5", "0.2").replace("44.25", "0.3")
FILES = (
    SentFile("nodes.txt", NODES.encode()),
    SentFile("table.csv", SLOW.encode()),
    SentFile("topology.conf", b"SwitchName=s1 Nodes=n[1-2],login\n"),
)


def looked(*files: SentFile, **answers: Any) -> Report:
    chosen = {"*.nics": "8 x 400 infiniband", **answers.pop("chosen", {})}
    given = Answers(chosen=chosen, **answers)
    return dry_run(files or FILES, name="x", known=None, known_samples=(), aliases=AliasTable(), answers=given)


@pytest.mark.parametrize(
    ("answers", "field", "value", "remedy"),
    [
        ({"hosts": {"nofile.txt": "n1"}}, 'hosts["nofile.txt"]', "nofile.txt", "did you mean 'nodes.txt'?"),
        ({"ranks": {"table.csv:9": 8}}, 'ranks["table.csv:9"]', "table.csv:9", "did you mean 'table.csv:"),
        ({"nodes": {"tabel.csv:2": ("n1",)}}, 'nodes["tabel.csv:2"]', "tabel.csv:2", "did you mean 'table.csv:2'"),
        (
            {"accepted": frozenset({"table.csv:1:tcp-fallback"})},
            'accepted["table.csv:1:tcp-fallback"]',
            None,
            "did",
        ),
        ({"gpu_kind": "H9000"}, "gpu_kind", "H9000", ""),
        ({"chosen": {"alias:zzz": "n1"}}, 'chosen["alias:zzz"]', "alias:zzz", "known are"),
        ({"chosen": {"alias:login": "nonode"}}, 'chosen["alias:login"]', "nonode", "n2"),
        ({"chosen": {"gpu_kind:h200": "H100"}}, 'chosen["gpu_kind:h200"]', "gpu_kind:h200", "did you mean 'h100'?"),
        ({"chosen": {"gpu_kind:h100": "H9000"}}, 'chosen["gpu_kind:h100"]', "H9000", ""),
        ({"chosen": {"n9.gpu_count": "8"}}, 'chosen["n9.gpu_count"]', "n9.gpu_count", "known are n1, n2"),
        ({"chosen": {"speed": "8"}}, 'chosen["speed"]', "speed", "write NODE.FIELD or *.FIELD"),
    ],
)
def test_an_answer_of_no_effect_is_a_problem(
    answers: dict[str, Any], field: str, value: str | None, remedy: str
) -> None:
    """It names the key, or the value where that names nothing, and nothing can be stored."""
    report = looked(**answers)
    (problem,) = [one.problem for one in report.unused_answers]
    assert problem in report.problems
    assert report.cluster is None
    assert problem.field == f"answers.{field}"
    assert value is None or problem.value == value
    assert remedy in problem.remedy


def test_answers_that_have_an_effect_pass() -> None:
    """Those to doubts, runs, products, aliases but for case or domain, and nodes whose names hold points."""
    report = looked(gpu_kind="h100")
    assert not report.unused_answers
    accepted = frozenset(doubt.key for doubt in report.proposal.doubts)
    assert accepted
    chosen = {"gpu_kind:h100": "H100-SXM5-80GB", "alias:N1": "n1", "n2.gpu_count": "16", "*.labels.leaf": "a"}
    places = {"ranks": {"table.csv:2": 16}, "nodes": {"table.csv:2": ("n1", "n2")}}
    assert not looked(accepted=accepted, chosen=chosen, hosts={"table.csv": "n1"}, **places).unused_answers
    dotted = SentFile("nodes.txt", NODES.replace("n1", "n1.x").encode())
    assert not looked(dotted, chosen={"n1.x.gpu_count": "4"}).unused_answers


def test_files_go_by_the_names_of_the_report() -> None:
    """Equal names are numbered, and members of an archive have its name before theirs; the archive has none."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("topo.txt", TOPO)
    equal = SentFile("t", TOPO.encode())
    files = (*FILES, equal, equal, SentFile("a.zip", packed.getvalue()))
    assert not looked(*files, hosts={"t": "n1", "t (2)": "n2", "a.zip/topo.txt": "n1"}).unused_answers
    lost = looked(*files, hosts={"t (3)": "n1", "a.zip": "n1"}).unused_answers
    remedies = {one.key: one.problem.remedy for one in lost}
    assert remedies["t (3)"] == "did you mean 't (2)'?"
    assert remedies["a.zip"].startswith("known are a.zip/topo.txt, ")


def test_very_many_answers_to_nothing_are_all_named() -> None:
    lost = looked(ranks={f"table.csv:{line}": 8 for line in range(100, 10_000)}).unused_answers
    assert len(lost) == 9_900
    assert sum(bool(one.problem.remedy) for one in lost) < 10
