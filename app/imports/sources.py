"""Files as they are sent: archives unpacked, text decoded, JSON and YAML parsed; hostile ones are refused."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import struct
import tarfile
import textwrap
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.documents.text import MAX_TEXT_BYTES, parse_json, parse_text
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB
from readers.frame.findings import refusal
from readers.frame.reading import Reading
from readers.frame.sources import Source

MOST_UNPACKED_BYTES: Final = 64 * MIB
MOST_MEMBERS: Final = 2_000
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"
_TAR: Final = b"ustar"
_TAR_AT: Final = 257
_UNREAD: Final = {
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
    b"Rar!": "rar",
}
_DOCUMENT_END: Final = re.compile(r"^---[ \t]*$", re.MULTILINE)
_FENCE: Final = re.compile(r"^[ \t]*```\w{0,12}[ \t]*$", re.MULTILINE)
_YAML_BEGINS: Final = re.compile(r"\s*(?:---|apiVersion:|kind:|items:)", re.ASCII)
_LOOKED_AT: Final = 4096
_LONGEST_NAME: Final = 300


@dataclass(frozen=True, slots=True)
class SentFile:
    """One file of an upload; ``host`` the node that the sender says it is from."""

    name: str
    data: bytes
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """``sources`` to be read, and a reading with nothing but its refusal for each file that is not text."""

    sources: tuple[Source, ...]
    refused: tuple[Reading, ...]


def open_files(files: Sequence[SentFile]) -> Opened:
    """The texts of an upload; members of archives go by "archive/member", files of equal names are numbered."""
    sources: list[Source] = []
    refused: list[Reading] = []
    names: set[str] = set()
    left = MOST_UNPACKED_BYTES
    members = 0
    for file in files:
        try:
            for member in members_of(file, left, MOST_MEMBERS - members):
                left -= len(member.data)
                members += 1
                name = _unused(plain_name(member.name), names)
                try:
                    sources.append(_source(replace(member, name=name)))
                except InvalidInput as error:
                    refused.append(_refusal(name, error))
        except InvalidInput as error:
            refused.append(_refusal(_unused(plain_name(file.name), names), error))
    return Opened(tuple(sources), tuple(refused))


def plain_name(name: str) -> str:
    """A file's name as reports and answers hold it: it names the file to people, and never a place on a disk."""
    plain = "".join(character if character.isprintable() else "?" for character in name) or "unnamed"
    half = _LONGEST_NAME // 2
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[:half]}...{plain[-half:]}"


def _refusal(name: str, error: InvalidInput) -> Reading:
    return Reading(name, 0, (), (refusal(1, 1, error.problem, error.remedy),))


def _unused(name: str, names: set[str]) -> str:
    found, count = name, 1
    while found in names:
        count += 1
        found = f"{name} ({count})"
    names.add(found)
    return found


def members_of(file: SentFile, left: int, most: int) -> Iterator[SentFile]:
    """The file, or what an archive holds, at most ``left`` bytes in ``most`` files; nothing is written anywhere.

    Raises ``InvalidInput`` for larger and for broken archives.
    """
    try:
        if file.data.startswith(_ZIP):
            yield from _of_zip(file, left, most)
        elif file.data.startswith(_GZIP):
            yield from _of_gzip(file, left, most)
        elif _is_tar(file.data):
            yield from _of_tar(file, file.data, left, most)
        else:
            yield file
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        ValueError,  # offsets before the file's start
        RuntimeError,
        NotImplementedError,
    ) as error:
        problem = f"cannot be unpacked: {error}"[:200]
        raise InvalidInput(file.name, "", problem, "send the files themselves, or a new .zip or .tar.gz") from error


def _of_zip(file: SentFile, left: int, most: int) -> Iterator[SentFile]:
    with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        _check_count(file.name, len(entries), most)
        for entry in entries:
            with archive.open(entry) as content:
                data = _at_most(file.name, content.read(left + 1), left)
            left -= len(data)
            yield SentFile(f"{file.name}/{entry.filename}", data, file.host)


def _of_gzip(file: SentFile, left: int, most: int) -> Iterator[SentFile]:
    with gzip.GzipFile(fileobj=io.BytesIO(file.data)) as packed:
        data = _at_most(file.name, packed.read(left + 1), left)
    if _is_tar(data):
        yield from _of_tar(file, data, left, most)
    else:
        yield SentFile(file.name.removesuffix(".gz"), data, file.host)


