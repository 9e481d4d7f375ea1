"""SuperBench's copies between GPUs, line by line."""

from __future__ import annotations

import pytest

from cluster_models.cluster.measurements import Direction
from readers.formats.superbench.gpu_copy import FORMAT
from readers.frame.facts import Memory
from tests.readers.real_files import matrices, source_of, understood


def copies(gpus: int, numa: int = 2) -> str:
    """All copies between ``gpus`` GPUs: 100 + 10 x from + to, and a quarter more for reads."""
    lines = []
    for node in range(numa):
        for ways in ("uni", "bi"):
            lines += [f"cpu_to_gpu{gpu}_by_dma_under_numa{node}_{ways} 25.5" for gpu in range(gpus)]
            for one in range(gpus):
                lines.append(f"gpu{one}_to_gpu{one}_by_sm_under_numa{node}_{ways} 655.25")
                for other in range(gpus):
                    if one != other:
                        figure = 100 + 10 * one + other
                        lines += [
                            f"gpu{one}_to_gpu{other}_write_by_sm_under_numa{node}_{ways} {figure}.5",
                            f"gpu{one}_to_gpu{other}_read_by_dma_under_numa{node}_{ways} {figure}.75",
                        ]
    return "\n".join(lines)


def test_each_kind_of_copy_is_a_table() -> None:
    found = understood(FORMAT, source_of(copies(3), host="m5"))
    facts = matrices(found)
    by_method = {(fact.method, fact.memory): fact for fact in facts}
    assert len(facts) == len(by_method) == 12
    write = by_method["sm write, numa 0", Memory.GPU]
    read = by_method["copy engine read, numa 1", Memory.GPU]
    assert write.rows == write.columns == ("0", "1", "2")
    assert write.values[1][2] == pytest.approx(112.5e9)
    assert write.values[1][1] is None
    assert read.values[2][1] == pytest.approx(121.75e9)
    assert "gpu2_to_gpu0_read" in copies(3).splitlines()[read.lines[2] - 1]
    assert by_method["sm write, numa 1, bidirectional", Memory.GPU].direction is Direction.BOTH
    host = by_method["copy engine, numa 0", Memory.HOST]
    assert (host.rows, host.columns, host.host) == (("cpu0",), ("0", "1", "2"), "m5")
    assert [doubt.code for doubt in found.doubts] == ["both-directions"]


def test_copies_without_numa_node_or_way_are_read() -> None:
    (fact,) = matrices(understood(FORMAT, source_of("gpu0_to_gpu1_by_sm 19.5\ngpu1_to_gpu0_by_sm 18.5")))
    assert fact.values == ((None, pytest.approx(19.5e9)), (pytest.approx(18.5e9), None))
    assert fact.direction is Direction.FORWARD


def test_a_gpu_has_one_spelling() -> None:
    (fact,) = matrices(understood(FORMAT, source_of("gpu0_to_gpu1_by_sm 19.5\ngpu01_to_gpu00_by_sm 18.5")))
    assert fact.values == ((None, pytest.approx(19.5e9)), (pytest.approx(18.5e9), None))


@pytest.mark.parametrize("figure", ["0", "-3", "nan", "x"])
def test_what_is_no_bandwidth_is_refused(figure: str) -> None:
    found = understood(FORMAT, source_of(f"gpu0_to_gpu1_write_by_sm_under_numa0_uni {figure}"))
    assert found.facts == ()
    assert figure in found.refusals[0].sentence


def test_totals_over_all_gpus_are_refused() -> None:
    found = understood(FORMAT, source_of("gpu_all_to_gpu_all_write_by_sm_under_numa0_uni 1800.5"))
    assert (len(found.facts), len(found.refusals)) == (0, 1)
