"""An upload from bytes to documents, without storing anything."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.cluster import samples_of
from app.documents.reading import InvalidDocument
from app.imports.documents import check_measurements, cluster_document, measurements_document
from app.imports.dry_run import Report, dry_run
from app.imports.sources import MOST_MEMBERS, SentFile, open_files
from cluster_models.cluster.topology import Cluster
from readers.proposal.aliases import AliasTable
from readers.proposal.combine import combine
from readers.proposal.values import Answers
from tests.readers.made_facts import host, reading, run

SCONTROL = "".join(
    f"NodeName={name} Arch=x86_64 CoresPerSocket=48\n   Gres=gpu:h100:8(S:0-1)\n   State=IDLE ThreadsPerCore=2\n\n"
    for name in ("n1", "n2")
)
TABLE = (
    "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_gbs,status\n"
    "n1,n2,8,alltoall,268435456,41.5,ok\n"
    "n1,n2,8,alltoall,1073741824,44.25,ok\n"
)
ANSWERS = Answers(chosen={"*.nics": "8 x 400 infiniband"}, gpu_kind="H100-SXM5-80GB")


def sent(known: Cluster | None = None, answers: Answers = ANSWERS, **files: str) -> Report:
    return dry_run(
        [SentFile(name, text.encode()) for name, text in files.items()],
        name="new",
        known=known,
        known_samples=(),
        aliases=AliasTable(),
        answers=answers,
    )


def test_a_proposal_passes_todays_checks() -> None:
    """The proposal is the same cluster and samples after going through the documents."""
    files = [reading(host("n1", leaf="a"), host("n2", leaf="b")), reading(run("n1", "n2"))]
    proposal = combine(files, aliases=AliasTable(), known=None, answers=Answers())
    cluster = cluster_document(proposal, name="made").to_cluster()
    assert [(node.name, node.gpu_count, node.labels["leaf"]) for node in cluster.nodes] == [
        ("n1", 8, "a"),
        ("n2", 8, "b"),
    ]
    samples = samples_of(measurements_document(proposal), cluster)
    assert [sample.bytes_per_s for sample in samples] == pytest.approx([40e9, 45e9])


def test_what_no_document_holds_is_said_without_a_document_of_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count beyond any, and more samples than a document takes; nothing else of the report makes documents."""
    proposal = combine(
        [reading(host("n1"), host("n2")), reading(run("n1", "n2"))],
        aliases=AliasTable(),
        known=None,
        answers=Answers(),
    )
    check_measurements(proposal)
    one = proposal.samples[-1]
    many = replace(one, sample=replace(one.sample, ranks_per_node=10**13))
    with pytest.raises(InvalidDocument, match="ranks_per_node: must be at most"):
        check_measurements(replace(proposal, samples=(*proposal.samples, many)))
    monkeypatch.setattr("app.imports.documents.MOST_SAMPLES", 1)
    monkeypatch.setattr("app.imports.documents.measurements_document", made := Mock())
    check_measurements(proposal)
    made.assert_called_once_with(proposal)


def test_two_files_become_a_cluster_and_its_measurements() -> None:
    report = sent(nodes=SCONTROL, table=TABLE)
    assert report.problems == ()
    assert report.cluster is not None
    assert [node.name for node in report.cluster.nodes] == ["n1", "n2"]
    assert [sample.bandwidth_gbytes_per_s for sample in report.measurements.samples] == pytest.approx([41.5, 44.25])
    assert "2 measurements are new." in report.changes
    assert "Node n1 is new." in report.changes


def test_storing_twice_changes_nothing() -> None:
    """The same files for the cluster that came of them: no change but what is stored already."""
    first = sent(nodes=SCONTROL, table=TABLE)
    assert first.cluster is not None
    cluster = first.cluster.to_cluster()
    again = dry_run(
        [SentFile("nodes", SCONTROL.encode()), SentFile("table", TABLE.encode())],
        name="new",
        known=cluster,
        known_samples=samples_of(first.measurements, cluster),
        aliases=AliasTable(),
        answers=ANSWERS,
    )
    assert again.changes == ("2 measurements are stored already.",)
    assert again.cluster is not None
    assert again.cluster.to_cluster() == cluster
    assert not again.proposal.conflicts


