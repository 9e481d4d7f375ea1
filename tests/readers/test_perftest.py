"""perftest: units, twin outputs of server and client, loopback."""

from __future__ import annotations

import pytest

from cluster_models.cluster.measurements import Direction
from readers.formats.infiniband.perftest import FORMAT
from readers.frame.facts import Memory, RunFact
from readers.frame.reading import Contents
from tests.readers.real_files import real, source_of, understood

RULE = "-" * 87


def runs(found: Contents) -> list[RunFact]:
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


def codes(found: Contents) -> set[str]:
    return {doubt.code for doubt in found.doubts}


def output(
    title: str = "RDMA_Write BW Test",
    unit: str = "Gb/sec",
    lids: tuple[str, str] = ("0x1a", "0x2b"),
    pairs: tuple[str, str] = ("0x0101", "0x0202"),
    factor: float = 1.0,
    gbit: float = 380.0,
) -> str:
    """A run of three sizes at ``gbit``, printed in ``unit`` (wrongly by ``factor``)."""
    scale = 1e9 / 8 if unit == "Gb/sec" else 2**20
    rate = f"{gbit * 1e9 / 8 / scale * factor:.2f}"
    rows = [
        f" {size:<10} 5000           {rate}             {rate}             {gbit * 1e9 / 8 / size / 1e6:.6f}"
        for size in (65536, 1048576, 8388608)
    ]
    return "\n".join(
        [
            RULE,
            f"                    {title}",
            " Dual-port       : OFF          Device         : mlx5_0",
            " Number of qps   : 4            Transport type : IB",
            RULE,
            f" local address: LID {lids[0]} QPN {pairs[0]} PSN 0x111111 RKey 0x000001 VAddr 0x00000000000001",
            f" remote address: LID {lids[1]} QPN {pairs[1]} PSN 0x222222 RKey 0x000002 VAddr 0x00000000000002",
            RULE,
            f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]",
            *rows,
            RULE,
            "",
        ]
    )


@pytest.mark.parametrize(
    ("file", "count", "last", "line"),
    [
        ("ib_write_bw_loopback_8M_hdr.txt", 1, 24056.72 * 2**20, 18),
        ("ib_write_bw_loopback_all_sizes_hdr.txt", 23, 23240.68 * 2**20, 63),
    ],
)
def test_real_files(file: str, count: int, last: float, line: int) -> None:
    found = understood(FORMAT, real(f"topology/ib/{file}"))
    (run,) = runs(found)
    assert len(run.points) == count
    assert (run.points[-1].bytes_per_s, run.points[-1].line) == (pytest.approx(last), line)
    assert run.points[-1].message_bytes == 8388608
    assert (run.memory, run.nodes, run.tool) == (Memory.HOST, 1, "perftest ib_write_bw")
    assert found.refusals == ()
    assert codes(found) == {"loopback"}


@pytest.mark.parametrize("unit", ["Gb/sec", "MB/sec"])
def test_both_units_are_the_same_rate(unit: str) -> None:
    found = understood(FORMAT, source_of(output(unit=unit)))
    (run,) = runs(found)
    assert [point.bytes_per_s for point in run.points] == [pytest.approx(47.5e9, rel=1e-3)] * 3
    assert (run.direction, run.nodes, codes(found)) == (Direction.FORWARD, None, set())


def test_a_rate_that_is_not_messages_times_size_is_doubted() -> None:
    assert codes(understood(FORMAT, source_of(output(factor=1.048576)))) == {"unit-mismatch"}


def test_server_and_client_of_one_test_are_one_run() -> None:
    client = output()
    server = output(lids=("0x2b", "0x1a"), pairs=("0x0202", "0x0101"))
    assert len(runs(understood(FORMAT, source_of(client + "* Waiting for client to connect... *\n" + server)))) == 1
    other = output(pairs=("0x0303", "0x0404"))
    assert len(runs(understood(FORMAT, source_of(client + other)))) == 2


def test_loopback_over_ethernet_is_seen_by_its_address() -> None:
    gid = " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:{}"
    same, apart = (
        "\n".join(
            line + ("\n" + gid.format(next(ends)) if "address" in line else "")
            for line in output(lids=("0000", "0000")).splitlines()
        )
        for ends in (iter(("01", "01")), iter(("01", "02")))
    )
    assert codes(understood(FORMAT, source_of(same))) == {"loopback"}
    assert codes(understood(FORMAT, source_of(apart))) == set()


def test_of_both_ways_half_is_taken() -> None:
    found = understood(FORMAT, source_of(output("RDMA_Write Bidirectional BW Test", gbit=760.0)))
    (run,) = runs(found)
    assert (run.direction, run.points[0].bytes_per_s) == (Direction.BOTH, pytest.approx(47.5e9, rel=1e-3))
    assert codes(found) == {"both-directions"}


def test_memory_of_a_gpu_is_noticed() -> None:
    text = output().replace(" Dual", "initializing CUDA\n Dual")
    assert runs(understood(FORMAT, source_of(text)))[0].memory is Memory.GPU


def test_latencies_take_the_typical_time() -> None:
    header = "#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    header += "   99% percentile[usec]   99.9% percentile[usec]"
    noise = "Conflicting CPU frequency values detected: 2400.0 != 1873.4. CPU Frequency is not max.\n"
    row = (
        " 2       1000          1.76           6.12         1.79                1.80             0.06   1.88  6.12"
    )
    (run,) = runs(understood(FORMAT, source_of(f"  RDMA_Write Latency Test\n {header}\n{noise}{row}\n")))
    assert run.tool == "perftest ib_write_lat"
    assert (run.points[0].time_s, run.points[0].bytes_per_s) == (pytest.approx(1.79e-6), None)


def test_output_without_its_title_is_read() -> None:
    text = output().split("VAddr 0x00000000000002\n")[1]
    assert runs(understood(FORMAT, source_of(text)))[0].points[0].bytes_per_s == pytest.approx(47.5e9, rel=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "  RDMA_Write BW Test\nCouldn't connect to n2:18515\n",
        "  RDMA_Write BW Test\n* Waiting for client to connect... *\n",
        "nothing at all",
        output().replace("380.00", "0.00"),
    ],
)
def test_tests_without_figures_are_refused(text: str) -> None:
    found = understood(FORMAT, source_of(text))
    assert found.facts == ()
    assert found.refusals
