"""Bytes as they are sent: what is never run, what is too large, what is damaged."""

from __future__ import annotations

import io
import os
import pickle
import re
import shlex
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.text import MAX_TEXT_BYTES
from app.imports.sources import MOST_UNPACKED_BYTES
from app.routing.reading import files_at, loads_of, read_all
from cluster_models.errors import InvalidInput
from tests.readers.routing.made import counts, npy, npz, read_of, safetensors, sent, tried


class _Marks:
    """A pickle of it would run code when opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("the pickle was run",))


def _zipped(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/"), data)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dump.pt", pickle.dumps(_Marks())),
        ("dump.json", pickle.dumps(_Marks())),
        ("dump.zip", _zipped(**{"archive__data.pkl": pickle.dumps(_Marks()), "archive__data__0": b"1234"})),
        ("all.zip", _zipped(**{"dump.pt": pickle.dumps(_Marks())})),
    ],
)
def test_pickles_are_never_opened(name: str, content: bytes) -> None:
    """PyTorch's files are refused with the command that converts them."""
    with pytest.raises(InvalidInput, match=r"is a pickle.*torch\.load.*weights_only=True"):
        read_of(name, content)


def test_arrays_of_objects_are_refused() -> None:
    """An array of objects is a pickle inside."""
    stream = io.BytesIO()
    np.save(stream, np.array([_Marks()], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInput, match="must be an array of numbers"):
        read_of("loads.npy", stream.getvalue())


def test_arrays_are_as_large_as_they_say() -> None:
    """A header that claims more than the file holds gets no memory."""
    data = npy(counts(2, 8))
    with pytest.raises(InvalidInput, match="holds 120 bytes, an array of"):
        read_of("loads.npy", data[:-8])
    claimed = re.sub(rb"\(2, 8\), } {6}", b"(2, 8000000), }"[:14] + b" ", data)
    with pytest.raises(InvalidInput):
        read_of("loads.npy", claimed.replace(b"(2, 8)", b"(2,88)"))
    tensors = safetensors({"10_3": counts(1, 8)[0]})
    with pytest.raises(InvalidInput, match="no shape and offsets within the file"):
        read_of("rank0.safetensors", tensors[:-1])
    with pytest.raises(InvalidInput, match="no header of safetensors"):
        read_of("rank0.safetensors", struct.pack("<Q", 2**40) + b"{}")


def test_tensors_of_unknown_types_are_refused() -> None:
    """Numpy has no bfloat16."""
    data = safetensors({"10_3": counts(1, 8)[0]}).replace(b'"I64"', b'"B64"')
    with pytest.raises(InvalidInput, match="must have a dtype of"):
        read_of("rank0.safetensors", data)


def test_large_text_is_refused_with_what_to_do() -> None:
    """Dumps of many steps are sent as their sum."""
    text = b'{"logical_count": [' + b" " * MAX_TEXT_BYTES + b"]}"
    with pytest.raises(InvalidInput, match=r"MiB of text.*send the sum of all steps"):
        read_of("dump.json", text)


def test_archives_that_unpack_to_more_are_refused() -> None:
    """Zeros pack well."""
    steps = np.zeros(MOST_UNPACKED_BYTES // 8 + 1)
    with pytest.raises(InvalidInput, match="unpacks to more"):
        read_of("dump.npz", npz(logical_count=steps))


def test_archives_hold_files_of_all_kinds() -> None:
    """Each by its own name; what cannot be read gets a notice."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in (
            ("run/a.npz", npz(loads=counts(2, 8))),
            ("run/b.csv", b"1,2\n3,4\n"),
            ("run/c.pt", b"x"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    found = read_of("all.tar.gz", stream.getvalue())
    assert [workload.name for workload in found.workloads] == ["a", "b"]
    assert [(notice.code, notice.place.file) for notice in found.notices] == [
        ("file-left-out", "all.tar.gz/run/c.pt")
    ]


def test_broken_json_is_named_by_line() -> None:
    """Cut off while copying."""
    with pytest.raises(InvalidInput, match=r"dump\.json: is not valid JSON.*line 1, column"):
        read_of("dump.json", '{"logical_count": [[1, 2], [3')


@pytest.mark.parametrize(
    "content", [b"", b"   \n", b"\x00\x01\x02", b"null", b"[]", b"{}", b"3", b'"text"', b"[[[[1]]]]"]
)
def test_files_that_say_nothing(content: bytes) -> None:
    """One error that names the file."""
    with pytest.raises(InvalidInput) as caught:
        read_of("empty.json", content)
    assert caught.value.field.startswith("empty.json")
    assert caught.value.remedy


def test_paths(tmp_path: Any) -> None:
    """A folder stands for its files; absent ones are an error."""
    (tmp_path / "a.npy").write_bytes(npy(counts(2, 8)))
    (tmp_path / "b.csv").write_text("1,2\n3,4\n")
    assert [workload.name for workload in loads_of(tmp_path)] == ["a", "b"]
    with pytest.raises(InvalidInput, match="cannot be read"):
        files_at(tmp_path / "absent.json")
    with pytest.raises(InvalidInput, match="there is no file"):
        read_all([])


_WHOLE = (
    ("a.npy", npy(counts(3, 4))),
    ("a.npz", npz(weight=counts(3, 4), phy2log=np.array([[0, 1, 2, 3]] * 3))),
    ("rank0.safetensors", safetensors({f"1_{layer}": counts(1, 4)[0] for layer in (3, 4)})),
    ("a.csv", b"workload,layer,expert,next_expert,count\nx,0,1,,4\nx,0,1,2,4\nx,1,2,,5\n"),
    ("a.json", b'{"logical_count": [[1, 2], [3, 4]], "physical_to_logical_map": [[0, 1], [1, 0]]}'),
    ("a.zip", _zipped(**{"x.json": b"[[1, 2]]", "y.npy": npy(counts(2, 2))})),
)


@given(st.sampled_from(_WHOLE), st.data())
def test_damaged_bytes_never_raise_anything_else(whole: tuple[str, bytes], data: st.DataObject) -> None:
    """Bytes changed, lost or added: workloads, or one error with a remedy."""
    name, content = whole
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, len(changed) - 1)))
        change = data.draw(st.sampled_from(("set", "cut", "insert")))
        if change == "set" and changed:
            changed[place] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del changed[place : place + data.draw(st.integers(1, 20))]
        else:
            changed[place:place] = data.draw(st.binary(max_size=8))
    error, found = tried(lambda: read_all([sent(name, bytes(changed))]))
    assert (error is None) == (found is not None)
    assert error is None or (error.field and error.problem)
    assert found is None or found.workloads or found.maps


def test_the_command_that_converts_pickles(tmp_path: Path) -> None:
    """Run as it is printed, with a stand-in for PyTorch: what it writes can be read."""
    stand_in = "import numpy\n\ndef load(path, map_location, weights_only):\n    return {dump}\n"
    for dump, name, total in (
        ("{'rank': 0, 'logical_count': numpy.ones((5, 3, 4), numpy.int32)}", "stat", 60),
        ("{'records': [{'global_physical_count': numpy.ones((3, 4))}] * 2}", "pass", 24),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "torch.py").write_text(stand_in.format(dump=dump))
        with pytest.raises(InvalidInput) as caught:
            read_of("dump.pt", b"")
        command = caught.value.remedy.partition("run: ")[2].replace("python ", f"{shlex.quote(sys.executable)} ", 1)
        subprocess.run(
            ["bash", "-c", command], cwd=folder, check=True, env=os.environ | {"PYTHONPATH": str(folder)}
        )
        (workload,) = loads_of(folder / "dump.json")
        assert workload.loads.sum() == total
