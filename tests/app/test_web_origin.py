"""Forms are taken from our own pages only."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from app.web.origin import ForeignOriginError, require_same_origin


def _post(**headers: str) -> Request:
    named = {"host": "planner.example", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    return Request({"type": "http", "method": "POST", "headers": raw, "path": "/plans/new"})


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
        {"origin": "http://planner.example"},
        {},
    ],
)
def test_our_own_pages_and_plain_clients_may_post(headers: dict[str, str]) -> None:
    """Same origin, a bookmark, an old browser on our page, and a tool that is no browser."""
    require_same_origin(_post(**headers))


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site", "origin": "http://planner.example"},
    ],
)
def test_pages_of_other_sites_may_not_post(headers: dict[str, str]) -> None:
    """Another site, a sister site, an opaque origin, and a forged origin beside an honest browser header."""
    with pytest.raises(ForeignOriginError):
        require_same_origin(_post(**headers))