def test_an_answer_for_all_nodes_says_where_it_changes_nothing() -> None:
    """It was asked of nodes that lack the value; those stored keep theirs, and the way to change one is said."""
    first = sent(nodes=SCONTROL, table=TABLE)
    assert first.cluster is not None
    known = first.cluster.to_cluster()
    chosen = {"*.gpu_count": "4", "*.nics": "8 x 400 infiniband"}
    again = sent(known, Answers(chosen=chosen), table=TABLE)
    assert again.proposal.passed_over == {"gpu_count": ("n1", "n2")}
    told = [change for change in again.changes if change.startswith("*.")]
    assert told == [
        "*.gpu_count is for nodes of which nothing is stored: n1, n2 keep 8; to change that, answer n1.gpu_count."
    ]
    own = sent(known, Answers(chosen={"n1.gpu_count": "4"}), table=TABLE)
    assert "n1.gpu_count: 8 becomes 4." in own.changes
    assert not own.proposal.passed_over


def test_what_is_missing_is_asked_and_named() -> None:
    report = sent(answers=Answers(), table=TABLE)
    assert report.cluster is None
    assert {question.key for question in report.proposal.questions} >= {"*.gpu_kind", "*.nics"}
    assert report.problems[0].problem == "is missing"


def test_the_digest_names_all_that_the_report_follows_from() -> None:
    files = {"nodes": SCONTROL, "table": TABLE}
    digest = sent(**files).digest
    assert sent(table=TABLE, nodes=SCONTROL).digest == digest
    report = sent(**files)
    assert report.cluster is not None
    others = [
        sent(nodes=SCONTROL, table=TABLE.replace("41.5", "41.6")),
        sent(answers=Answers(), **files),
        sent(known=report.cluster.to_cluster(), **files),
    ]
    assert len({digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize("name", ["n\x1b[2J", "n" * 300, "\t", "n\u2028"])
def test_names_that_no_document_holds_are_no_hosts(name: str) -> None:
    """They could move a terminal's cursor: their runs are kept aside, the others stay."""
    proposal = combine(
        [reading(run(name, "n2"), replace(run("n1", "n2", line=50), tool="a\x07b"))],
        aliases=AliasTable(),
        known=None,
        answers=Answers(),
    )
    assert {sample.tool for sample in measurements_document(proposal).samples} == {"ab"}
    assert len(proposal.kept_aside) == 1


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_archives_are_unpacked_and_names_stay_different() -> None:
    files = {"a/log": b"one", "b/log": b"two"}
    opened = open_files(
        [
            SentFile("x.zip", zipped(files)),
            SentFile("y.tgz", tarred(files)),
            SentFile("z.log.gz", gzip.compress(b"three")),
            SentFile("z.log", b"four"),
        ]
    )
    assert {source.name: source.text for source in opened.sources} == {
        "x.zip/a/log": "one",
        "x.zip/b/log": "two",
        "y.tgz/a/log": "one",
        "y.tgz/b/log": "two",
        "z.log": "three",
        "z.log (2)": "four",
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7fELF\0\0\0", "not text"),
        (b"\x89PNG\xff\xfe\xfd\xfc\x80\x81", "not text"),
        (zipped({"a": b"x" * 100})[:60], "unpacked"),
        (gzip.compress(b"x" * 100)[:15], "unpacked"),
        (gzip.compress(b"x" * (65 << 20)), "64 MiB"),
        (zipped({f"{index}": b"" for index in range(MOST_MEMBERS + 1)}), "files"),
    ],
    ids=["program", "picture", "cut zip", "cut gzip", "large gzip", "many members"],
)
def test_hostile_files_end_in_a_refusal(data: bytes, reason: str) -> None:
    opened = open_files([SentFile("bad", data), SentFile("good", b"text")])
    assert [source.name for source in opened.sources] == ["good"]
    assert reason in opened.refused[0].refusals[0].sentence


def test_text_of_other_systems_is_read() -> None:
    """PowerShell writes UTF-16; single bytes of Latin-1 in a log do not matter."""
    texts = [
        source.text
        for source in open_files(
            [SentFile("a", "GPU0\r\n".encode("utf-16")), SentFile("b", b"caf\xe9 " + b"x" * 50)]
        ).sources
    ]
    assert texts == ["GPU0\r\n", "caf\N{REPLACEMENT CHARACTER} " + "x" * 50]


@pytest.mark.parametrize(
    ("name", "text", "tree"),
    [
        ("a.json", '{"a": 1}', {"a": 1}),
        ("a", ' [{"a": 1}]', [{"a": 1}]),
        ("a.yaml", "a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a", "apiVersion: v1\nkind: List\n", {"apiVersion": "v1", "kind": "List"}),
        ("a.yaml", "    ---\n    - a: 1\n    - b: 2\n", [{"a": 1}, {"b": 2}]),
        ("a.yaml", "```yaml\na: 1\n```\n", {"a": 1}),
        ("a.yaml", "kind: ConfigMap\ndata:\n  t.yaml: |\n    - a: 1\n", [{"a": 1}]),
        ("a.yaml", "kind: ConfigMap\ndata:\n  t: word\n", {"kind": "ConfigMap", "data": {"t": "word"}}),
        ("a.json", '"a": 1,\n', None),
        ("a.log", "[1,0]<stdout>: text", None),
        ("a.txt", "a: 1\n", None),
    ],
)
def test_json_and_yaml_are_parsed_where_they_are_meant(name: str, text: str, tree: object) -> None:
    assert open_files([SentFile(name, text.encode())]).sources[0].tree == tree


@given(st.binary(max_size=200), st.sampled_from(["a", "a.json", "a.yaml", "a.zip"]))
def test_any_bytes_give_a_report(data: bytes, name: str) -> None:
    report = dry_run(
        [SentFile(name, data)], name="new", known=None, known_samples=(), aliases=AliasTable(), answers=Answers()
    )
    assert len(report.readings) == 1
    assert report.readings[0].sections or report.readings[0].refusals


def packed_as_tar(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar that nothing compresses."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_plain_tar_is_opened(form: int) -> None:
    """As one that is compressed."""
    packed = packed_as_tar({"nodes.txt": SCONTROL.encode(), "logs/t.csv": TABLE.encode()}, form)
    opened = open_files([SentFile("all.tar", packed)])
    assert [source.name for source in opened.sources] == ["all.tar/nodes.txt", "all.tar/logs/t.csv"]
    assert opened.refused == ()
    broken = open_files([SentFile("all.tar", packed[:700])])
    assert broken.sources == ()
    assert "cannot be unpacked" in broken.refused[0].refusals[0].sentence


XZ, BZIP2, ZSTD, SEVEN = b"\xfd7zXZ\x00", b"BZh91AY&SY", b"\x28\xb5\x2f\xfd\x04", b"7z\xbc\xaf\x27\x1c"


@pytest.mark.parametrize(("head", "name"), [(XZ, "xz"), (BZIP2, "bzip2"), (ZSTD, "zstd"), (SEVEN, "7z")])
def test_other_archives_are_refused_by_their_names(head: bytes, name: str) -> None:
    """With what to send instead."""
    (refused,) = open_files([SentFile(f"all.tar.{name}", head + bytes(range(256)))]).refused
    (refusal,) = refused.refusals
    assert name in refusal.sentence
    assert ".tar.gz" in refusal.remedy


def test_a_member_with_holes_is_measured_as_it_unpacks() -> None:
    """A sparse file of a tar stands for more bytes than the archive has."""
    entry = tarfile.TarInfo("holes.log")
    entry.size = 1 << 40
    entry.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    block[386 : 386 + 24] = b"00000000000\x0000000000000\x00"
    block[483:495] = b"\x80\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00"
    block[124:136] = b"00000000000\x00"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\x00 " % sum(block)
    (refused,) = open_files([SentFile("holes.tar", bytes(block) + bytes(1024))]).refused
    assert "unpacks to more than" in refused.refusals[0].sentence
