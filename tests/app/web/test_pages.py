"""Pages over real services and a real database, without a browser and without a solver."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.db.engine import make_engine, make_read_session_factory, make_session_factory, transaction
from app.db.status import PlanStatus
from app.documents.cluster import ClusterDocument
from app.jobs.client import JobClient
from app.main import create_app
from app.metrics import make_metrics
from app.resources import Service
from app.serialization import jsonable
from app.services.clusters import snapshots
from app.services.planning import plans, solves
from app.settings import Settings
from app.trusted_requests import TrustedRequests
from app.web.planning.form import WORKLOAD, label
from app.web.routes import router
from solver.problem import PlanningProblem, Progress, SearchOptions
from tests.app.shared_routes import with_shared_routes
from tests.databases import begin_at_newest
from tests.plans import small_architecture, small_cluster, small_no_plan, small_plan, small_samples, small_workload

TYPED = {"sequence_length": "2048", "global_batch_sequences": "8", "context_exchange": "ring", "schedule": "1f1b"}
TYPED |= dict.fromkeys(("recompute", "sharding", "offload"), "none")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service on an empty SQLite database; queued plans wait, since nothing solves here."""
    settings = Settings(data_dir=tmp_path)
    begin_at_newest(settings)
    engine = make_engine(settings.resolved_database_url)
    yield Service(
        settings=settings,
        engine=engine,
        sessions=make_session_factory(engine),
        read_sessions=make_read_session_factory(engine),
        jobs=JobClient(settings.resolved_jobs_database_url),
        metrics=make_metrics(),
    )
    engine.dispose()


@pytest.fixture
def browser(service: Service) -> TestClient:
    """A client of the pages."""
    app = FastAPI()
    app.state.service = service
    app.include_router(router)
    app.add_middleware(TrustedRequests, hosts=())
    return TestClient(with_shared_routes(app), headers={"sec-fetch-site": "same-origin"})


@pytest.fixture
def plan_id(service: Service) -> str:
    """A plan of the small problem that waits."""
    with transaction(service.sessions) as session:
        snapshot = snapshots.store_inline(session, cluster=small_cluster(), samples=small_samples())
        problem = PlanningProblem(snapshot, small_architecture(), small_workload())
        return plans.create_plan(session, problem=problem, options=SearchOptions())


def _finish(service: Service, plan_id: str, status: PlanStatus, **end: Any) -> None:
    with transaction(service.sessions) as session:
        assert solves.finish(session, plan_id=plan_id, status=status, **end)


def _cluster_text() -> str:
    return ClusterDocument.from_cluster(small_cluster(), small_samples()).model_dump_json()


@pytest.mark.parametrize(
    "address", ["/", "/plans", "/plans/new", "/clusters", "/clusters/new", "/calibrations", "/calibrations/new"]
)
def test_pages_of_an_empty_service_invite_to_begin(browser: TestClient, address: str) -> None:
    """Nothing is stored yet, and every page says what to do."""
    answer = browser.get(address)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert '<a class="skip" href="#content">' in answer.text
    assert "<h1>" in answer.text


