"""Every page of the service in a real browser: nothing that axe finds, nothing that scrolls sideways."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.test_web_browser import chromium
from tests.e2e.whole_site import page_paths, whole_site

__all__ = ["chromium"]
WIDTHS: Final = (1280, 390)
PICTURES: Final = os.environ.get("MESHWRIGHT_PICTURES", "")
"""Folder for pictures of all pages, to be looked at; empty: none are kept."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """A server with something on every page; begun before the browser, whose event loop it must not meet."""
    with whole_site(tmp_path_factory.mktemp("whole")) as found:
        yield found


def test_no_page_is_forgotten_or_out_of_reach(whole: tuple[str, dict[str, list[str]]], chromium: Browser) -> None:
    """Axe in the light theme, contrast again in the dark one, and both widths, on every route that shows a page."""
    sync_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
    axe = sync_playwright.Axe()
    found: list[str] = []
    site, addresses = whole
    with chromium.new_context(color_scheme="light") as context:
        assert set(addresses) == page_paths()
        page = context.new_page()
        page.set_content("<img src=none>")
        assert "image-alt" in {rule["id"] for rule in axe.run(page).response["violations"]}, "axe works"
        for address in ("/plans/none", *(each for several in addresses.values() for each in several)):
            answer = page.goto(f"{site}{address}")
            if answer is None or answer.status != (404 if address == "/plans/none" else 200):
                found.append(f"{address}: {answer and answer.status}")
            found += _problems(axe, page, address)
    assert found == []


def _problems(axe: Any, page: Page, address: str) -> list[str]:
    """Faults of the page that is shown."""
    found = []
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    every = axe.run(page).response["violations"]
    _keep(page, address, "light")
    page.emulate_media(color_scheme="dark")
    _keep(page, address, "dark")
    every += axe.run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
    page.emulate_media(color_scheme="light")
    for rule in every:
        found += [f"{address}: {rule['id']} at {each['html'][:200]}" for each in rule["nodes"]]
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{address}: scrolls sideways at {width}")
    _keep(page, address, "narrow")
    if PICTURES:
        page.emulate_media(color_scheme="dark")
        _keep(page, address, "narrow-dark")
        page.emulate_media(color_scheme="light")
    return found


def _keep(page: Page, address: str, name: str) -> None:
    """The whole page as a picture, where pictures are kept."""
    if PICTURES:
        place = re.sub(r"[0-9a-f]{32}", lambda found: found[0][:6], address.strip("/"))
        file = re.sub(r"[^\w.-]+", "-", place) or "start"
        page.screenshot(path=Path(PICTURES) / f"{file}-{name}.png", full_page=True)
