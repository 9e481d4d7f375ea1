"""Uploads that are too large, oddly named or no text at all: each is answered, and does no harm."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.api.v1.import_uploads import MOST_FILES
from app.settings import Role
from cluster_models.cluster.topology import MOST_NODES
from tests.app.api_client import API, running
from tests.app.import_files import TABLE, document, form

IMPORTS = f"{API}/imports"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[TestClient]:
    """On SQLite, with a limit of 2 MB a body."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def test_limits_are_named(small: TestClient) -> None:
    """413 for too many bytes, declared or not, and too many files, as a form or as JSON."""

    def chunks() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        for _ in range(30):
            yield b"a" * 100_000

    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    many = {f"{number}.txt": "" for number in range(MOST_FILES + 1)}
    cases = [
        (small.post(IMPORTS, **form({"a.txt": "a" * 2_100_000}, cluster="made")), "2000000"),
        (small.post(IMPORTS, content=chunks(), headers=kind), "2000000"),
        (small.post(IMPORTS, **form(many, cluster="made")), f"{MOST_FILES} files"),
        (small.post(IMPORTS, **document(many, cluster="made")), f"{MOST_FILES} files"),
        (small.post(IMPORTS, files=[("files", ("a", b"a"))], data={f"f{n}": "" for n in range(30)}), "20 fields"),
    ]
    for answer, named in cases:
        assert answer.status_code == 413, answer.text
        assert answer.json()["type"] == "/problems/content-too-large"
        assert named in answer.json()["detail"]


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "C:\\boot.ini",
        "a\x1b[2Jb",
        "n" * 10_000,
        "\u202egpj.exe",
        "a:12:one-rank",
    ],
)
def test_file_names_are_only_names(small: TestClient, tmp_path: Path, name: str) -> None:
    """Whatever a file is called, it is read, its name can be shown, and no file appears anywhere."""
    before = {path for path in tmp_path.rglob("*") if "sqlite" not in path.name}
    as_form = [form({name: TABLE}, cluster="made")] if len(name) < 4_000 else []
    for sent in [*as_form, document({name: TABLE}, cluster="made")]:
        answer = small.post(IMPORTS, **sent)
        assert answer.status_code == 200, answer.text
        (file,) = answer.json()["files"]
        assert file["name"].isprintable()
        assert len(file["name"]) < 400
        assert file["sections"][0]["format"] == "own-table"
    assert {path for path in tmp_path.rglob("*") if "sqlite" not in path.name} == before


def packed(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x81\xff" * 500, "is not text"),
        (b"\x00\x01\x02" * 500, "is not text"),
        (b"", "the file is empty"),
        (b"PK\x03\x04" + b"\x00" * 50, "cannot be unpacked"),
        (b"\x1f\x8b" + b"\x00" * 50, "cannot be unpacked"),
        (packed(bomb=b"0" * (65 * 2**20)), "unpacks to more than 64 MiB"),
        (gzip.compress(b"0" * (65 * 2**20)), "unpacks to more than 64 MiB"),
        (packed(**{f"m{number}": b"" for number in range(2_001)}), "more than 2,000 files"),
        (b"\xd4" * 10 + b" caf\xe9\n", ""),
    ],
    ids=["high", "nul", "empty", "zip", "gzip", "zip-bomb", "gzip-bomb", "members", "latin"],
)
def test_bytes_of_every_kind_get_a_report(small: TestClient, data: bytes, reason: str) -> None:
    """A file that is not text is refused in the report; the good file beside it is read."""
    report = small.post(IMPORTS, **form({"bad": data, "table.csv": TABLE.encode()}, cluster="made")).json()
    bad = next(file for file in report["files"] if file["name"] == "bad")
    assert reason in bad["refusals"][0]["reason"]
    assert bad["refusals"][0]["remedy"]
    assert report["sample_count"] == 2


def test_known_formats_are_listed(small: TestClient) -> None:
    """Every format has a name for people; some are known only to be refused."""
    formats = {form["name"]: form for form in small.get(f"{API}/import-formats").json()}
    assert formats["nccl-tests"]["refused_because"] is None
    assert formats["perfquery"]["refused_because"]
    assert all(form["known_as"] and form["family"] for form in formats.values())


def test_more_nodes_than_a_cluster_holds_are_counted(small: TestClient) -> None:
    """The problem names how many there are and how many there may be, and shows no inside of ours."""
    slurm = "".join(f"NodeName=n{number} Gres=gpu:h100:8 State=IDLE\n" for number in range(MOST_NODES + 1))
    report = small.post(IMPORTS, **form({"nodes.txt": slurm}, cluster="made")).json()
    [problem] = [problem for problem in report["problems"] if problem["field"] == "nodes"]
    assert problem["value"] == str(MOST_NODES + 1)
    assert f"at most {MOST_NODES:,} nodes" in problem["problem"]
    assert (report["nodes"], report["questions"]) == ([], [])
    assert not report["can_be_stored"]


@pytest.mark.parametrize("inner", [packed(a=b"x"), gzip.compress(b"x")], ids=["zip", "gzip"])
def test_archives_inside_archives_stay_closed(small: TestClient, inner: bytes) -> None:
    """One level is opened; the report says what to do with the next, and reads the rest."""
    report = small.post(
        IMPORTS, **form({"logs.zip": packed(inner=inner, table=TABLE.encode())}, cluster="made")
    ).json()
    refused = {file["name"]: file["refusals"] for file in report["files"]}
    assert "archive inside an archive" in refused["logs.zip/inner"][0]["reason"]
    assert refused["logs.zip/table"] == []