def test_no_page_holds_scripts_or_styles_in_line(browser: TestClient, service: Service, plan_id: str) -> None:
    """The content security policy would forbid them."""
    _finish(service, plan_id, PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
    for address in ("/", "/plans/new", f"/plans/{plan_id}"):
        text = browser.get(address).text
        assert [each for each in ("style=", "<style", "<script>", "onclick") if each in text] == []


def test_the_form_has_an_input_for_every_field_of_the_workload(browser: TestClient) -> None:
    """One that the page leaves out could not be seen when a plan is asked for again; problems call it the same."""
    text = unescape(browser.get("/plans/new").text)
    assert [each for each in WORKLOAD.inputs if f'name="{each}"' not in text or label(each) not in text] == []


def test_a_form_with_mistakes_comes_back_whole(browser: TestClient) -> None:
    """All problems are shown at once, beside their fields, and nothing typed is lost."""
    typed = {**TYPED, "cluster_text": "nodes: [", "model": "llama-3-70b", "sequence_length": "many", "effort": "7"}
    answer = browser.post("/plans/new", data=typed)
    assert answer.status_code == 422
    assert "2 things need your attention" in answer.text
    assert 'href="#sequence_length"' in answer.text
    assert 'href="#cluster_text"' in answer.text
    assert 'aria-describedby="sequence_length-hint sequence_length-wrong-1" aria-invalid="true"' in answer.text
    assert "nodes: [</textarea>" in answer.text
    assert 'value="many"' in answer.text
    assert 'value="7"' in answer.text
    assert '<option value="llama-3-70b" selected>' in answer.text


def test_an_uploaded_file_stands_in_the_box_when_the_form_comes_back(browser: TestClient) -> None:
    """A browser forgets a chosen file; the page does not forget its text."""
    files = {"cluster_file": ("c.yaml", b"name: from-a-file", "text/yaml")}
    answer = browser.post("/plans/new", data=TYPED, files=files)
    assert answer.status_code == 422
    assert "name: from-a-file</textarea>" in answer.text


def test_what_users_type_is_never_markup(browser: TestClient) -> None:
    """Text with tags in it comes back as text."""
    answer = browser.post("/plans/new", data={**TYPED, "avoid_nodes": '"><script>alert(1)</script>'})
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;alert" in answer.text


def test_garbage_of_ten_megabytes_is_refused_in_a_sentence(browser: TestClient) -> None:
    """The page stays up and says what is wrong with the file."""
    answer = browser.post("/clusters/new", files={"cluster_file": ("c.yaml", b"\xff\x00" * 5_000_000)})
    assert answer.status_code == 422
    assert "is not UTF-8 text" in answer.text


def test_a_filled_form_queues_a_plan_and_leads_to_it(browser: TestClient) -> None:
    """The plan's page shows that it waits, and reloads itself where no script runs."""
    model = ClusterDocument.from_cluster(small_cluster()).model_dump_json()
    answer = browser.post("/plans/new", data={**TYPED, "cluster_text": model, "model": "llama-3-8b"})
    assert answer.history[0].status_code == 303, answer.text
    assert "Waiting for a free solver." in answer.text
    assert '<noscript><meta http-equiv="refresh" content="3"></noscript>' in answer.text
    assert "/plans/" in browser.get("/").text


def test_a_story_is_one_click_away_until_there_is_a_plan(browser: TestClient) -> None:
    """The button of the start page queues a plan; a story that is not shipped is not found."""
    start = browser.get("/").text
    assert 'action="/plans/try/measured"' in start
    answer = browser.post("/plans/try/measured")
    assert answer.history[0].status_code == 303, answer.text
    assert "Waiting for a free solver." in answer.text
    assert "/plans/try/" not in browser.get("/").text
    assert browser.post("/plans/try/none").status_code == 404


def test_the_form_says_what_fits_before_it_is_sent(browser: TestClient, service: Service) -> None:
    """The answer, the same request for programs, and an address that fills the form again; nothing is stored."""
    cluster = ClusterDocument.from_cluster(small_cluster(), small_samples()).model_dump(mode="json")
    typed = TYPED | {"cluster_text": json.dumps(cluster), "model": "llama-3-8b", "global_batch_sequences": "16"}
    answer = browser.post("/plans/new/outlook", data=typed).text
    for words in ("It fits: about ", "before any search", "curl --fail-with-body", "service.create_plan("):
        assert words in answer
    (link,) = re.findall(r'href="(/plans/new\?cluster_text[^"]*)"', answer)
    again = browser.get(unescape(link)).text
    assert 'value="2048"' in again
    assert 'value="16"' in again
    none = browser.post("/plans/new/outlook", data=typed | {"global_batch_sequences": "many"})
    assert none.status_code == 422
    assert "It fits" not in none.text
    with service.read_sessions() as session:
        assert not plans.list_plans(session, limit=1).items


def test_forms_of_other_sites_are_refused(browser: TestClient, service: Service, plan_id: str) -> None:
    """Neither a plan nor a cancellation can be forged."""
    foreign = {"sec-fetch-site": "cross-site"}
    for address in ("/plans/new", "/clusters/new", "/calibrations/new", f"/plans/{plan_id}/cancel"):
        assert browser.post(address, headers=foreign).status_code == 403
    with service.read_sessions() as session:
        assert plans.get_plan(session, plan_id=plan_id).is_open


def test_progress_names_what_is_left_and_the_best_so_far(
    browser: TestClient, service: Service, plan_id: str
) -> None:
    """A running plan shows candidates, best, bound and gap; the script hears when it ended."""
    progress = Progress(2.0, "placement", 200, 50, 0.61, 0.59, 0.033, "tp2 pp2 dp2")
    with transaction(service.sessions) as session:
        solves.begin_attempt(session, plan_id=plan_id)
        solves.save_progress(session, plan_id=plan_id, progress=jsonable(progress))
    answer = browser.get(f"/plans/{plan_id}/progress")
    for words in ("50 of 200", "Best so far: tp2 pp2 dp2, 610.0 ms a step.", "590.0 ms", "3.30 %", 'value="0.750"'):
        assert words in answer.text
    assert "plan-finished" not in answer.headers
    assert f'action="/plans/{plan_id}/stop"' in answer.text
    assert browser.post(f"/plans/{plan_id}/stop").status_code == 200
    stopping = browser.get(f"/plans/{plan_id}/progress").text
    assert "The search ends with the best plan so far." in stopping
    assert "/stop" not in stopping
    browser.post(f"/plans/{plan_id}/cancel")
    assert browser.get(f"/plans/{plan_id}/progress").headers["plan-finished"] == "yes"
    assert "cancelled" in browser.get(f"/plans/{plan_id}").text


def test_a_finished_plan_is_shown_with_everything_it_carries(
    browser: TestClient, service: Service, plan_id: str
) -> None:
    """Degrees, proof, seats, memory, time, schedule, alternatives, warnings, provenance and downloads."""
    _finish(service, plan_id, PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
    text = browser.get(f"/plans/{plan_id}?zoom=2&part=1").text
    for heading in (
        "Who sits where",
        "Memory",
        "Time of a step",
        "Schedule",
        "Next-best alternatives",
        "When links change",
        "Provenance",
    ):
        assert f">{heading}</h2>" in text
    for words in (
        "32,768 tokens/s",
        "No plan in the search space can be more than 0.20 % better",
        "1 of the 3 directed links that the plan uses were not measured",
        "Left out: c.",
        "As fast as the plan.",
        "0123456789abcdef",
        f"/api/v1/plans/{plan_id}/exports/megatron",
        "groups stay on one leaf",
        "the plan stays ahead of the runner-up in 85 %, losing 1 % on average and 20 % at worst",
        '<td class="number">580.0 ms</td>',
    ):
        assert words in text
    assert text.count("<caption>") >= 4


def test_where_nothing_fits_the_page_says_what_would(browser: TestClient, service: Service, plan_id: str) -> None:
    """The closest candidate, by how much it misses, and remedies."""
    _finish(service, plan_id, PlanStatus.INFEASIBLE, result=jsonable(small_no_plan()))
    text = browser.get(f"/plans/{plan_id}").text
    for words in ("tp2 pp2 dp2", "3.50 GiB", "Allow full recomputation.", "Use about 5 such nodes instead of 3."):
        assert words in text


def test_the_page_of_an_ended_plan_is_made_once(
    browser: TestClient, service: Service, plan_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept as it is for the next who looks; another window of its schedule is another page."""
    _finish(service, plan_id, PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
    first = browser.get(f"/plans/{plan_id}")
    monkeypatch.setattr(plans, "get_result", None)
    again = browser.get(f"/plans/{plan_id}")
    assert (again.text, again.headers["Cache-Control"]) == (first.text, "no-store")
    monkeypatch.undo()
    assert browser.get(f"/plans/{plan_id}?zoom=2").text != first.text


def test_a_failed_search_says_why(browser: TestClient, service: Service, plan_id: str) -> None:
    """Problem and remedy as the worker wrote them."""
    error = solves.failure("The solver broke.", "Try less effort.")
    _finish(service, plan_id, PlanStatus.FAILED, error=error)
    text = browser.get(f"/plans/{plan_id}").text
    assert "The solver broke." in text
    assert "Try less effort." in text


def test_a_plan_can_be_asked_again_with_everything_filled_in(browser: TestClient, plan_id: str) -> None:
    """A cluster and a model that came with the request come back in their boxes, and are accepted again."""
    text = browser.get(f"/plans/new?again={plan_id}").text
    assert 'value="2048"' in text
    assert "two-and-a-spare" in text
    assert "&#34;layers&#34;: 4" in text


def test_an_imported_cluster_has_a_page_with_its_links(browser: TestClient) -> None:
    """Nodes with labels, the heat map with its table, and what looks odd."""
    answer = browser.post("/clusters/new", data={"cluster_text": _cluster_text()})
    assert answer.url.path == "/clusters/two-and-a-spare", answer.text
    for words in ("2 measured", "leaf=l1", "4 x H100-SXM5-80GB", "failed counts as unknown"):
        assert words in answer.text
    again = browser.post("/clusters/new", data={"cluster_text": _cluster_text()})
    assert again.status_code == 422
    assert "exists already" in again.text
    assert "/clusters/two-and-a-spare" in browser.get("/clusters").text
    assert '<option value="two-and-a-spare" selected>' in browser.get("/plans/new?cluster=two-and-a-spare").text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/plans/none", 404),
        ("/clusters/none", 404),
        ("/plans/new?again=none", 404),
        ("/static/../routes.py", 404),
        ("/static/none.css", 404),
        ("/plans?cursor=rubbish", 422),
    ],
)
def test_wrong_addresses_get_a_page(browser: TestClient, address: str, status: int) -> None:
    """A missing page is answered in words, with a way back."""
    answer = browser.get(address)
    assert answer.status_code == status
    if address != "/static/../routes.py":
        assert '<a href="/">Start page</a>' in answer.text


def test_numbers_that_are_none_get_a_page(browser: TestClient, service: Service, plan_id: str) -> None:
    """A mistyped address is refused as a page, not as JSON."""
    answer = browser.get(f"/plans/{plan_id}?zoom=wide")
    assert answer.status_code == 422
    assert "That does not fit together" in answer.text


def test_files_of_pages_are_ours_and_typed(browser: TestClient) -> None:
    """Style sheet, script and icon come with their types."""
    for name, kind in (
        ("pages.css", "text/css"),
        ("progress.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ):
        assert browser.get(f"/static/{name}").headers["content-type"].startswith(kind)


@pytest.mark.parametrize(
    ("address", "accept", "kind"),
    [
        ("/nowhere", "text/html", "text/html"),
        ("/nowhere", "*/*", "application/problem+json"),
        ("/api/v1/nowhere", "text/html", "application/problem+json"),
    ],
)
def test_only_people_at_wrong_addresses_get_a_page(tmp_path: Path, address: str, accept: str, kind: str) -> None:
    """Programs, and whoever asks the API, get problem details."""
    app = create_app(Settings(data_dir=tmp_path))
    answer = TestClient(app, base_url="http://localhost").get(address, headers={"accept": accept})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith(kind)
    assert ("There is no page at this address." in answer.text) == (kind == "text/html")


def _second(service: Service) -> str:
    with transaction(service.sessions) as session:
        snapshot = snapshots.store_inline(session, cluster=small_cluster(), samples=small_samples())
        problem = PlanningProblem(snapshot, small_architecture(), small_workload())
        return plans.create_plan(session, problem=problem, options=SearchOptions())


def test_two_plans_are_compared_at_an_address(browser: TestClient, service: Service, plan_id: str) -> None:
    """Ticked in the list, they stand side by side with what the second loses; one alone is refused in words."""
    first, second = plan_id, _second(service)
    for each in (first, second):
        _finish(service, each, PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
    text = browser.get(f"/plans/compare?plan={first}&plan={second}").text
    assert "<h1>Plans compared</h1>" in text
    assert "Its step takes as long as the plan" in text
    alone = browser.get(f"/plans/compare?plan={first}")
    assert alone.status_code == 422
    assert "Two plans are needed" in alone.text
    assert browser.get(f"/plans/compare?plan={first}&plan=none").status_code == 404
    assert f'value="{second}"' in browser.get("/plans").text


def test_a_file_is_looked_into_before_it_is_taken(browser: TestClient, service: Service, plan_id: str) -> None:
    """The page shows the text that the download has, with the options of the address; unknown formats show none."""
    _finish(service, plan_id, PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
    text = browser.get(f"/plans/{plan_id}?preview=torchrun&port=29999").text
    assert 'id="preview-text"' in text
    assert "29999" in text.partition('id="preview-text"')[2].partition("</pre>")[0]
    assert 'id="preview-text"' not in browser.get(f"/plans/{plan_id}?preview=none").text


def test_lists_and_nodes_are_searched(browser: TestClient, plan_id: str) -> None:
    """Every word has to occur; what matches nothing says so."""
    assert plan_id in browser.get("/plans?find=two-and").text
    assert plan_id not in browser.get("/plans?find=two-and+nonsense").text
    browser.post("/clusters/new", data={"cluster_text": _cluster_text()})
    found = {text: browser.get(f"/clusters/two-and-a-spare?node={text}").text for text in ("ready+L1", "l2")}
    assert found["ready+L1"].partition('id="nodes"')[2].count('<tr><th scope="row">') == 3
    assert "No node matches." in found["l2"]


def test_a_link_has_an_address_with_its_curve_and_tests(browser: TestClient) -> None:
    """From a to b as measured; a link that does not exist leaves the page as it is."""
    browser.post("/clusters/new", data={"cluster_text": _cluster_text()})
    text = browser.get("/clusters/two-and-a-spare?link=a%3Eb&flows=1&colour=share").text
    assert '<h2 id="link">Link a to b</h2>' in text
    assert "nccl-tests sendrecv" in text
    assert 'id="link"' not in browser.get("/clusters/two-and-a-spare?link=a%3Ezz&flows=x&colour=y").text
