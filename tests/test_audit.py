"""``make audit`` against recorded answers of the advisory service, which tests do not reach."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests

pytest.importorskip("pip_audit")

from pip_audit._cli import audit

ROOT = Path(__file__).parents[1]
VULNERABLE = "jinja2"
RECORDED = {
    "aliases": ["CVE-2025-27516", "GHSA-cpwx-vrp4-4pq7"],
    "details": "An oversight in the sandbox lets a template run Python.",
    "fixed_in": ["99.1.6"],
    "id": "PYSEC-0000-1",
    "link": "https://osv.dev/vulnerability/PYSEC-0000-1",
    "source": "osv",
    "summary": None,
    "withdrawn": None,
}
"""As the index lists one of jinja2 3.1.5, with another number and a mended version far ahead."""


def _recipe() -> list[str]:
    """The words of the command that ``make audit`` runs."""
    told = subprocess.run(
        ["make", "--dry-run", "audit"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"pip-audit (.*?)\|\|", told.stdout.replace("\\\n", " "), re.DOTALL)
    assert found is not None
    return shlex.split(found[1])


def _ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, vulnerable: str = "") -> int:
    """Exit code of the command where the service answers so of every package."""

    def send(_adapter: object, request: requests.PreparedRequest, **_more: Any) -> requests.Response:
        name = str(request.url).split("/")[-3]
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = status, str(request.url), request
        answer._content = json.dumps({"vulnerabilities": [RECORDED] if name == vulnerable else []}).encode()
        return answer

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    monkeypatch.setattr("cachecontrol.CacheControlAdapter.send", send)
    monkeypatch.setattr("sys.argv", ["pip-audit", *_recipe(), "--cache-dir", str(tmp_path)])
    monkeypatch.chdir(ROOT)
    try:
        audit()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_packages_without_advisories_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every pin of the lock is asked about."""
    assert _ended(monkeypatch, tmp_path, 200) == 0


def test_an_advisory_fails_and_says_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table names package, advisory and the version to raise to."""
    assert _ended(monkeypatch, tmp_path, 200, VULNERABLE) == 1
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "PYSEC" in each)
    assert (line.split()[0], line.split()[2:]) == (VULNERABLE, ["PYSEC-0000-1", "99.1.6"])


def test_where_nobody_answers_it_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An index that knows no advisories is no proof that there are none."""
    assert _ended(monkeypatch, tmp_path, 404) == 1


def test_the_recipe_says_what_to_do() -> None:
    """Which packages to raise and how, and where to run it when the service is out of reach."""
    told = (ROOT / "Makefile").read_text("utf-8")
    assert "raise these packages in pyproject.toml" in told
    assert "where Python's own package index can be reached over HTTPS" in told
