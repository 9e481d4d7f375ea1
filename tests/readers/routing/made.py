"""Files of routing statistics as tools write them, made up by us."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.imports.sources import SentFile
from app.routing.reading import RoutingRead, read_all
from cluster_models.errors import InvalidInput
from readers.routing.reading import RoutingContents, RoutingSource
from readers.routing.registry import read

_Result = TypeVar("_Result")


def found_in(tree: Any, *, experts: int | None = None, text: str = "") -> RoutingContents:
    """Contents of a value, as a file "made.json"."""
    return read(RoutingSource("made.json", "made", tree, text, experts))


def sent(name: str, content: Any) -> SentFile:
    """A file of bytes, text or JSON."""
    data = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
    return SentFile(name, json.dumps(content).encode() if data is None else data)


def read_of(name: str, content: Any, *, experts: int | None = None) -> RoutingRead:
    """Contents of one file."""
    return read_all([sent(name, content)], experts=experts)


def tried(read_it: Callable[[], _Result]) -> tuple[InvalidInput | None, _Result | None]:
    """The error that reading ends in, or what it gives; another exception passes."""
    try:
        return None, read_it()
    except InvalidInput as error:
        return error, None


def npy(array: NDArray[Any]) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: NDArray[Any]) -> bytes:
    """The bytes of a .npz file."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def safetensors(tensors: Mapping[str, NDArray[np.int64]]) -> bytes:
    """The bytes of a .safetensors file of int64 tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in tensors.items():
        end = len(body) + tensor.nbytes
        header[name] = {"dtype": "I64", "shape": list(tensor.shape), "data_offsets": [len(body), end]}
        body += tensor.astype("<i8").tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def counts(layers: int, experts: int, seed: int = 0) -> NDArray[np.int64]:
    """Made-up counts (layers, experts), all above 0."""
    return np.random.default_rng(seed).integers(1, 10_000, size=(layers, experts))


def trace(tokens: int, layers: int, experts: int, top: int, seed: int = 0) -> NDArray[np.int64]:
    """Made-up ids (tokens, layers, top), distinct in each layer of a token."""
    random = np.random.default_rng(seed)
    return np.array([[random.permutation(experts)[:top] for _ in range(layers)] for _ in range(tokens)])
