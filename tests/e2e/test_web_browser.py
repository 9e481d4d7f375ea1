"""The pages in a real browser over a real server: by keyboard alone, and with scripts off."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Request, sync_playwright

from app.documents.cluster import ClusterDocument
from tests.app.api_client import plan_body
from tests.plans import small_cluster, small_samples
from tests.routing_counts import dump, skewed

REPOSITORY = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("web_stand_in.py")
MOST_TABS = 80
PATIENCE_MS = 120_000
"""The first use of a kernel compiles it, on a machine that does much else."""


@dataclass(frozen=True)
class Site:
    """A running server; the search ends once ``gate`` is there."""

    address: str
    gate: Path


@dataclass
class Watched:
    """Actions of a browser besides showing pages; ``documents`` are the pages themselves."""

    documents: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)

    def note_request(self, sent: Request) -> None:
        """Keep the address of a request."""
        self.requests.append(sent.url)
        if sent.is_navigation_request():
            self.documents.add(sent.url)

    def unexpected(self) -> list[tuple[str, str]]:
        """Complaints, less the note that a page itself came with a status such as 404."""
        return [
            (text, url)
            for text, url in self.complaints
            if not (text.startswith("Failed to load resource") and url in self.documents)
        ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with a solver whose end the tests decide."""
    folder = tmp_path_factory.mktemp("site")
    command = json.dumps([sys.executable, str(STAND_IN), str(folder / "gate")])
    with _serving(folder, MESHWRIGHT_SOLVE_COMMAND=command) as address:
        yield Site(address, folder / "gate")


@contextmanager
def _serving(folder: Path, **settings: str) -> Iterator[str]:
    """The address of a server process with its own data folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "MESHWRIGHT_DATA_DIR": str(folder / "data"),
        "MESHWRIGHT_PORT": str(port),
        "PYTHONPATH": str(REPOSITORY),
        **settings,
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "app.main"], env=environment, cwd=folder, stdout=log, stderr=log
        )
    try:
        _wait_for(server, f"http://127.0.0.1:{port}/healthz", folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def site(server: Site) -> Iterator[Site]:
    """The server with searches that go on until the test opens the gate."""
    server.gate.unlink(missing_ok=True)
    yield server
    server.gate.touch()


def _wait_for(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text()
        try:
            with urlopen(address, timeout=2):  # noqa: S310 - our own server
                return
        except (URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    pytest.fail(f"the server does not answer: {log.read_text()}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium of this machine; one without windows takes a third of the processor time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"no browser on PATH (looked for {', '.join(names)})")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(params=[True, False], ids=["with scripts", "without scripts"])
def page(request: pytest.FixtureRequest, chromium: Browser, site: Site) -> Iterator[Page]:
    """A page that must ask no other host for anything and complain of nothing."""
    context = chromium.new_context(java_script_enabled=request.param)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    watched = Watched()
    page.on("request", watched.note_request)
    page.on("console", lambda message: watched.complaints.append((message.text, message.location["url"])))
    page.on("pageerror", lambda error: watched.complaints.append((str(error), page.url)))
    yield page
    context.close()
    assert [url for url in watched.requests if not url.startswith(site.address)] == []
    assert watched.unexpected() == []


def _tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus, as somebody without a mouse would."""
    for _ in range(MOST_TABS):
        if page.locator(f"{selector}:focus").count():
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} cannot be reached with the Tab key")


def _tab_back_to(page: Page, selector: str) -> None:
    """The same backwards."""
    for _ in range(MOST_TABS):
        if page.locator(f"{selector}:focus").count():
            return
        page.keyboard.press("Shift+Tab")
    pytest.fail(f"{selector} cannot be reached with Shift and the Tab key")


