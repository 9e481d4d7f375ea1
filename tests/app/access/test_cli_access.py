"""Keys and tenants at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.access import audit, keys
from app.access.audit import AuditFilter
from app.cli import main
from app.db.engine import make_engine, make_session_factory
from tests.app.command_files import CLUSTER


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An embedded database of its own, which the commands find by the settings."""
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return f"sqlite:///{tmp_path / 'meshwright.sqlite'}"


def test_a_key_is_made_listed_and_revoked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the key itself is on standard output; the audit log knows who made it."""
    assert main(["keys", "create", "ci", "--role", "planner", "--scope", "operate", "--days", "1"]) == 0
    made = capsys.readouterr()
    key = made.out.strip()
    assert key.startswith("mw_")
    assert "not shown again" in " ".join(made.err.split())
    assert main(["keys", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["scopes"]) == ("ci", ["operate", "plan", "read"])
    assert key.split("_", 2)[2] not in json.dumps(listed)
    assert main(["keys", "revoke", listed["id"]]) == 0
    assert main(["keys", "list"]) == 0
    assert "revoked" in capsys.readouterr().out
    with make_session_factory(make_engine(url))() as session:
        assert keys.get_key(session, key_id=listed["id"]).revoked_at is not None
        log = audit.list_entries(session, which=AuditFilter(), limit=10).items
    assert [entry.action for entry in log] == ["keys.revoke_key", "keys.create_key"]
    assert all("command line" in entry.actor for entry in log)


def test_commands_work_on_one_tenant(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a tenant are found for that tenant only; a tenant that does not exist is refused."""
    assert main(["tenants", "create", "lab", "--queued-plans", "3"]) == 0
    monkeypatch.setenv("MESHWRIGHT_TENANT", "lab")
    assert main(["cluster", "import", "cluster.yaml"]) == 0
    name = capsys.readouterr().out.strip().splitlines()[-1].partition(":")[0]
    assert main(["cluster", "show", name]) == 0
    monkeypatch.setenv("MESHWRIGHT_TENANT", "default")
    assert main(["cluster", "show", name]) == 2
    monkeypatch.setenv("MESHWRIGHT_TENANT", "nobody")
    assert main(["cluster", "show", name]) == 2
    assert "no tenant 'nobody'" in capsys.readouterr().err
    assert main(["tenants", "quotas", "lab", "--solver-seconds", "60", "--database-url", url]) == 2
    monkeypatch.delenv("MESHWRIGHT_TENANT")
    assert main(["tenants", "quotas", "lab", "--solver-seconds", "60"]) == 0
    capsys.readouterr()
    assert main(["tenants", "list", "--json"]) == 0
    lab = json.loads(capsys.readouterr().out)[1]
    quotas = {"queued_plans": None, "solver_s_per_day": 60.0, "stored_samples": None}
    assert lab == {"name": "lab", "quotas": quotas}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["keys", "create", "x"], "role"),
        (["keys", "create", "x", "--role", "king"], "king"),
        (["keys", "create", "x", "--role", "admin", "--tenant", "nobody"], "nobody"),
        (["keys", "revoke", "nothing"], "nothing"),
        (["tenants", "create", "Not A Name"], "small letters"),
        (["tenants", "create", "default"], "exists already"),
        (["tenants", "quotas", "nobody"], "nobody"),
    ],
)
def test_wrong_arguments_end_in_one_line(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Code 2 and what is wrong."""
    assert main([*arguments, "--database-url", url]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert words in lines[0]
