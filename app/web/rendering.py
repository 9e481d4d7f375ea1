"""Templates to answers, with the headers that every page carries."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from app.web.manual import FOLDER

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def _place(length: float) -> str:
    """A length of a drawing, short: a page may hold thousands."""
    return f"{length:.2f}".rstrip("0").rstrip(".")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("app.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["place"] = _place
    environment.globals |= {"frame": "base.html", "version": version("meshwright"), "has_manual": FOLDER.is_dir()}
    return environment


_TEMPLATES: Final = _environment()


def person_of(request: Request) -> str:
    """Name of whoever is signed in on a page; empty where nobody needs to be."""
    principal = request.scope.get("state", {}).get("principal")
    return principal.name if principal is not None and principal.by_cookie else ""


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **values: object,
) -> HTMLResponse:
    """The answer that ``template`` makes of ``values``."""
    return answer_of(text_of(request, template, **values), status=status, headers=headers)


def text_of(request: Request, template: str, **values: object) -> str:
    """The text that ``template`` makes of ``values``."""
    return _TEMPLATES.get_template(template).render(here=request.url.path, person=person_of(request), **values)


def answer_of(text: str, *, status: int, headers: dict[str, str] | None = None) -> HTMLResponse:
    """The answer whose page is ``text``."""
    return HTMLResponse(text, status, {**SECURITY_HEADERS, "Cache-Control": "no-store", **(headers or {})})
