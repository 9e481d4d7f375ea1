"""Arrays out of the bytes of .npy, .npz and .safetensors; nothing in them is ever run."""

from __future__ import annotations

import io
import json
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.errors import InvalidInput

NPY: Final = b"\x93NUMPY"
_ZIP: Final = b"PK\x03\x04"
_PICKLES: Final = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_TORCH_SUFFIXES: Final = (".pt", ".pth", ".pkl", ".pickle", ".bin")
_LONGEST_HEADER: Final = 10_000
_LONGEST_TENSOR_HEADER: Final = 2**24
_DTYPES: Final = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
}
"""Types of safetensors that numpy has; counts have no other."""
_NO_HEADER: Final = (
    ValueError,
    TypeError,
    SyntaxError,
    KeyError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)
"""Errors that numpy raises for invalid headers: they are literals of Python."""
_NO_ARCHIVE: Final = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    RuntimeError,
    NotImplementedError,
    ValueError,
)
_CONVERT: Final = (
    "where PyTorch is, run: python -c \"import json, sys, torch; d = torch.load(sys.argv[1], map_location='cpu', "
    "weights_only=True); c = d.get('logical_count'); c is None or d.update(logical_count=c.reshape(-1, "
    '*c.shape[-2:]).sum(0)); json.dump(d, sys.stdout, default=lambda t: t.tolist())" dump.pt > dump.json'
)
_AGAIN: Final = "save the arrays again, with numpy.savez_compressed"


def is_pickle(name: str, data: bytes) -> bool:
    """Whether a file is one that only running it would open: PyTorch's .pt, and pickles."""
    if name.casefold().endswith(_TORCH_SUFFIXES) or data.startswith(_PICKLES):
        return True
    return any(entry.rpartition("/")[2] == "data.pkl" for entry in _entries(data))


def pickle_refused(name: str) -> InvalidInput:
    """The error of such a file, with the command that converts it."""
    return InvalidInput(name, "", "is a pickle: opening one runs what it holds, so it is not read", _CONVERT)


def is_npz(data: bytes) -> bool:
    """Whether a zip archive holds arrays alone."""
    entries = _entries(data)
    return bool(entries) and all(entry.endswith(".npy") for entry in entries)


def is_safetensors(name: str, data: bytes) -> bool:
    """Whether a file is of named tensors: by its name, or by the size and the first character of its header."""
    if name.casefold().endswith(".safetensors"):
        return True
    return len(data) > 10 and data[8:9] == b"{" and 2 <= struct.unpack("<Q", data[:8])[0] <= len(data) - 8


def npy_of(name: str, data: bytes) -> NDArray[Any]:
    """The array of a .npy file; raises ``InvalidInput`` for objects, and where its size is not what it says."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, dtype = read_header(stream, max_header_size=_LONGEST_HEADER)
    except _NO_HEADER as error:
        problem = f"is not an array of numpy: {error}"[:200]
        raise InvalidInput(name, "", problem, _AGAIN) from error
    if dtype.kind not in "iuf":
        raise InvalidInput(name, str(dtype)[:60], "must be an array of numbers", _AGAIN)
    if any(side < 0 for side in shape):
        raise InvalidInput(name, shape, "has no such shape", _AGAIN)
    return _array(name, data[stream.tell() :], dtype, shape, order="F" if by_columns else "C")


def npz_of(name: str, data: bytes, left: int) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file by name, of at most ``left`` bytes in all; raises ``InvalidInput``."""
    found: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as content:
                    member = content.read(left + 1)
                if len(member) > left:
                    problem = "unpacks to more than is accepted"
                    raise InvalidInput(name, entry.filename, problem, "save the sum of all steps")
                left -= len(member)
                key = entry.filename.removesuffix(".npy")
                found[key] = npy_of(f"{name}: {key}", member)
    except _NO_ARCHIVE as error:
        raise InvalidInput(name, "", f"cannot be unpacked: {error}"[:200], _AGAIN) from error
    return found


def safetensors_of(name: str, data: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of a .safetensors file: 8 bytes of length, a JSON header, the raw values.

    Raises ``InvalidInput`` where the header does not describe the bytes, and for types that numpy does not have.
    """
    length = struct.unpack("<Q", data[:8])[0] if len(data) > 8 else 0
    if not 2 <= length <= min(len(data) - 8, _LONGEST_TENSOR_HEADER):
        raise InvalidInput(name, length, "has no header of safetensors of that length", "send the whole file")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise InvalidInput(name, "", f"has no header in JSON: {error}"[:200], "send the whole file") from error
    if not isinstance(header, dict):
        raise InvalidInput(name, str(header)[:60], "must have a header of named tensors", "send the whole file")
    body = memoryview(data)[8 + length :]
    return {key: _tensor(f"{name}: {key}", body, entry) for key, entry in header.items() if key != "__metadata__"}


def _tensor(name: str, body: memoryview, entry: Any) -> NDArray[Any]:
    given = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = given.get("dtype"), given.get("shape"), given.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise InvalidInput(name, str(dtype)[:60], f"must have a dtype of {known}", "save counts as int64")
    sides, ends = _wholes(shape), _wholes(offsets)
    if sides is None or ends is None or len(ends) != 2 or not ends[0] <= ends[1] <= len(body):
        raise InvalidInput(name, str(entry)[:60], "has no shape and offsets within the file", "send the whole file")
    return _array(name, body[ends[0] : ends[1]], np.dtype(_DTYPES[dtype]), sides)


def _wholes(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > 8:
        return None
    wholes = tuple(item for item in value if isinstance(item, int) and 0 <= item < 2**48)
    return wholes if len(wholes) == len(value) else None


def _array(
    name: str, data: bytes | memoryview, dtype: np.dtype[Any], shape: tuple[int, ...], order: str = "C"
) -> NDArray[Any]:
    count = math.prod(shape)
    if count * dtype.itemsize != len(data) or len(shape) > 8:
        problem = f"holds {len(data):,} bytes, an array of {shape} has {count * dtype.itemsize:,}"
        raise InvalidInput(name, str(shape)[:60], problem, "send the whole file")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


def _entries(data: bytes) -> list[str]:
    """The names in a zip archive; none where the bytes are not an archive."""
    if not data.startswith(_ZIP):
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except _NO_ARCHIVE:
        return []
