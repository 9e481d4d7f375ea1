"""The page on failures over HTTP: its commands run one after the other, and its addresses are the service's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from tests.app.api_client import API, cluster_body, ended, plan_body, running

TEXT = (Path(__file__).parents[1] / "docs" / "failures_api.md").read_text("utf-8")
HOST = "localhost:8080"


def commands() -> list[tuple[str | None, str | None, str]]:
    """The commands of the page in order, with the variable that each sets and the field that it takes for it."""
    text = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
    found = []
    for each in re.split(r"\n(?=curl|[A-Z]+=)", text):
        taking = re.fullmatch(r"([A-Z]+)=\$\((.*) \| jq -r \.(\w+)\)", each.strip(), re.DOTALL)
        found.append((taking[1], taking[3], taking[2]) if taking else (None, None, each))
    return found


def run(client: TestClient, command: str) -> Any:
    """What the service answers to a curl command."""
    words = shlex.split(command.replace("\\\n", " "))[1:]
    options: dict[str, list[str]] = {}
    address = ""
    while words:
        word = words.pop(0)
        if word in ("-X", "-H", "-d"):
            options.setdefault(word, []).append(words.pop(0))
        elif word != "-s":
            address = word
    headers = dict(header.split(": ", 1) for header in options.get("-H", []))
    (method,) = options.get("-X", ["GET"])
    (body,) = options.get("-d", [None])
    return client.request(method, address.removeprefix(HOST), content=body, headers=headers)


def filled(command: str, variables: Mapping[str, str]) -> str:
    """The command with what the shell puts in place of variables."""
    for name, value in variables.items():
        command = command.replace(f"'${name}'", value).replace(f"${name}", value)
    return command


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """In their order, each with what those before it found; in the end the job runs on the spare."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        client.post(f"{API}/clusters", json=cluster_body(name="demo"))
        request = plan_body(cluster="demo")
        variables = {"PLAN": ended(client, client.post(f"{API}/plans", json=request).headers["Location"])["id"]}
        for variable, field, command in commands():
            reply = run(client, filled(command, variables))
            assert reply.is_success, (command, reply.text)
            if variable is not None:
                variables[variable] = reply.json()[field]
        job = client.get(f"{API}/clusters/demo/jobs/pretrain-a").json()
        hosts = client.get(job["running_plan"]["links"]["self"]).json()["content"]["configuration"]["hosts"]
    assert len(commands()) == TEXT.count("curl -s")
    assert set(variables) == {"PLAN", "REPLAN", "SECRET", "HOOK"}
    assert sorted(hosts) == ["b", "c"]


def test_the_addresses_of_the_page_are_those_of_the_service() -> None:
    """Every row of the table begins with an address that the API has."""
    described = {re.sub(r"\{\w+\}", "{}", path) for path in create_app(Settings()).openapi()["paths"]}
    cells = re.findall(r"^\| (`.*?`) \|", TEXT, re.MULTILINE)
    named = [re.findall(r"`(?:[A-Z]+ )?([\w{}/-]+)", cell)[0] for cell in cells]
    assert len(named) > 15
    assert [name for name in named if f"{API}/" + re.sub(r"\{\w+\}", "{}", name) not in described] == []