def is_packed(data: bytes) -> bool:
    """Whether the first bytes are those of an archive that is opened."""
    return data.startswith((_ZIP, _GZIP)) or _is_tar(data)


def _is_tar(data: bytes) -> bool:
    return data.startswith(_TAR, _TAR_AT) and b"\0" in data[:_TAR_AT]


def _of_tar(file: SentFile, data: bytes, left: int, most: int) -> Iterator[SentFile]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for count, entry in enumerate(entry for entry in archive if entry.isreg()):
            _check_count(file.name, count + 1, most)
            content = archive.extractfile(entry)
            if content is not None:  # what has holes stands for more than the archive holds
                member = _at_most(file.name, content.read(left + 1), left)
                left -= len(member)
                yield SentFile(f"{file.name}/{entry.name}", member, file.host)


def _check_count(name: str, count: int, most: int) -> None:
    if count > most:
        problem = f"the upload holds more than {MOST_MEMBERS:,} files"
        raise InvalidInput(name, count, problem, "send them in several uploads")


def _at_most(name: str, data: bytes, left: int) -> bytes:
    if len(data) > left:
        problem = f"the upload unpacks to more than {MOST_UNPACKED_BYTES // MIB} MiB"
        raise InvalidInput(name, len(data), problem, "send the files in several uploads")
    return data


def _source(file: SentFile) -> Source:
    text = decoded(file)
    return Source(file.name, text, _tree(file.name, text), file.host)


def decoded(file: SentFile) -> str:
    """The text of a log: single bytes that are not UTF-8 are replaced, and what is not text at all is refused."""
    if len(file.data) > MAX_TEXT_BYTES:
        size = f"is {len(file.data) / MIB:.1f} MiB, more than the {MAX_TEXT_BYTES // MIB} MiB accepted"
        raise InvalidInput(file.name, len(file.data), size, "split the file")
    if file.data.startswith(_UTF16):
        text = file.data.decode("utf-16", errors="replace")
    else:
        text = file.data.decode("utf-8-sig", errors="replace")
    head = text[:_LOOKED_AT]
    for begin, name in _UNREAD.items():
        if file.data.startswith(begin):
            raise InvalidInput(
                file.name, "", f"is packed with {name}", "send a .zip, a .tar.gz or the files themselves"
            )
    if is_packed(file.data):  # archives that were sent themselves are open by now
        raise InvalidInput(file.name, "", "is an archive inside an archive", "unpack it, and send its files")
    if "\0" in text or head.count("\N{REPLACEMENT CHARACTER}") > len(head) // 10:
        raise InvalidInput(file.name, "", "is not text", "save the tool's output as text in UTF-8")
    return text


def _tree(name: str, text: str) -> Any:
    """The value of a JSON or YAML text, by the file's name or its first characters; ``None`` of all else.

    A text that looks like one and is none is read by its lines: fragments of both are pasted often.
    """
    suffix = name.casefold().rpartition(".")[2]
    try:
        if suffix in {"yaml", "yml"} or _YAML_BEGINS.match(text):
            return _yaml(name, text)
        if suffix == "json" or text.lstrip()[:1] in {"{", "["}:
            return parse_json(text.encode("utf-8", "replace"), what=name)
    except InvalidInput:
        return None
    return None


def _yaml(name: str, text: str) -> Any:
    """The value of the one document, or the list of all; an indented copy of a page counts as the text itself."""
    text = textwrap.dedent(_FENCE.sub("", text))
    parts = [part for part in _DOCUMENT_END.split(text) if part.strip()]
    values = [parse_text(part, what=name) for part in parts]
    found = [value for value in values if value is not None]
    return _unwrapped(name, found[0]) if len(found) == 1 else found or None


def _unwrapped(name: str, value: Any) -> Any:
    """The YAML that a ConfigMap of Kubernetes holds, where it holds one text of it; else the value itself."""
    data = value.get("data") if isinstance(value, dict) and value.get("kind") == "ConfigMap" else None
    texts = [text for text in data.values() if isinstance(text, str)] if isinstance(data, dict) else []
    if len(texts) != 1:
        return value
    try:
        inner = parse_text(texts[0], what=name)
    except InvalidInput:
        return value
    return inner if isinstance(inner, list | dict) else value
