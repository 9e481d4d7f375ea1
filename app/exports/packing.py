"""Several files in one: a ZIP archive for HTTP, the same bytes for the same files."""

from __future__ import annotations

import io
import zipfile
from typing import Final

from app.exports.contract import Export, Files, View
from app.exports.reinforcement import JointFormat
from app.exports.serving.contract import ServingExport

Format = Export | View | ServingExport | JointFormat
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest moment that a ZIP archive can name."""


def packed(export: Format, files: Files) -> bytes:
    """Body of the HTTP answer: the one file as it is, or all of them as an archive."""
    if not export.is_folder:
        return files[0].text.encode()
    return archive(files)


def archive(files: Files) -> bytes:
    """All files as a ZIP archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packing:
        for file in files:
            entry = zipfile.ZipInfo(file.name, _EPOCH)
            entry.external_attr = (0o755 if file.executable else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packing.writestr(entry, file.text)
    return stream.getvalue()