def test_from_a_pasted_cluster_to_the_plan_by_keyboard(page: Page, site: Site) -> None:
    """Start page, form, progress, plan: every step with keys only, with scripts and without."""
    cluster = ClusterDocument.from_cluster(small_cluster(), small_samples()).model_dump_json()
    page.goto(site.address)
    page.keyboard.press("Tab")
    assert page.locator("a.skip:focus").count() == 1
    _tab_to(page, "main a.button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/plans/new")
    for selector, text in (
        ("#cluster_text", cluster),
        ("#model", "llama-3-8b"),
        ("#sequence_length", "2048"),
        ("#global_batch_sequences", "8"),
    ):
        _tab_to(page, selector)
        page.keyboard.type(text) if selector == "#model" else page.keyboard.insert_text(text)
    _tab_to(page, "main form button")
    page.keyboard.press("Enter")

    page.get_by_text("Best so far: tp2 pp2 dp2, 610.0 ms a step.").wait_for()
    assert page.get_by_text("50 of 200").is_visible()
    assert page.get_by_role("button", name="Cancel the search").is_visible()

    site.gate.touch()
    page.get_by_role("heading", name="Who sits where").wait_for()
    assert page.get_by_text("32,768 tokens/s", exact=True).is_visible()
    assert page.get_by_text("No plan in the search space can be more than 0.20 % better").is_visible()
    seats = page.get_by_role("region", name="Who sits where, table")
    assert seats.get_by_role("columnheader").all_inner_texts() == ["Stage", "Replica 0", "Replica 1"]
    assert "rank 0\N{EN DASH}1" in seats.inner_text()
    pictures = ("The step on one axis", "Racks", "Parts of", "Memory of each stage", "Predicted schedule")
    assert [page.get_by_role("img", name=name).count() for name in pictures] == [1] * len(pictures)
    _tab_to(page, "#zoom")
    page.keyboard.press("ArrowDown")
    _tab_to(page, "#schedule ~ form button")
    page.keyboard.press("Enter")
    page.wait_for_url("**zoom=2**")
    page.get_by_role("link", name="later").wait_for()
    if page.locator(".sorts").count():  # scripts run
        page.get_by_role("region", name="Predicted schedule").focus()
        page.keyboard.press("+")
        page.wait_for_url("**zoom=4&part=0**")
        page.keyboard.press("ArrowRight")
        page.wait_for_url("**zoom=4&part=1**")
        assert page.get_by_role("region", name="Predicted schedule").evaluate("it => it === document.activeElement")


def test_a_search_is_cancelled_by_keyboard(page: Page, site: Site) -> None:
    """The button stops the search, and the page says so."""
    cluster = ClusterDocument.from_cluster(small_cluster(), small_samples()).model_dump_json()
    page.goto(f"{site.address}/plans/new")
    page.locator("#cluster_text").fill(cluster)
    page.locator("#model").select_option("llama-3-8b")
    page.locator("#sequence_length").fill("2048")
    page.locator("#global_batch_sequences").fill("8")
    page.get_by_role("button", name="Make the plan").press("Enter")
    _tab_to(page, "button.danger")
    page.keyboard.press("Enter")
    page.get_by_text("The search was cancelled before it had a result.").wait_for()


def test_mistakes_are_linked_to_their_fields(page: Page, site: Site) -> None:
    """The summary's link moves the focus to the field, which names its problem."""
    page.goto(f"{site.address}/plans/new")
    page.locator("#sequence_length").fill("many")
    page.get_by_role("button", name="Make the plan").press("Enter")
    page.get_by_role("alert").get_by_role("link", name="Sequence length").press("Enter")
    wrong = page.locator("#sequence_length")
    assert wrong.input_value() == "many"
    assert wrong.get_attribute("aria-invalid") == "true"
    assert page.url.endswith("#sequence_length")


def test_dropped_files_become_a_cluster(page: Page, site: Site) -> None:
    """Drop, see what was understood and refused, answer by keyboard, store, and see the cluster."""
    name = f"dropped-{uuid4().hex[:8]}"
    nodes = "".join(f"NodeName={node} Arch=x86_64\n   Gres=gpu:h100:8(S:0-1)\n   State=IDLE\n\n" for node in "ab")
    table = (
        "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_gbs,status\n"
        "a,b,8,alltoall,268435456,41.5,ok\na,b,8,alltoall,1073741824,fast,ok\n"
    )
    files = {"nodes.txt": nodes, "<b>pairs.csv": table, "lunch.txt": "see you at noon\n"}
    page.goto(f"{site.address}/clusters")
    page.get_by_role("link", name="From files of your tools").press("Enter")
    page.get_by_label("Files of any tool").set_input_files(
        [FilePayload(name=file, mimeType="text/plain", buffer=text.encode()) for file, text in files.items()]
    )
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Look at the files").press("Enter")
    page.get_by_role("heading", name="One answer is needed").wait_for()
    cards = {
        card.get_by_role("heading").inner_text(): card.locator(".badge").first.inner_text()
        for card in page.locator(".file").all()
    }
    assert cards == {"lunch.txt": "not read", "<b>pairs.csv": "read in part", "nodes.txt": "understood"}
    assert page.get_by_role("button", name="Store").count() == 0
    _tab_to(page, "fieldset.needed input[type=text]")
    page.keyboard.insert_text("8 x 400 infiniband")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Ready to store").wait_for()
    assert page.get_by_text(f"“{name}” would have 2 nodes; the files give 1 measurement.").is_visible()
    page.wait_for_load_state()
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Store").first.press("Enter")
    page.get_by_text("Stored: 1 measurement added.").wait_for()
    assert page.get_by_role("heading", name=name).is_visible()
    page.get_by_role("link", name="What to measure next").press("Enter")
    page.get_by_role("heading", name="What to measure next").wait_for()


