"""Recognition of formats."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.frame.facts import WiringFact
from readers.frame.findings import refusal
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source
from readers.registry import _NO_DIGITS, FORMATS, _of_shapes, _word_of, read, recognise
from tests.readers.real_files import source_of

seen: list[tuple[str, list[int]]] = []


def made(name: str, begins: str, *, flags: int = 0, refused: str = "") -> Format:
    def reader(source: Source, lines: tuple[Line, ...]) -> Contents:
        seen.append((name, [line.number for line in lines]))
        return Contents()

    return Format(name, f"the tool {name}", "made", reader, (re.compile(begins, flags),), refused_because=refused)


KNOWN = (made("apple", r"^apple\b"), made("pear", r".{0,9}\bpear", flags=re.IGNORECASE), made("apples", r"^app"))


def sections(text: str) -> list[tuple[str, int, int]]:
    return [(part.format, part.first_line, part.last_line) for part in recognise(source_of(text), KNOWN)]


def test_a_paste_of_several_tools_is_cut_into_sections() -> None:
    """Lines in front belong to the first section, a prompt to what it printed, and the first format wins."""
    text = "login banner\napple 1\n7\napple 2\n\nme@host:~$ run PEARS\nmany Pears\n8\n"
    assert sections(text) == [("apple", 1, 5), ("pear", 6, 8)]
    assert sections("apples 3") == [("apples", 1, 1)]
    assert sections("nothing\n") == []


def test_every_line_of_a_section_reaches_its_reader_once() -> None:
    seen.clear()
    read(source_of("x\napple\n1\n2\na pear\n3\n"), KNOWN)
    assert seen == [("apple", [1, 2, 3, 4]), ("pear", [5, 6])]


@given(st.lists(st.sampled_from(["apple", "a pear", "noise", "", "$ pear"]), max_size=30))
def test_sections_cover_the_file_without_overlap(rows: list[str]) -> None:
    text = "\n".join(rows)
    found = sections(text)
    if found:
        assert found[0][1] == 1
        assert found[-1][2] == len(text.removesuffix("\n").split("\n"))
        assert all(before[2] + 1 == after[1] for before, after in pairwise(found))
        assert all(before[0] != after[0] for before, after in pairwise(found))


def test_a_tree_goes_to_the_format_that_it_fits() -> None:
    """Its lines are not looked at: "apple" inside JSON begins no section."""
    tree = Format("tree", "a tree", "made", lambda _, __: Contents(), fits=lambda value: "kind" in value)
    found = recognise(Source("a.json", 'apple\n{"kind": 1}\n', {"kind": 1}), (*KNOWN, tree))
    assert [(part.format, part.first_line, part.last_line) for part in found] == [("tree", 1, 2)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("a\0b", "NUL"),
        ("dear all,\nthe tool apple says 3\n", "nothing in the file"),
    ],
)
def test_what_is_not_known_is_refused_with_the_nearest_kinds(text: str, reason: str) -> None:
    found = read(source_of(text), KNOWN)
    assert found.sections == ()
    assert reason in found.refusals[0].sentence
    if "apple" in text:
        assert "the tool apple" in found.refusals[0].remedy
        assert "meshwright import-formats lists all kinds" in found.refusals[0].remedy


def test_a_kind_known_to_be_refused_says_why() -> None:
    found = read(source_of("counters\n1\n"), (made("counters", "^counters", refused="counters are not rates"),))
    assert found.sections[0][1].refusals[0].sentence == "counters are not rates"


def test_refusals_are_not_listed_without_end() -> None:
    many = tuple(refusal(number, number, "odd", "") for number in range(1, 1001))
    form = Format("odd", "odd", "made", lambda _, __: Contents(refusals=many), (re.compile("^odd"),))
    refusals = read(source_of("odd\n" * 1000), (form,)).sections[0][1].refusals
    assert len(refusals) == 201
    assert (refusals[-1].last_line, refusals[-1].sentence[:3]) == (1000, "800")


def test_names_of_formats_differ() -> None:
    """A section names its format, so two may not be called alike; every one can be recognised."""
    assert len({form.name for form in FORMATS}) == len(FORMATS)
    assert all(form.begins or form.fits for form in FORMATS)


WORDS = [
    "GPU0\tGPU1\tCPU Affinity",
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 64",
    "#  Rank  0 Group  0 Pid 1 on n1 device  0 [0x1b] NVIDIA H100",
    "  1048576  262144  float  sum  -1  12.0  8.7  16.4  0  12.0  8.7  16.4  0",
    "SwitchName=s0 Nodes=n[1-4",
    "NodeName=n1 Gres=gpu:h100:8 State=IDLE",
    "CA 'mlx5_0'",
    "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
    "   D\\D     0      1",
    "     0 2000.1  nan",
    "# OSU MPI Bandwidth Test v7.1",
    "node_a,node_b,size_bytes,busbw_gbs",
    "n1,n2,x,",
    '<system version="1"><cpu',
    "vendid=0x2c9",
    'Switch  41 "S-1" # "leaf" base port 0',
    "nvidia.com/gpu.product=H100",
    "\x1b[4m",
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=30), max_size=15))
def test_any_mixture_of_lines_is_read_without_an_escape(rows: list[str]) -> None:
    """There are sections or a refusal, and every fact and doubt has lines of the file."""
    found = read(source_of("\n".join(rows)))
    assert found.sections or found.refusals
    for _, understood in found.sections:
        for fact in understood.facts:
            assert 1 <= fact.origin.first_line <= fact.origin.last_line <= max(1, found.lines)
        for doubt in understood.doubts:
            assert 0 <= doubt.first_line <= max(1, found.lines)


@pytest.mark.parametrize(
    "pattern",
    [pattern for form in FORMATS for pattern in form.begins if _word_of(pattern)],
    ids=lambda pattern: pattern.pattern[:30],
)
def test_a_word_that_a_pattern_needs_is_in_all_it_matches(pattern: re.Pattern[str]) -> None:
    """Patterns whose word a file lacks are left out of the search, so none may match without it."""
    begins = re.compile(f"(?:{pattern.pattern})[\\s\\S]{{0,9}}", pattern.flags & ~re.UNICODE | re.ASCII)

    # Anything in front, as patterns that are searched for get it, would only keep examples from matching.
    @settings(max_examples=15)
    @given(st.from_regex(begins, fullmatch=True))
    def has_its_word(text: str) -> None:
        found = pattern.match(text)
        assert found is None or _word_of(pattern) in text

    has_its_word()


def test_a_pattern_of_shapes_fits_the_shape_of_all_it_matches() -> None:
    """Lines whose shape nothing begins with are left out of the search."""
    patterns = [pattern for form in FORMATS for pattern in form.begins]
    text = "\n".join(
        path.read_text("utf-8")
        for path in (Path(__file__).parents[1] / "data" / "formats").iterdir()
        if path.suffix != ".json"
    )
    matched = set()
    for line in set(text.split("\n")):
        shape = line.translate(_NO_DIGITS)
        for pattern in patterns:
            if pattern.match(line) is not None:
                matched.add(pattern)
                assert _of_shapes(pattern).match(shape) is not None
    assert len(matched) > len(patterns) // 2


def test_a_list_of_pairs_to_test_is_refused() -> None:
    found = read(source_of("benchmark_name: b pattern_type: pair-wise\nn1,n2;n3,n4\nn1,n3;n2,n4\n"))
    (_, understood), *others = found.sections
    assert not others
    assert understood.facts == ()
    assert [(one.first_line, one.last_line) for one in understood.refusals] == [(1, 3)]


_DRAWING = ("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity", "GPU0\t X \tNV4\t0-31\t0", "GPU1\tNV4\t X \t0-31\t0")


@pytest.mark.parametrize("mixed", [True, False])
def test_lines_of_hosts_are_read_host_by_host(*, mixed: bool) -> None:
    """Two hosts draw their GPUs under pdsh, one after the other or line by line."""
    pairs = [(host, line) for host in ("oak1", "oak2") for line in _DRAWING]
    pairs = sorted(pairs, key=lambda pair: _DRAWING.index(pair[1])) if mixed else pairs
    ((_, found),) = read(source_of("".join(f"{host}: {line}\n" for host, line in pairs))).sections
    drawn = [fact for fact in found.facts if isinstance(fact, WiringFact)]
    assert [(fact.host, len(fact.joints), fact.partial) for fact in drawn] == [
        ("oak1", 1, False),
        ("oak2", 1, False),
    ]
    assert (found.refusals, found.doubts) == ((), ())


def test_tasks_without_names_are_read_one_by_one_and_asked_for() -> None:
    """``srun --label`` says which task, and not on which host."""
    text = "".join(f"{task}: {line}\n" for line in _DRAWING for task in (0, 1))
    ((_, found),) = read(source_of(text)).sections
    assert [fact.host for fact in found.facts if isinstance(fact, WiringFact)] == [None, None]
    assert [doubt.code for doubt in found.doubts] == ["several-hosts"]
