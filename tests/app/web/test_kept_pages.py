"""Answers to forms have addresses: they reload, go back, and are forgotten when newer ones need the room."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.db.engine import make_session_factory, transaction
from app.db.tenancy import for_tenant
from app.services import kept_pages
from app.services.errors import NotFound
from tests.app.web_site import site, told, where

LOOK = {"cluster": "lab <b>", "pasted": "NodeName=n1 Gres=gpu:h100:8(S:0-1)\n   State=IDLE\n", "do": "look"}


def test_the_newest_pages_are_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by bytes, and the newest whatever its size; another tenant neither sees nor loses any."""
    sessions = make_session_factory(engine)
    monkeypatch.setattr(kept_pages, "MOST_PAGES", 2)

    def keep(text: str, tenant: str = "") -> str:
        with transaction(for_tenant(sessions, tenant) if tenant else sessions) as session:
            return kept_pages.keep(session, text)

    def texts(*ids: str) -> list[str]:
        found = []
        with sessions() as session:
            for page_id in ids:
                try:
                    found.append(kept_pages.kept_page(session, page_id=page_id)[0])
                except NotFound:
                    found.append("")
        return found

    theirs = keep("theirs", "theirs")
    ids = [keep(text) for text in ("first", "second ä", "third")]
    assert texts(*ids, theirs) == ["", "second ä", "third", ""]
    with for_tenant(sessions, "theirs")() as session:
        assert kept_pages.kept_page(session, page_id=theirs)[0] == "theirs"
    monkeypatch.setattr(kept_pages, "MOST_BYTES", 10)
    assert texts(*ids[1:], keep("larger than all")) == ["", "", "larger than all"]


def test_an_answer_has_an_address(tmp_path: Path) -> None:
    """It says the same however often it is opened, in the frame of every page; a mistake is shown at once."""
    with site(tmp_path) as (_, browser):
        address = where(browser.post("/clusters/import", data=LOOK))
        assert address.startswith("/answers/")
        first, again = browser.get(address), browser.get(address)
        assert first.text == again.text
        assert "<title>" in first.text
        assert ": lab &lt;b&gt; · Meshwright</title>" in first.text
        assert "What the files say of lab <b>" in told(first.text)
        assert "This address keeps it as it was" in told(first.text)
        assert first.text.count("<main") == 1
        assert browser.post("/clusters/import", data=LOOK | {"cluster": ""}).status_code == 422
        assert browser.get("/answers/none").status_code == 404
