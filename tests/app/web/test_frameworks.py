"""Frameworks that are described in forms: of a plan, and of the runs of a calibration."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.db.engine import transaction
from app.documents.calibration import CalibrationDocument
from app.documents.framework import FrameworkDescription
from app.documents.reading import parse_text, read_document
from app.resources import Service
from app.services.calibration import calibrations
from app.services.planning import plans
from cluster_models.training.frameworks import frameworks
from cluster_models.training.workload import TrainingWorkload
from tests.app.calibration_bodies import calibration_document
from tests.app.command_files import CLUSTER
from tests.app.framework_bodies import DESCRIBED, FILE, described
from tests.app.web_site import chosen, site, told, where

TYPED = {
    "cluster_text": CLUSTER,
    "model": "llama-3-8b",
    "sequence_length": "2048",
    "global_batch_sequences": "8",
    "recompute": "none",
    "sharding": "none",
    "offload": "none",
    "context_exchange": "ring",
    "schedule": "1f1b",
}


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[tuple[Service, TestClient]]:
    """A service without anybody who solves, and a client of its pages."""
    with site(tmp_path) as found:
        yield found


def asked(service: Service, address: str) -> TrainingWorkload:
    """The workload of the plan at an address."""
    with service.read_sessions() as session:
        return plans.get_problem(session, plan_id=address.rpartition("/")[2]).workload


def boxed(page: str, name: str) -> str:
    """Text in a large box."""
    found = re.search(rf'<textarea id="{name}"[^>]*>([^<]*)</textarea>', page)
    assert found is not None, name
    return html.unescape(found[1])


def store(service: Service) -> None:
    """A calibration called ``slow`` that describes the framework."""
    data = calibration_document().model_dump(mode="json") | {"descriptions": [DESCRIBED]}
    with transaction(service.sessions) as session:
        calibrations.create_calibration(session, document=CalibrationDocument.model_validate(data))


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_framework_in_the_box_or_a_file_takes_the_place_of_the_list(
    pages: tuple[Service, TestClient], *, uploaded: bool
) -> None:
    """The plan that is asked for is that of the description; asked for again, the box holds all of it."""
    service, browser = pages
    typed = {**TYPED, "framework": "nemo-25.04"} | ({} if uploaded else {"framework_text": FILE})
    files = {"framework_file": ("ours.yaml", FILE, "text/yaml")} if uploaded else None
    address = where(browser.post("/plans/new", data=typed, files=files))
    assert asked(service, address).framework == described()
    again = browser.get("/plans/new", params={"again": address.rpartition("/")[2]}).text
    text = boxed(again, "framework_text")
    document = read_document(FrameworkDescription, parse_text(text, what="framework"), what="framework")
    assert document.to_framework() == described()
    assert chosen(again, "framework") == DESCRIBED["like"]
    assert asked(service, where(browser.post("/plans/new", data={**TYPED, "framework_text": text}))).framework == (
        described()
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (FILE + "overlap_tensr: true", "overlap_tensr: unknown field (got True); did you mean 'overlap_tensor'?"),
        (FILE.replace("megatron", "megatrom"), "framework.like: is not a shipped framework generation"),
        ("name: [", "is not valid YAML"),
    ],
)
def test_problems_stand_at_the_box(pages: tuple[Service, TestClient], text: str, sentence: str) -> None:
    """With everything typed in place, and the part of the form open."""
    answer = pages[1].post("/plans/new", data={**TYPED, "framework_text": text})
    assert answer.status_code == 422
    assert 'href="#framework_text"' in answer.text
    assert sentence in told(answer.text)
    assert boxed(answer.text, "framework_text") == text
    assert re.search(r"<details open>\s*<summary>Describe a framework", answer.text)


def test_what_a_calibration_describes_is_in_the_list(pages: tuple[Service, TestClient]) -> None:
    """By its name, together with that calibration; without it the name is unknown, and stays chosen."""
    service, browser = pages
    store(service)
    assert "ours (described by the calibration slow)" in browser.get("/plans/new").text
    typed = {**TYPED, "framework": "ours"}
    address = where(browser.post("/plans/new", data={**typed, "calibration": "slow"}))
    assert asked(service, address).framework == described()
    with transaction(service.sessions) as session:
        calibrations.delete_calibration(session, name="slow")
    answer = browser.post("/plans/new", data=typed)
    assert answer.status_code == 422
    assert 'href="#framework"' in answer.text
    assert chosen(answer.text, "framework") == "ours"


def test_every_shipped_generation_is_linked_as_a_file_to_start_from(pages: tuple[Service, TestClient]) -> None:
    """A downloaded file can be put into the box as it is."""
    _, browser = pages
    links = re.findall(r'<a href="(/frameworks/[^"]+/file)" download>', browser.get("/plans/new").text)
    assert len(links) == len(frameworks())
    text = browser.get(links[0]).text
    document = read_document(FrameworkDescription, parse_text(text, what="framework"), what="framework")
    assert document.to_framework().like == next(reversed(frameworks()))
    assert browser.get("/frameworks/abacus/file").status_code == 404


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ({"frameworks_text": FILE}, "are those of runs"),
        ({"frameworks_text": "name: [", "runs_text": "gpu\n"}, "is not valid YAML"),
        ({"frameworks_text": "- {name: a}", "runs_text": "gpu\n"}, "frameworks[0].like: is missing"),
        ({"frameworks_text": "{name: a, like: b}", "runs_text": "gpu\n"}, "frameworks[0].like: is not a shipped"),
    ],
)
def test_problems_of_described_runs_stand_at_their_box(
    pages: tuple[Service, TestClient], sent: dict[str, str], sentence: str
) -> None:
    """A description or a list of them; what is wrong is shown there."""
    answer = pages[1].post("/calibrations/new", data={"name": "x", **sent})
    assert answer.status_code == 422
    assert 'href="#frameworks_text"' in answer.text
    assert sentence in told(answer.text)
