"""Files that a page carries from one look at them to the next."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Sequence

from app.imports.sources import MOST_UNPACKED_BYTES, SentFile
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB


def pack(files: Sequence[SentFile]) -> str:
    """The files as text for a hidden field: names and lengths, then all contents, compressed, in base64."""
    head = json.dumps([[file.name, file.host, len(file.data)] for file in files]).encode("ascii")
    content = b"\n".join((head, b"".join(file.data for file in files)))
    return base64.b64encode(zlib.compress(content)).decode("ascii")


def unpack(text: str) -> tuple[SentFile, ...]:
    """Files that ``pack`` took; raises ``InvalidInput`` for anything else, and stops at the limit of one upload."""
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text, validate=True), MOST_UNPACKED_BYTES + MIB)
        head, _, data = content.partition(b"\n")
        if not unpacker.eof:
            raise _damaged()
        files, at = [], 0
        for name, host, length in json.loads(head):
            if not (isinstance(name, str) and isinstance(host, str | None) and isinstance(length, int)):
                raise _damaged()
            if length < 0 or at + length > len(data):
                raise _damaged()
            files.append(SentFile(name, data[at : at + length], host))
            at += length
    except (ValueError, TypeError, RecursionError, zlib.error, binascii.Error) as error:
        raise _damaged() from error
    return tuple(files)


def check_size(files: Sequence[SentFile], carried: str, most_bytes: int) -> None:
    """Raise ``InvalidInput`` where the next form could not bring the files back, or they are too large at all."""
    size = sum(len(file.data) for file in files)
    if size > MOST_UNPACKED_BYTES:
        problem = f"are {_mib(size)} together, more than the {MOST_UNPACKED_BYTES // MIB} MiB of one look"
    elif len(carried) > most_bytes:
        problem = f"are {_mib(len(carried))} as the page would carry them, more than its {_mib(most_bytes)}"
    else:
        return
    raise InvalidInput("files", size, problem, "send them in several parts, or with meshwright import")


def _damaged() -> InvalidInput:
    return InvalidInput("files", "", "did not come back whole", "choose the files again")


def _mib(size: float) -> str:
    return f"{size / MIB:.1f} MiB"
