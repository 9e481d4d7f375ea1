"""Files of tools on the pages: what was understood, what is asked, and storing it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from app.imports.sources import SentFile
from app.settings import Role
from app.web.clusters.packed_files import check_size, pack, unpack
from cluster_models.errors import InvalidInput
from tests.app.api_client import API, running
from tests.readers.real_files import DATA

PAGE: Final = "/clusters/import"
BROWSER: Final = {"Accept": "text/html"}
NODES: Final = "".join(
    f"NodeName={name} Arch=x86_64 CoresPerSocket=48\n   Gres=gpu:h100:8(S:0-1)\n   State=IDLE ThreadsPerCore=2\n\n"
    for name in ("n1", "n2")
)
HEAD: Final = "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_gbs,status\n"
TABLE: Final = HEAD + "n1,n2,8,alltoall,268435456,41.5,ok\nn1,n2,8,alltoall,1073741824,44.25,ok\n"
TOPOLOGY: Final = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-47\nGPU1\tNV18\t X \t0-47\n"
ASKED: Final = {"Network cards of each node": "8 x 400 infiniband"}
GIVEN: Final = "Network cards of all nodes"
HOSTILE: Final = "<script>alert(1)</script>"


class _Form(HTMLParser):
    """Fields that a browser would send of a report's form, untouched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: list[tuple[str, str]] = []
        self._select = ""
        self.labels: dict[str, str] = {}
        self._label = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if tag == "label":
            self._label = said.get("for", "")
        elif tag == "select":
            self._select = said["name"]
        elif tag == "option" and "selected" in said and self._select:
            self.values.append((self._select, said["value"]))
        elif tag == "input" and (said.get("type") not in ("file", "checkbox") or "checked" in said):
            self.values.append((said["name"], said.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""
        elif tag == "label":
            self._label = ""

    def handle_data(self, data: str) -> None:
        if self._label:
            self.labels[data.strip()] = self._label


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application whose solver is a stand-in."""
    with running(tmp_path, f"sqlite:///{tmp_path / 'meshwright.sqlite'}", role=Role.WEB) as client:
        client.headers.update(BROWSER)
        yield client


def _look(client: TestClient, cluster: str = "lab", pasted: str = "", **files: str | bytes) -> str:
    """The report of these files."""
    sent = [("files", (name, data if isinstance(data, bytes) else data.encode())) for name, data in files.items()]
    answer = client.post(PAGE, data={"cluster": cluster, "pasted": pasted, "do": "look"}, files=sent or None)
    assert answer.status_code == 200, answer.text
    return answer.text


def _again(
    client: TestClient,
    page: str,
    typed: Mapping[str, str] | None = None,
    do: str = "look",
    boxes: Sequence[tuple[str, str]] = (),
) -> Any:
    """The form of a report sent back with answers by their labels."""
    form = _Form(page)
    answers = {form.labels[label]: text for label, text in (typed or {}).items()}
    values: dict[str, list[str]] = {}
    for name, value in [*form.values, *boxes]:
        values.setdefault(name, []).append(value)
    values |= {name: [text] for name, text in answers.items()}
    # a form of a browser is multipart whether or not it holds files
    parts = [(name, (None, value)) for name, found in values.items() for value in found]
    return client.post(PAGE, files=[*parts, ("do", (None, do))])


def _understood(page: str) -> dict[str, str]:
    """State by file."""
    found = re.findall(r'<h3>([^<]*)</h3>\s*<span class="badge \w+">([^<]*)</span>', page)
    return {html.unescape(name): state for name, state in found}


def test_the_empty_page_says_what_can_be_dropped(client: TestClient) -> None:
    """Many files at once, a box for pasted text, the stored clusters, and the kinds that are known."""
    page = client.get(f"{PAGE}?cluster=lab").text
    assert '<input class="drop" id="files" name="files" type="file" multiple' in page
    assert 'value="lab"' in page
    for words in ("nvidia-smi topo -m", "iblinkinfo", "Nothing is added to a cluster yet"):
        assert words in page
    for address in ("/", "/clusters"):
        assert f'href="{PAGE}"' in client.get(address).text


def test_from_files_to_a_stored_cluster(client: TestClient) -> None:
    """A fact that no file has is asked for; answered, it is stored; and the cluster's page shows it."""
    page = _look(client, nodes=NODES, table=TABLE)
    assert "One answer is needed" in page
    assert 'value="store"' not in page
    assert _understood(page) == {"nodes": "understood", "table": "understood"}
    page = _again(client, page, ASKED).text
    assert "Ready to store" in page
    assert client.get(f"{API}/clusters/lab").status_code == 404
    stored = _again(client, page, do="store")
    assert stored.url.path == "/clusters/lab", stored.text
    assert "Stored: 2 measurements added." in stored.text
    nodes = client.get(f"{API}/clusters/lab").json()["cluster"]["nodes"]
    assert [(node["name"], node["gpu_count"], node["nics"]["count"]) for node in nodes] == [
        ("n1", 8, 8),
        ("n2", 8, 8),
    ]
    for words in (f"{PAGE}?cluster=lab", "/clusters/lab/measure"):
        assert f'href="{words}"' in stored.text


def test_the_same_files_again_change_nothing(client: TestClient) -> None:
    page = _again(client, _look(client, nodes=NODES, table=TABLE), ASKED).text
    assert "added=2" in str(_again(client, page, do="store").url)
    page = _look(client, nodes=NODES, table=TABLE)
    assert "2 measurements are stored already." in page
    assert "added=0" in str(_again(client, page, do="store").url)
    assert client.get(f"{API}/clusters/lab").json()["version"] == 1


def test_an_answer_may_be_taken_back(client: TestClient) -> None:
    """Answers stay in the form, to be changed, as long as the files do."""
    page = _again(client, _look(client, nodes=NODES, table=TABLE), ASKED).text
    assert GIVEN in page
    page = _again(client, page, {GIVEN: "4 x 200 ethernet"}).text
    assert "4 x 200 Gb/s ethernet" in page
    page = _again(client, page, {GIVEN: ""}).text
    assert "One answer is needed" in page


def test_a_file_without_a_name_is_asked_for_its_node(client: TestClient) -> None:
    """A list of the nodes there are, the word for all of them, and a field for another name."""
    page = _look(client, nodes=NODES, table=TABLE, topo=TOPOLOGY)
    assert "Which node is topo from?" in page
    assert '<option value="*">any of them: all nodes look like this</option>' in page
    page = _again(client, page, {"Which node is topo from?": "n2"}).text
    assert "topo is from" in page
    assert _Form(page).labels["topo is from"] in dict(_Form(page).values)


def test_files_that_differ_are_settled_with_a_choice(client: TestClient) -> None:
    """Each value with the place that says it; the choice decides, and can be changed after."""
    page = _look(client, nodes=NODES, table=TABLE, topo=TOPOLOGY)
    page = _again(client, page, ASKED | {"Which node is topo from?": "n2"}).text
    assert "8 (nodes:5; used unless you choose)" in page
    assert '<option value="2">2 (topo:1)</option>' in page
    page = _again(client, page, {"Number of GPUs of n2": "2"}).text
    assert "used unless you choose" not in page
    _again(client, page, do="store")
    nodes = client.get(f"{API}/clusters/lab").json()["cluster"]["nodes"]
    assert [node["gpu_count"] for node in nodes] == [8, 2]


def test_a_host_that_a_cluster_does_not_have_is_new_or_another_name(client: TestClient) -> None:
    """Which node it is has to be said once: its page shows the name, and the next files know it."""
    page = _look(client, nodes=NODES, table=TABLE)
    _again(client, _again(client, page, ASKED).text, do="store")
    table = TABLE.replace("n1,n2", "login7,n2").replace("41.5", "39")
    page = _look(client, table=table)
    assert "Network cards of each node" in page
    page = _again(client, page, {"Is login7 a new node?": "n1"}).text
    assert "Ready to store" in page
    assert "login7" in _again(client, page, do="store").text
    assert "Is login7 a new node?" not in _look(client, table=table)


def test_an_answer_that_cannot_be_read_is_said_at_its_field(client: TestClient) -> None:
    """It stays as typed, nothing is stored, and the others stand."""
    log = (
        "# Collective test starting: all_reduce_perf\n"
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20\n"
        "      1048576   262144 float sum -1 100 10.5 19.6 0 100 10.5 19.6 0\n"
    )
    page = _look(client, nodes=NODES, table=TABLE, log=log)
    label = next(each for each in _Form(page).labels if each.startswith("On which"))
    answer = _again(client, page, {label: "n[1-"})
    assert answer.status_code == 422
    assert "An answer cannot be read" in answer.text
    assert "a bracket does not close" in answer.text
    assert 'value="n[1-"' in answer.text
    assert 'aria-invalid="true"' in answer.text


def test_answers_changed_with_the_last_click_are_looked_at_first(client: TestClient) -> None:
    """The files would not be stored as the page showed them: it says so, and stores nothing."""
    page = _again(client, _look(client, nodes=NODES, table=TABLE), ASKED).text
    answer = _again(client, page, {GIVEN: "4 x 200 ethernet"}, "store")
    assert answer.status_code == 409
    assert "Nothing was stored yet" in answer.text
    assert client.get(f"{API}/clusters/lab").status_code == 404
    assert _again(client, answer.text, do="store").url.path == "/clusters/lab"


def test_files_can_be_left_out_and_added(client: TestClient) -> None:
    """The page carries the files on, so that one of another cluster needs no new start."""
    page = _look(client, nodes=NODES, table=TABLE, other=TABLE.replace("n1,n2", "x1,x2"))
    number = re.search(r'name="leave" value="(\d+)">Leave out<span class="unseen"> other<', page)
    assert number is not None
    page = _again(client, page, boxes=[("leave", number[1])]).text
    assert set(_understood(page)) == {"nodes", "table"}
    form = [(name, (None, value)) for name, value in _Form(page).values]
    page = client.post(PAGE, files=[*form, ("files", ("nodes", NODES.encode()))]).text
    assert set(_understood(page)) == {"nodes", "nodes (2)", "table"}


def test_answers_to_a_file_that_was_left_out_go_with_it(client: TestClient) -> None:
    """The rest can be stored: nothing on the page would take the answer back."""
    topo = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-9\nGPU1\tNV18\t X \t0-9\n"
    page = _again(client, _look(client, nodes=NODES, table=TABLE, topo=topo), ASKED).text
    form = [*_Form(page).values, ("about-900", '["hosts", ["topo"]]'), ("value-900", "n1")]
    number = re.search(r'name="leave" value="(\d+)">Leave out<span class="unseen"> topo<', page)
    assert number is not None
    sent = [(name, (None, value)) for name, value in [*form, ("leave", number[1])]]
    page = client.post(PAGE, files=sent).text
    assert set(_understood(page)) == {"nodes", "table"}
    assert "Ready to store" in page


def test_figures_that_would_mislead_are_used_only_if_accepted(client: TestClient) -> None:
    """One rank exchanges nothing: its file is marked, and the box says what ticking it does."""
    rows = HEAD + "".join(f"n1,n2,8,alltoall,{size},0.9,ok\n" for size in (268435456, 1073741824))
    page = _again(client, _look(client, nodes=NODES, table=rows), ASKED).text
    assert _understood(page)["table"] == "not used"
    assert "tcp" in page.casefold()
    key = re.search(r'name="accepted" value="([^"]+)"', page)
    assert key is not None
    page = _again(client, page, boxes=[("accepted", html.unescape(key[1]))]).text
    assert _understood(page)["table"] == "worth a look"
    assert "the files give 2 measurements" in page
    assert "the files give 0 measurements" in _again(client, page.replace(" checked", "")).text


def test_what_files_hold_is_never_markup(client: TestClient) -> None:
    """Names of files, of nodes and of clusters, lines and figures come back as text."""
    name = f"{HOSTILE}.csv"
    table = (
        HEAD + f"n1,{HOSTILE},8,alltoall,268435456,{HOSTILE},ok\n{HOSTILE}\nn1,n2,8,alltoall,268435456,41.5,ok\n"
    )
    page = _look(client, cluster=HOSTILE, pasted=f"{HOSTILE}\n", **{name: table, "nodes": NODES})
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "<script>alert" not in _again(client, page, boxes=[("about-9", '["hosts", ["' + HOSTILE + '"]]')]).text


def test_quotes_and_line_ends_in_names_do_not_lose_an_answer(client: TestClient) -> None:
    """The subject of an answer travels as a value: browsers rewrite such characters in the names of fields."""
    name = 'a "b"\\c%22.txt'
    page = client.post(
        PAGE,
        data={"cluster": "lab"},
        files=[("files", (name, TOPOLOGY.encode())), ("files", ("n", NODES.encode()))],
    ).text
    label = next(each for each in _Form(page).labels if each.startswith("Which node is"))
    page = _again(client, page, {label: "n1"}).text
    assert "Which node is" not in page


def test_three_hundred_refusals_stay_readable(client: TestClient) -> None:
    """The first few are seen at once, some more behind a click, and the rest is counted."""
    bad = "".join(f"n1,n2,8,alltoall,{size},fast,ok\n" for size in range(1000, 1300))
    page = _look(client, nodes=NODES, table=TABLE + bad)
    assert _understood(page)["table"] == "read in part"
    shown = re.search(r"and (\d+) more refused", page)
    assert shown is not None
    assert int(shown[1]) >= 100
    assert page.count("cannot be read") + page.count("fast") < 200
    assert len(page) < 200_000


def test_ten_thousand_samples_make_no_long_page(client: TestClient) -> None:
    """Figures are counted; nodes beyond the first fifty, too."""
    pairs = [(a, b) for a in range(100) for b in range(a)]
    rows = "".join(f"m{a},m{b},8,alltoall,{2**size},41.5,ok\n" for a, b in pairs for size in (28, 30))
    page = _look(client, table=HEAD + rows)
    assert "<dd>9,900</dd>" in page
    assert "and 50 more nodes." in page
    assert len(page) < 400_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cluster": "lab"}, "are missing; choose some, or paste output"),
        ({"cluster": "", "pasted": "text"}, "is missing; name the cluster"),
        ({"cluster": "lab", "carried": "AAAA"}, "did not come back whole"),
        ({"cluster": "lab", "carried": "no base64!"}, "did not come back whole"),
    ],
)
def test_a_form_that_holds_nothing_to_look_at_comes_back(
    client: TestClient, values: dict[str, str], words: str
) -> None:
    """With what is missing said at its field."""
    answer = client.post(PAGE, data=values)
    assert answer.status_code == 422
    assert words in answer.text


