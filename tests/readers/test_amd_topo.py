"""amd-smi topology: link types as text and as JSON, disabled links, cut tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from readers import registry
from readers.formats.amd.amd_topo import FORMATS
from readers.frame.facts import JointKind, WiringFact
from readers.frame.reading import Contents
from readers.frame.sources import Source
from tests.readers.damage import damaged, sound
from tests.readers.real_files import source_of, understood

TEXT, JSON = FORMATS


def bus(gpu: int) -> str:
    return f"0000:{5 + gpu:02x}:00.0"


def table(title: str, count: int, word: Callable[[int, int], str]) -> str:
    head = " " * 13 + " ".join(bus(gpu) for gpu in range(count))
    rows = [bus(i) + " " + " ".join(f"{word(i, j):<12}" for j in range(count)) for i in range(count)]
    return "\n".join([f"{title} TABLE:", head, *rows, "", ""])


def joined(i: int, j: int) -> str:
    """Two hives of two."""
    return "SELF" if i == j else "XGMI" if i // 2 == j // 2 else "PCIE"


def output(count: int = 4, open_: Callable[[int, int], bool] = lambda _i, _j: True) -> str:
    access = table("ACCESS", count, lambda i, j: "ENABLED" if open_(i, j) else "DISABLED")
    return access + table("WEIGHT", count, lambda i, j: str(15 * (i != j))) + table("LINK TYPE", count, joined)


def wiring(found: Contents) -> WiringFact:
    (fact,) = found.facts
    assert isinstance(fact, WiringFact)
    return fact


def drawn(fact: WiringFact) -> dict[tuple[str, str], JointKind]:
    return {(joint.first, joint.second): joint.kind for joint in fact.joints}


def tree(count: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "gpu": i,
            "bdf": bus(i),
            "links": [
                {"gpu": j, "bdf": bus(j), "link_status": "ENABLED", "link_type": joined(i, j), "num_hops": 1}
                for j in range(count)
            ],
        }
        for i in range(count)
    ]


def test_text_and_json_draw_the_same() -> None:
    """Two hives of two GPUs, joined by PCIe."""
    text = wiring(understood(TEXT, source_of(output())))
    found = understood(JSON, Source("t.json", json.dumps(tree()), tree()))
    assert drawn(text) == drawn(wiring(found))
    assert drawn(text)["GPU0", "GPU1"] is JointKind.XGMI
    assert list(drawn(text).values()).count(JointKind.PCIE) == 4
    assert [doubt.code for doubt in found.doubts] == ["two-hives"]
    assert (text.expected_gpus, text.partial) == (4, False)


def test_both_are_recognised() -> None:
    ((section, _),) = registry.read(source_of("$ amd-smi topology\n" + output())).sections
    assert section.format == "amd-smi-topology"
    ((section, _),) = registry.read(Source("t.json", json.dumps(tree(), indent=1), tree())).sections
    assert section.format == "amd-smi-topology-json"


def test_a_disabled_link_is_left_out_and_told() -> None:
    found = understood(TEXT, source_of(output(open_=lambda i, j: {i, j} != {0, 1})))
    assert ("GPU0", "GPU1") not in drawn(wiring(found))
    assert "links-missing" in [doubt.code for doubt in found.doubts]


def test_a_cut_table_is_partial_and_its_cut_word_is_not_read() -> None:
    """The last row of four is cut within its third word; its pairs stand in the columns of the others."""
    text = output().rstrip()
    fact = wiring(understood(TEXT, source_of(text[:-20])))
    assert fact.partial
    assert len(fact.joints) == 6


def test_without_link_types_it_is_refused() -> None:
    (refusal,) = understood(TEXT, source_of(table("WEIGHT", 2, lambda i, j: str(i + j)))).refusals
    assert "link types" in refusal.sentence


@given(damaged(output()))
def test_damage_never_stops_the_reader(text: str) -> None:
    for fact in sound(TEXT, text).facts:
        assert isinstance(fact, WiringFact)
        assert all(joint.first != joint.second for joint in fact.joints)


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda i: st.lists(i, max_size=3), max_leaves=5)
)
def test_any_json_is_taken(value: object) -> None:
    for whole in ([{"bdf": value, "links": value}], [{"links": [value, {"link_type": value}]}], value):
        understood(JSON, Source("t.json", "", whole))