def test_a_map_is_rebalanced_by_keyboard(page: Page, site: Site) -> None:
    """From the page of experts: a mistake keeps map and counts, then moves, and the new map as a file."""
    running = [[slot % 16 for slot in range(24)] for _ in range(3)]
    page.goto(f"{site.address}/experts")
    page.get_by_role("link", name="Rebalance a running map").press("Enter")
    page.get_by_label("File of the map").set_input_files(
        FilePayload(name="map.json", mimeType="", buffer=json.dumps({"physical_to_logical_map": running}).encode())
    )
    page.get_by_label("Files of counts").set_input_files(
        FilePayload(name="<b>now.json", mimeType="", buffer=dump(skewed(3, 16, 2)))
    )
    page.get_by_text("What moves cost and steps take").press("Enter")
    for name, text in (("Bytes of one expert", "1e6"), ("Time of a layer, ms", "1"), ("Balance to reach", "0.9")):
        page.get_by_label(name).fill(text)
    page.get_by_role("button", name="Find the moves").press("Enter")
    page.get_by_role("alert").get_by_role("link", name="Expert ranks").press("Enter")
    page.keyboard.press("Tab")
    _tab_back_to(page, "#ranks")
    page.keyboard.insert_text("4")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="What to do").wait_for()
    moves = page.get_by_role("region", name="Moves by layer, table")
    assert {row.get_by_role("rowheader").inner_text() for row in moves.locator("tbody tr").all()} <= {"0", "1", "2"}
    assert page.get_by_role("rowheader", name="<b>now").count() == 1
    assert page.get_by_label("Balance to reach").input_value() == "0.9"
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON").press("Enter")
    new = json.loads(Path(download.value.path()).read_text())["physical_to_logical_map"]
    assert [sorted(set(row)) for row in new] == [list(range(16))] * 3
    assert new != running


def test_a_failure_is_answered_by_keyboard(page: Page, site: Site) -> None:
    """A plan runs as a job, its node fails, the safe answer is approved and carried out: with keys, on a phone."""
    page.set_viewport_size({"width": 390, "height": 800})
    name = f"failing-{uuid4().hex[:8]}"
    cluster = ClusterDocument.from_cluster(small_cluster(), small_samples()).model_dump(mode="json")
    assert page.request.post(f"{site.address}/api/v1/clusters", data=cluster | {"name": name}).ok
    body = plan_body(cluster=name)
    asked = page.request.post(f"{site.address}/api/v1/plans", data=body).json()
    site.gate.touch()
    page.goto(f"{site.address}/plans/{asked['id']}")
    page.get_by_role("link", name="Run this plan").press("Enter")
    page.get_by_label("Name", exact=True).fill("pretrain")
    page.get_by_label("How far it is").select_option("applied")
    page.get_by_role("button", name="Run this plan").press("Enter")
    page.get_by_text("Nothing to do: it runs.").wait_for()

    page.goto(f"{site.address}/clusters/{name}/failures")
    page.get_by_label("c", exact=True).press("Space")
    page.get_by_role("button", name="Store the spares").press("Enter")
    page.get_by_text("Stored: the spares are as ticked.").wait_for()
    page.get_by_role("button", name="Report", exact=True).press("Enter")
    page.get_by_role("alert").get_by_role("link", name="Node").press("Enter")
    page.locator("#node").fill("a")
    page.locator("#node").press("Enter")
    page.get_by_role("heading", name="A safe answer is ready").wait_for()
    assert page.get_by_text("The search begins in").is_visible()
    pictures = ("Who sits where before and after", "Throughput before and after", "How long jobs stand still")
    assert [page.get_by_role("img", name=name).count() for name in pictures] == [1] * len(pictures)
    assert page.locator("[hidden]:visible").count() == 0
    page.wait_for_load_state()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    _tab_to(page, "button[value=approve_safe]")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Carry it out").wait_for()
    page.get_by_text("Files to start it").press("Enter")
    with page.expect_download() as download:
        page.get_by_role("link", name="Hosts with slots in rank order").press("Enter")
    assert "a" not in [line.split()[0] for line in Path(download.value.path()).read_text().splitlines()]
    _tab_back_to(page, "button[value=applied]")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Nothing left to do").wait_for()
    page.goto(f"{site.address}/clusters/{name}")
    assert page.get_by_role("listitem").filter(has_text="failed").first.is_visible()


@pytest.mark.slow
def test_a_shipped_example_becomes_a_proven_plan_in_a_few_clicks(chromium: Browser, tmp_path: Path) -> None:
    """The real solver behind the real service: example, plan, certificate, a download that names every host."""
    with _serving(tmp_path) as address, chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{address}/plans/new")
        page.get_by_role("link", name="Llama 3 8B on two nodes").click()
        page.get_by_role("button", name="Make the plan").click()
        page.get_by_role("heading", name="How good is this plan?").wait_for()
        assert page.get_by_text("Why it lost").is_visible()
        seats = page.get_by_role("region", name="Who sits where, table").inner_text()
        hostfile = page.get_by_role("link", name="Hosts with slots in rank order").get_attribute("href")
        hosts = [line.split()[0] for line in page.request.get(f"{address}{hostfile}").text().splitlines()]
        assert hosts
        assert [host for host in hosts if host not in seats] == []