def test_files_of_no_use_are_refused_one_by_one(client: TestClient) -> None:
    """A picture, a program and a note: each with its reason, and nothing to store."""
    page = _look(client, picture=b"\x89PNG\xff\xfe\xfd\xfc\x80\x81", note="see you at lunch\n")
    assert _understood(page) == {"note": "not read", "picture": "not read"}
    assert "Nothing can be stored yet" in page
    assert 'value="store"' not in page


def test_what_is_too_large_is_said_on_a_page(client: TestClient) -> None:
    """A person who drops too much gets a sentence, a program problem details."""
    sent = {"files": ("big.log", b"x" * 2_100_000)}
    answer = client.post(PAGE, data={"cluster": "lab"}, files=sent)
    assert answer.status_code == 413
    assert "Send files in several parts" in answer.text
    answer = client.post(PAGE, data={"cluster": "lab"}, files=sent, headers={"Accept": "*/*"})
    assert answer.headers["content-type"] == "application/problem+json"


def test_forms_of_other_sites_are_refused(client: TestClient) -> None:
    """Looking costs time, storing changes a cluster: neither can be forged."""
    files = {"files": ("nodes", NODES.encode())}
    answer = client.post(PAGE, data={"cluster": "lab"}, files=files, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403


@given(
    st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=50), st.none() | st.text(max_size=5)), max_size=5)
)
def test_carried_files_come_back_as_they_were(files: list[tuple[str, bytes, str | None]]) -> None:
    sent = tuple(SentFile(*file) for file in files)
    assert unpack(pack(sent)) == sent


