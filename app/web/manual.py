"""The manual under ``/manual``, where it was built (``make manual``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

FOLDER: Final = Path(__file__).parent / "manual_pages"
# The theme of the manual switches light and dark by a line of script in its pages.
_POLICY: Final = "default-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
_MISSING: Final = "The manual is not built here: run make manual, or read the folder docs of the repository.\n"


class _Manual(StaticFiles):
    """Files with the headers of pages."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def install(app: FastAPI) -> None:
    """Serve the manual, or say how it is built."""
    if FOLDER.is_dir():
        app.mount("/manual", _Manual(directory=FOLDER, html=True))
    else:
        app.add_route("/manual", lambda _request: PlainTextResponse(_MISSING, status_code=404))
