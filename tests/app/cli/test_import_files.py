"""The files that ``meshwright import`` takes: folders, standard input, and what cannot be read."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.cli.clusters.import_answers import read_answers
from app.cli.clusters.import_files import read_files
from app.cli.files import write_text
from cluster_models.errors import InvalidInput
from tests.app.cli_imports import NICS, SWITCHES, WIRING, plain, run, write_logs
from tests.readers.nccl_logs import log


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the log of each pair of three nodes, inside the folder we work in."""
    monkeypatch.chdir(tmp_path)
    return write_logs(tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(range(256)) * 40, "is not text"),
        (b"", "the file is empty"),
        (b"PK\x03\x04 and no archive", "cannot be unpacked"),
        (b"\xff\xfe", "the file is empty"),
        (b"hello\n" * 10, ""),
        (b'{"kind": [[[[', ""),
    ],
)
def test_a_file_of_which_nothing_is_used_is_code_two(
    logs: Path, capsys: pytest.CaptureFixture[str], data: bytes, reason: str
) -> None:
    """One line says why, the report too, and the other files of a call are read all the same."""
    Path("odd.bin").write_bytes(data)
    code, out, err = run(capsys, "odd.bin")
    assert code == 2
    assert err.startswith(f"meshwright: nothing in the file could be used: odd.bin: {reason}")
    assert err.count("\n") == 1
    assert "What was not taken" in out
    code, out, err = run(capsys, "odd.bin", "logs", *NICS)
    assert (code, err) == (0, "")
    assert "9 measurements" in out