@given(st.text(max_size=100) | st.binary(max_size=100).map(lambda data: data.hex()))
def test_a_damaged_field_is_refused_in_a_sentence(text: str) -> None:
    """Whatever comes back in its place; nothing else is raised."""
    with pytest.raises(InvalidInput, match="did not come back whole"):
        unpack(text)


def test_files_beyond_what_the_next_form_can_bring_are_refused() -> None:
    files = [SentFile("a.zip", bytes(range(256)) * 40)]
    check_size(files, pack(files), 10_000)
    with pytest.raises(InvalidInput, match="as the page would carry them"):
        check_size(files, "x" * 10_001, 10_000)


def test_every_real_file_has_a_card(client: TestClient) -> None:
    """All of them in one upload: each is shown, and what is refused has its reason."""
    folder = DATA / "topology"
    paths = sorted(path for path in folder.glob("*/*") if path.is_file())
    if not paths:
        pytest.skip("the files are not here")
    files = [("files", (path.name, path.read_bytes())) for path in paths]
    page = client.post(PAGE, data={"cluster": "all"}, files=files).text
    assert [path.name for path in paths if path.name not in page] == []
    assert f"and {len(paths) - 60} more files" in page


def test_files_are_kept_where_the_name_is_missing(client: TestClient) -> None:
    """The form comes back with them, and they are looked at once there is a name, without being chosen again."""
    files = [("files", ("nodes.txt", NODES.encode(), "text/plain"))]
    again = client.post(PAGE, files=files, data={"cluster": "", "do": "look"}, headers=BROWSER)
    assert again.status_code == 422
    assert "1 file is kept: nodes.txt" in again.text
    carried = dict(_Form(again.text).values)["carried"]
    looked = client.post(PAGE, data={"cluster": "kept", "carried": carried, "do": "look"}, headers=BROWSER)
    assert "nodes.txt" in looked.text
    assert "understood" in looked.text
