"""OSU micro-benchmarks: sizes, units, buffers, and what the launch command adds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Direction
from readers.formats.mpi.osu import FORMAT
from readers.frame.facts import Memory, Operation, RunFact
from readers.frame.launch_commands import Launch, launch_of
from readers.frame.reading import Contents
from tests.readers.damage import sound
from tests.readers.real_files import real, source_of, understood


def runs(found: Contents) -> list[RunFact]:
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


def codes(found: Contents) -> set[str]:
    return {doubt.code for doubt in found.doubts}


def curve(best: float, rows: int = 23) -> str:
    return "\n".join(f"{2**i:<10}{best * 2**i / (2**i + 65536):17.2f}" for i in range(rows))


def bandwidth(command: str = "", title: str = "OSU MPI-CUDA Bandwidth Test v7.4", best: float = 47000.0) -> str:
    return f"{command}\n# {title}\n# Size      Bandwidth (MB/s)\n{curve(best)}\n"


@pytest.mark.parametrize(
    ("file", "last", "line", "memory", "nodes", "expected"),
    [
        ("cscs_gh200_internode_osu_bw_DD", 23989.54e6, 27, Memory.GPU, 2, set()),
        ("cscs_gh200_internode_osu_bw_DD_fallback", 1802.75e6, 27, Memory.GPU, 2, {"tcp-fallback"}),
        ("cscs_gh200_intranode_osu_bw_DD", 23989.44e6, 27, Memory.GPU, 1, {"nic-figure-for-nvlink"}),
        ("cscs_gh200_intranode_osu_bw_HH", 23980.15e6, 27, Memory.HOST, 1, {"nic-figure-for-nvlink"}),
        ("cscs_osu_bw_v62_no_fabric", 1279.54e6, 26, Memory.HOST, 2, {"unstable", "tcp-fallback"}),
    ],
)
def test_real_bandwidths(file: str, last: float, line: int, memory: Memory, nodes: int, expected: set[str]) -> None:
    found = understood(FORMAT, real(f"topology/osu/{file}.txt"))
    (run,) = runs(found)
    assert len(run.points) == 23
    assert run.points[-1].bytes_per_s == pytest.approx(last)
    assert (run.points[-1].line, run.points[-1].message_bytes) == (line, 4194304)
    assert (run.memory, run.nodes, run.ranks, run.hosts) == (memory, nodes, 2, ())
    assert run.direction is Direction.FORWARD
    assert found.refusals == ()
    assert codes(found) == expected


def test_real_alltoall_gives_times() -> None:
    found = understood(FORMAT, real("topology/osu/cscs_gh200_2node_osu_alltoall_DD.txt"))
    (run,) = runs(found)
    assert (run.operation, run.ranks, run.nodes, run.ranks_per_node) == (Operation.ALL_TO_ALL, 8, 2, 4)
    assert len(run.points) == 21
    assert run.points[-1].time_s == pytest.approx(486.89e-6)
    assert (run.points[-1].line, run.points[-1].bytes_per_s) == (25, None)


def test_two_tests_of_one_file_have_their_own_commands() -> None:
    first = bandwidth("$ mpirun -np 2 --host n1:1,n2:1 ./osu_bw D D > out.txt")
    second = bandwidth("$ srun -N 3 -n 3 ./osu_bw -d cuda D D", best=90000.0)
    noise = "n1:4:7 [0] NCCL INFO nothing\n/opt/osu_bw: /lib/libnl.so: no version information available\n"
    one, other = runs(understood(FORMAT, source_of(first + noise + second)))
    assert (one.hosts, one.nodes, one.ranks) == (("n1", "n2"), 2, 2)
    assert (other.nodes, other.ranks, other.memory) == (2, 2, Memory.GPU)
    assert one.points[-1].bytes_per_s is not None
    assert one.points[-1].bytes_per_s < 47e9 < (other.points[-1].bytes_per_s or 0)


def test_of_both_ways_half_is_taken() -> None:
    text = bandwidth(title="OSU MPI-CUDA Bi-Directional Bandwidth Test v5.6.3")
    (run,) = runs(understood(FORMAT, source_of(text)))
    (plain,) = runs(understood(FORMAT, source_of(bandwidth())))
    assert run.direction is Direction.BOTH
    assert run.points[-1].bytes_per_s == pytest.approx((plain.points[-1].bytes_per_s or 0) / 2)
    assert codes(understood(FORMAT, source_of(text))) == {"both-directions"}


@pytest.mark.parametrize(
    ("title", "buffers", "memory"),
    [
        (
            "OSU MPI-CUDA Bandwidth Test v5.9",
            "# Send Buffer on HOST (H) and Receive Buffer on HOST (H)",
            Memory.HOST,
        ),
        (
            "OSU MPI-ROCM Bandwidth Test v5.9",
            "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)",
            Memory.GPU,
        ),
        (
            "OSU MPI-CUDA Bandwidth Test v5.9",
            "# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)",
            Memory.HOST,
        ),
        ("OSU MPI-CUDA Bandwidth Test v7.5", "", Memory.GPU),
        ("OSU NCCL Bandwidth Test v7.5", "", Memory.GPU),
        ("OSU MPI Bandwidth Test v7.5", "", Memory.HOST),
    ],
)
def test_where_the_buffers_lie(title: str, buffers: str, memory: Memory) -> None:
    text = f"# {title}\n{buffers}\n# Size      Bandwidth (MB/s)\n{curve(900)}"
    assert runs(understood(FORMAT, source_of(text)))[0].memory is memory


@pytest.mark.parametrize(
    ("title", "operation"),
    [
        ("OSU MPI Allreduce Latency Test v5.9", Operation.ALL_REDUCE),
        ("OSU MPI Reduce_scatter Latency Test", Operation.REDUCE_SCATTER),
        ("OSU MPI-CUDA Allgather Latency Test v7.5", Operation.ALL_GATHER),
        ("OSU MPI Broadcast Latency Test v7.5", Operation.BROADCAST),
        ("OSU MPI-CUDA Latency Test v7.5", Operation.POINT_TO_POINT),
    ],
)
def test_latencies_of_collectives(title: str, operation: Operation) -> None:
    rows = "4    1.25   1.00   1.50   1000\n8    1.50   1.00   1.75   1000"
    text = f"# {title}\n# Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations\n{rows}"
    (run,) = runs(understood(FORMAT, source_of(text)))
    assert (run.operation, run.points[1].time_s) == (operation, pytest.approx(1.5e-6))
    assert run.ranks == (2 if operation is Operation.POINT_TO_POINT else None)


def test_data_that_failed_the_check_are_refused() -> None:
    text = (
        "# OSU MPI Bandwidth Test v7.5\n# Size  Bandwidth (MB/s)  Validation\n1  0.9  Pass\n2  1.8  Fail\n4 x Pass"
    )
    found = understood(FORMAT, source_of(text))
    assert len(runs(found)[0].points) == 1
    assert [refusal.first_line for refusal in found.refusals] == [4, 5]


def test_a_test_that_did_not_start_is_refused() -> None:
    found = understood(FORMAT, source_of("$ srun -N2 ./osu_bw\n# OSU MPI Bandwidth Test v7.5\nsrun: error: n1"))
    assert (found.facts, len(found.refusals)) == ((), 1)
    assert understood(FORMAT, source_of("$ srun -N2 ./osu_bw\nsrun: error")).refusals


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("$ srun -N2 --ntasks-per-node=4 ./osu_alltoall -d cuda", Launch(2, 8, (), "D")),
        ("srun -N1 -n2 ./osu_bw --validation D D", Launch(1, 2, (), "D")),
        ("srun --nodes=2 -w nid[001-002] ./osu_bw H H", Launch(2, 2, ("nid001", "nid002"), "H")),
        ("mpirun -n 144 -N 36 osu_allreduce", Launch(4, 144, (), "")),
        ("mpirun -np 2 -H a:1,b:1 ./osu_bw D H", Launch(2, 2, ("a", "b"), "H")),
        ("mpirun -np 2 --host $HOSTS osu_bw", Launch(None, 2, (), "")),
        ("", Launch()),
    ],
)
def test_launch_commands(command: str, expected: Launch) -> None:
    assert launch_of(command) == expected


@given(st.text(max_size=200))
def test_any_text_is_taken(text: str) -> None:
    sound(FORMAT, text)
    sound(FORMAT, "# OSU MPI Bandwidth Test v7.5\n" + text)
    launch_of("mpirun -host " + text)