def test_a_file_that_is_too_large_is_not_read(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused by itself; archives may be larger than text."""
    monkeypatch.setattr("app.cli.clusters.import_files.MAX_TEXT_BYTES", 100_000)
    monkeypatch.setattr("app.cli.clusters.import_files.MOST_UNPACKED_BYTES", 200_000)
    Path("big.log").write_bytes(b"x\n" * 60_000)
    Path("big.zip").write_bytes(b"PK\x03\x04" + bytes(150_000))
    Path("huge.zip").write_bytes(b"PK\x03\x04" + bytes(250_000))
    given = read_files(["big.log", "big.zip", "huge.zip"])
    assert [file.name for file in given.sent] == ["big.zip"]
    assert [name for name, _ in given.refused] == ["big.log", "huge.zip"]
    code, out, _ = run(capsys, "big.log", "logs", *NICS)
    assert code == 0
    assert "big.log: is larger than" in out
    monkeypatch.setattr("app.cli.clusters.import_files.MOST_BYTES", 1_000)
    code, _, err = run(capsys, "logs")
    assert code == 2
    assert "import them in several parts" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_refused_by_name(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are read."""
    Path("secret.log").write_text("x")
    Path("secret.log").chmod(0)
    code, out, _ = run(capsys, "secret.log", "logs", *NICS)
    assert code == 0
    assert "secret.log: cannot be read: Permission denied" in out


def test_an_unreadable_file_is_refused_and_the_rest_is_read(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the system says of it."""

    def read(path: str) -> bytes:
        if path.endswith("n1_n2.log"):
            raise PermissionError(13, "Permission denied")
        return Path(path).read_bytes()

    monkeypatch.setattr("app.cli.clusters.import_files._content", read)
    code, out, _ = run(capsys, "logs", *NICS)
    assert code == 0
    assert "nccl_n1_n2.log: cannot be read: Permission denied" in out
    assert "3 files  3 nodes  6 measurements" in out


def test_folders_are_walked_without_what_is_hidden(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are as short as they can be told apart; each file is read once."""
    (logs / ".git").mkdir()
    (logs / ".git" / "config").write_text("x")
    (logs / ".hidden").write_text("x")
    for node in ("n1", "n2"):
        (logs / node).mkdir()
        (logs / node / "topo.txt").write_text("x")
    os.mkfifo(logs / "pipe")
    (logs / "gone").symlink_to(logs / "nowhere")
    names = [file.name for file in read_files(["logs", "./logs/n1", "logs/nccl_n1_n2.log"]).sent]
    assert names == ["nccl_n1_n2.log", "nccl_n1_n3.log", "nccl_n2_n3.log", "n1/topo.txt", "n2/topo.txt"]
    (logs / "empty").mkdir()
    with pytest.raises(InvalidInput, match="is a folder without files"):
        read_files(["logs/empty"])
    monkeypatch.setattr("app.cli.clusters.import_files.MOST_FILES", 3)
    with pytest.raises(InvalidInput, match="holds more than 3 files"):
        read_files(["logs"])


def test_standard_input_is_a_file(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe of one command, next to files."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SWITCHES.encode())))
    code, out, _ = run(capsys, "-", "logs", *NICS)
    assert code == 0
    assert "stdin" in out
    assert "2 nodes: 8 x H100-SXM5-80GB, 8 x 400 Gb/s infiniband, leaf=s1" in plain(out)


def test_many_files_are_told_by_their_kinds(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hundreds of logs make a page, not hundreds of lines."""
    names = [f"n{number}" for number in range(20)]
    for a, b in itertools.combinations(names, 2):
        (logs / f"nccl_{a}_{b}.log").write_text(log([a, b], 1, sizes=(1 << 20,)))
    code, out, _ = run(capsys, "logs")
    assert code == 0
    assert "nccl-tests or rccl-tests log: 190 files" in out
    assert "and 187 more; --json for all" in out
    assert len(out.splitlines()) < 60


def test_the_kinds_of_file_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With what is refused, and why; as JSON for programs."""
    assert main(["import-formats"]) == 0
    out = capsys.readouterr().out
    assert "nccl-tests" in out
    assert "refused" in out
    assert main(["import-formats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name", "known_as", "family", "refused_because"} == set(rows[0])
    assert len({row["name"] for row in rows}) == len(rows) > 30


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for each of two nodes, with a file of the same name in both."""
    monkeypatch.chdir(tmp_path)
    for node in ("n1", "n2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "topo.txt").write_text(WIRING)
    return tmp_path


def _hosts(*options: str) -> dict[str, str]:
    given = read_files(["n1", "n2"])
    return dict(read_answers(hosts=options, settings=(), given=given).hosts)


@pytest.mark.usefixtures("folders")
def test_a_folder_for_each_node_names_the_nodes_of_its_files() -> None:
    """One option for all; a file that is named goes before, whatever the order."""
    both = {"n1/topo.txt": "n1", "n2/topo.txt": "n2"}
    assert _hosts("*/topo.txt={folder}") == both
    assert _hosts("*={folder}") == both
    assert _hosts("n1/topo.txt={folder}") == {"n1/topo.txt": "n1"}
    assert _hosts("n1/topo.txt=m7", "*/topo.txt={folder}") == {**both, "n1/topo.txt": "m7"}
    assert _hosts("n1/*=*") == {"n1/topo.txt": "*"}


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("*/none.txt={folder}",), "fits none of the files given"),
        (("*/topo.txt={folder}", "n1/*=n2"), "is answered twice"),
    ],
)
def test_a_pattern_that_says_nothing_clear_is_refused(options: tuple[str, ...], said: str) -> None:
    """A pattern that fits nothing is a slip of the pen, and two patterns may not differ."""
    with pytest.raises(InvalidInput, match=said):
        _hosts(*options)


def test_a_file_of_no_folder_names_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing that {folder} could stand for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.txt").write_text(WIRING)
    with pytest.raises(InvalidInput, match="lies in no folder"):
        read_answers(hosts=("topo.txt={folder}",), settings=(), given=read_files(["topo.txt"]))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up leaves the cluster file as it was, and nothing beside it."""
    path = tmp_path / "c.yaml"
    path.write_text("before")
    path.chmod(0o640)

    def full(self: Path, *_: object, **__: object) -> int:
        with self.open("w") as file:
            file.write("ha")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_text", full)
        with pytest.raises(InvalidInput, match="No space left"):
            write_text(path, "half")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("before", [path])
    write_text(path, "after")
    assert (path.read_text(), path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == ("after", 0o640, [path])


def test_a_link_goes_on_to_lead_to_the_file(tmp_path: Path) -> None:
    """The target of a link is written, not the link."""
    path, link = tmp_path / "c.yaml", tmp_path / "latest.yaml"
    path.write_text("before")
    link.symlink_to(path)
    write_text(link, "after")
    assert link.is_symlink()
    assert path.read_text() == "after"
