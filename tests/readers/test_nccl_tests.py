"""Logs of nccl-tests and rccl-tests, of all versions, whole and damaged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.formats.nccl.nccl_tests import FORMAT
from readers.frame.facts import Operation, RunEnd, RunFact
from readers.frame.findings import Severity
from readers.frame.lines import clean_lines
from readers.frame.reading import Contents
from tests.readers.nccl_logs import LATENCY_S, OLD, RATE, bus_bandwidth, log
from tests.readers.real_files import real, source_of, understood


def _runs(found: Contents) -> list[RunFact]:
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


def _read(text: str, name: str = "upload.txt", host: str | None = None) -> Contents:
    return understood(FORMAT, source_of(text, name, host))


def _codes(found: Contents) -> list[str]:
    return [doubt.code for doubt in found.doubts]


REAL = (
    ("aws_p5_1node_allreduce_mpi_prefix.txt", ["all_reduce 8 cut 29 444.02@32"], "operation-guessed ranks-guessed"),
    ("aws_p5_2node_16gpu_allreduce_srun_prefix.txt", ["all_reduce 16 cut 31 479.28@33"], None),
    ("aws_p5_2node_eks_mpi_prefix_truncated.txt", ["all_reduce 16 excerpt 6 437.79@11"], None),
    ("cscs_sarus_allreduce.txt", ["all_reduce 2 complete 8 22.86@20"], ""),
    ("gcp_a3mega_2node_16gpu_allreduce.txt", ["all_reduce 16 complete 31 338.82@53"], "operation-guessed"),
    ("gcp_a4x_gb200_2node_8gpu_allgather_squeezed.txt", ["all_gather 8 complete 24 453.99@27"], None),
    ("oci_a100_2node_allreduce.txt", ["all_reduce 16 complete 2 180.06@28"], "operation-guessed"),
    ("oci_gb200_2tray_8gpu_allreduce_tail20.txt", ["all_reduce 8 complete 33 847.12@34"], "operation-guessed"),
    ("oci_slurm_operator_allreduce_a.txt", ["all_reduce 16 complete 4 189.6@23"], "ranks-partly-listed"),
    ("pairwise_h100_N2_G1_failed_at_start.log", ["alltoall 2 failed 0"], ""),
    (
        "pairwise_h100_N2_G1_ok_two_collectives_one_file.log",
        ["alltoall 2 complete 10 13.51@21", "sendrecv 2 complete 10 13.59@47"],
        "",
    ),
    (
        "pairwise_h100_N2_G1_second_collective_died.log",
        ["alltoall 2 complete 10 13.55@21", "sendrecv 2 failed 0"],
        "",
    ),
    (
        "pairwise_h100_N2_G8_reducing_maxbytes.log",
        ["alltoall 16 complete 3 92.04@30", "sendrecv 16 complete 3 45.87@66"],
        "",
    ),
    (
        "pairwise_h100_with_debug_small.log",
        ["alltoall 2 complete 10 27.18@20", "sendrecv 2 complete 10 27.28@45"],
        "",
    ),
    ("rtx4090x4_patched_p2p_allreduce.txt", ["all_reduce 4 complete 21 25.31@32"], "operation-guessed"),
    ("rtx5090x1_single_rank_absurd_inplace_excerpt.txt", ["all_reduce 1 complete 4 None@13"], "one-rank"),
    ("sb_a100x8_allgather_perf.log", ["all_gather 8 complete 29 223.39@50"], "operation-guessed"),
    ("sb_a100x8_allreduce_perf.log", ["all_reduce 8 complete 32 235.26@50"], "operation-guessed"),
    ("sb_a100x8_broadcast_perf.log", ["broadcast 8 complete 32 232.81@50"], "operation-guessed"),
    ("sb_a100x8_reduce_perf.log", ["reduce 8 complete 32 228.38@50"], "operation-guessed"),
    ("sb_a100x8_reducescatter_perf.log", ["reduce_scatter 8 complete 29 231.52@50"], "operation-guessed"),
    (
        "../rccl_tests/mi355x_8gpu_allreduce_alltoall_excerpt.txt",
        ["all_reduce 8 excerpt 2 406.76@18", "alltoall 8 excerpt 2 361.41@42"],
        "partial partial",
    ),
)


@pytest.mark.parametrize(("name", "expected", "codes"), REAL, ids=[row[0] for row in REAL])
def test_real_logs_give_the_figures_that_stand_in_them(name: str, expected: list[str], codes: str | None) -> None:
    """Operation, ranks, ending, rows, and the last bus bandwidth with its line; no line is refused."""
    found = understood(FORMAT, real(f"topology/nccl_tests/{name}"))
    assert [_short(run) for run in _runs(found)] == expected
    assert found.refusals == ()
    if codes is not None:
        assert _codes(found) == codes.split()


def _short(run: RunFact) -> str:
    text = f"{run.operation.value} {run.ranks} {run.end.value} {len(run.points)}"
    if not run.points:
        return text
    last = run.points[-1]
    figure = None if last.bytes_per_s is None else round(last.bytes_per_s / 1e9, 2)
    return f"{text} {figure}@{last.line}"


def test_ranks_of_a_log_without_a_list_come_from_what_nccl_said() -> None:
    """The tail of a log with NCCL's own lines still tells which ranks sat where."""
    found = understood(FORMAT, real("topology/nccl_tests/oci_gb200_2tray_8gpu_allreduce_tail20.txt"))
    (run,) = _runs(found)
    assert run.hosts == ("nccl-test-worker-0", "nccl-test-worker-1")
    assert (run.nodes, run.ranks_per_node) == (2, 4)
    assert [member.gpu for member in run.members] == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("layout", ["new", OLD])
@pytest.mark.parametrize(
    "program", ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv", "broadcast", "reduce"]
)
def test_all_layouts_give_the_same_run(program: str, layout: str) -> None:
    """Root, redop and the name of the last column come and go with the version."""
    found = _read(log(["kiwi1", "kiwi2"], 4, program=program, layout=layout))
    (run,) = _runs(found)
    assert (run.operation, run.ranks, run.hosts, run.ranks_per_node) == (
        Operation(program),
        8,
        ("kiwi1", "kiwi2"),
        4,
    )
    assert [point.message_bytes for point in run.points] == [1 << 20, 1 << 24, 1 << 28]
    for point in run.points:
        size = int(point.message_bytes or 0)
        assert point.bytes_per_s == pytest.approx(bus_bandwidth(program, 8, size), abs=6e6)
        assert point.time_s == pytest.approx(LATENCY_S + size / RATE, rel=1e-3)
    assert run.end is RunEnd.COMPLETE
    assert not found.refusals
    assert not found.doubts


@pytest.mark.parametrize("program", ["all_reduce", "broadcast", "reduce"])
def test_a_nameless_test_is_told_by_its_columns(program: str) -> None:
    """Where only one operation looks so."""
    found = _read(log(["kiwi1", "kiwi2"], 4, program=program, with_name=False))
    assert [run.operation for run in _runs(found)] == [Operation(program)]
    assert _codes(found) == ["operation-guessed"]


def test_a_nameless_test_that_could_be_two_is_refused_with_a_remedy() -> None:
    """all_gather and alltoall print the same columns; the name of the file decides, else nobody."""
    text = log(["kiwi1", "kiwi2"], 4, program="alltoall", with_name=False)
    found = _read(text)
    assert not found.facts
    assert "alltoall_perf.log" in found.refusals[0].remedy
    assert [run.operation for run in _runs(_read(text, "my_alltoall_run.txt"))] == [Operation.ALL_TO_ALL]


@pytest.mark.parametrize(("program", "gpus"), [("all_reduce", 4), ("all_reduce", 8), ("alltoall", 32)])
def test_ranks_without_a_list_are_told_by_the_figures(program: str, gpus: int) -> None:
    """Ratios of bandwidths for all_reduce, of size and count for the others; the hosts stay unknown."""
    found = _read(log(["kiwi1", "kiwi2"], gpus, program=program, with_ranks=False))
    (run,) = _runs(found)
    assert (run.ranks, run.hosts, run.nodes, run.ranks_per_node) == (2 * gpus, (), None, None)
    assert _codes(found) == ["ranks-guessed"]


def test_ranks_that_two_digits_cannot_tell_are_not_guessed() -> None:
    """2(n-1)/n of 64 and of 65 ranks differ by less than the rounding of 40 GB/s."""
    (run,) = _runs(_read(log(["kiwi1", "kiwi2"], 32, program="all_reduce", with_ranks=False)))
    assert run.ranks is None


def test_a_list_of_other_ranks_than_the_figures_is_rejected() -> None:
    """Two logs pasted into each other would price links by the wrong number of GPUs."""
    text = log(["kiwi1", "kiwi2"], 4, program="all_reduce")
    ours = log(["kiwi1", "kiwi2"], 8, program="all_reduce")
    mixed = [line for line in ours.splitlines() if "Rank" in line]
    lines = text.splitlines()
    begin = next(index for index, line in enumerate(lines) if "Rank" in line)
    found = _read("\n".join([*lines[:begin], *mixed, *lines[begin + 8 :]]))
    assert [(doubt.code, doubt.severity) for doubt in found.doubts] == [("ranks-disagree", Severity.REJECT)]


def test_a_test_of_one_rank_is_rejected() -> None:
    """It measures a copy inside one GPU."""
    found = _read(log(["kiwi1"], 1, program="all_reduce"))
    assert [(doubt.code, doubt.severity) for doubt in found.doubts] == [("one-rank", Severity.REJECT)]


def test_copies_of_a_test_built_without_mpi_are_told_apart() -> None:
    """Each process printed a table of its own, line by line between the others'."""
    copies = [log([host], 1, program="all_reduce").splitlines() for host in ("kiwi1", "kiwi2")]
    text = "\n".join(
        f"{teller}: {line}" for lines in zip(*copies, strict=True) for teller, line in enumerate(lines)
    )
    found = _read(text)
    assert [run.hosts for run in _runs(found)] == [("kiwi1",), ("kiwi2",)]
    assert _codes(found) == ["one-rank", "one-rank"]


def test_a_table_of_one_group_of_columns() -> None:
    """Some tests run out of place only."""
    text = (
        "# Collective test starting: alltoall_perf\n# nThread 1 nGpus 1\n"
        "# Rank  0 Pid 1 on fig1 device  0 [0x01] X\n# Rank  1 Pid 2 on fig2 device  0 [0x01] X\n"
        "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
        " 1048576 262144 float none -1 100.0 10.49 5.24 N/A\n# Avg bus bandwidth : 5.24\n"
    )
    (run,) = _runs(_read(text))
    assert [(point.bytes_per_s, point.line) for point in run.points] == [(5.24e9, 6)]
    assert (run.end, run.hosts) == (RunEnd.COMPLETE, ("fig1", "fig2"))


def test_a_failure_below_a_command_without_any_row() -> None:
    """The command tells the test; the message is the reason."""
    text = (
        "me@fig1:~/nccl-tests$ ./build/all_reduce_perf -b 8 -e 128M -f 2 -g 2\n"
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20\n"
        "# Using devices\n"
        "#  Rank  0 Group  0 Pid   5092 on       fig1 device  0 [0x21] NVIDIA GeForce RTX 5090\n"
        "#  Rank  1 Group  0 Pid   5092 on       fig1 device  1 [0x41] NVIDIA GeForce RTX 5090\n"
        "fig1: Test NCCL failure common.cu:958 'unhandled cuda error / '\n"
        " .. fig1 pid 5092: Test failure common.cu:842\n"
    )
    (run,) = _runs(_read(text))
    assert (run.operation, run.end, run.ranks, run.hosts) == (Operation.ALL_REDUCE, RunEnd.FAILED, 2, ("fig1",))
    assert "unhandled cuda error" in run.end_reason


def test_a_failure_keeps_the_rows_before_it() -> None:
    """And its message is the reason."""
    text = log(["kiwi1", "kiwi2"], with_end=False) + "kiwi2: Test NCCL failure common.cu:100 'system error'\n"
    (run,) = _runs(_read(text))
    assert (run.end, len(run.points)) == (RunEnd.FAILED, 3)
    assert "system error" in run.end_reason


def test_a_cut_row_is_refused_and_the_others_stay() -> None:
    """The last row of a cut file may end inside a figure."""
    text = log(["kiwi1", "kiwi2"], with_end=False)
    (last,) = [line for line in text.splitlines() if line.split()[0] == str(1 << 28)]
    bus = f"{bus_bandwidth('alltoall', 2, 1 << 28) / 1e9:.2f}"
    found = _read(text[: text.index(last) + last.index(bus) + 3])
    (run,) = _runs(found)
    assert (run.end, len(run.points)) == (RunEnd.CUT, 2)
    assert [refusal.sentence for refusal in found.refusals] == ["the row is cut off"]


def test_a_damaged_figure_is_left_out() -> None:
    """Size over time must give the bandwidth beside them."""
    text = log(["kiwi1", "kiwi2"]).replace(f"{(1 << 24) / (LATENCY_S + (1 << 24) / RATE) / 1e9:7.2f}", "  91.00", 1)
    found = _read(text)
    (run,) = _runs(found)
    assert [point.message_bytes for point in run.points] == [1 << 20, 1 << 28]
    assert "figures-disagree" in _codes(found)


def test_wrong_values_reject_the_run() -> None:
    """Data that were damaged on their way are not a measurement of a healthy link."""
    text = log(["kiwi1", "kiwi2"], program="all_reduce").replace("values : 0 OK", "values : 3 FAILED")
    found = _read(text)
    assert [(doubt.code, doubt.severity) for doubt in found.doubts] == [("wrong-values", Severity.REJECT)]


def test_a_slow_first_row_is_left_out() -> None:
    """It holds the set-up of connections."""
    rows = log(["kiwi1", "kiwi2"]).splitlines()
    first = next(index for index, line in enumerate(rows) if line.split()[0] == str(1 << 20))
    slow = f"{(LATENCY_S + (1 << 20) / RATE) * 1e6:.2f}"
    words = rows[first].replace(slow, "99000.00").split()
    words[6] = words[10] = "0.01"
    words[7] = words[11] = "0.01"
    rows[first] = " ".join(words)
    found = _read("\n".join(row for row in rows if "Avg" not in row))
    assert [point.message_bytes for run in _runs(found) for point in run.points] == [1 << 24, 1 << 28]
    assert _codes(found) == ["warm-up"]


def test_a_missing_row_that_the_average_counts_is_noticed() -> None:
    """An excerpt is not a whole run."""
    rows = log(["kiwi1", "kiwi2"]).splitlines()
    found = _read("\n".join(row for row in rows if row.split()[0] != str(1 << 20)))
    assert [run.end for run in _runs(found)] == [RunEnd.EXCERPT]
    assert _codes(found) == ["partial"]


def test_a_row_of_our_own_scripts_tells_nodes_moment_and_load() -> None:
    """The ranks of pods have names of their own; the line says which nodes they sit on."""
    own = "# meshwright: nodes=kiwi1,kiwi2 test=alltoall_perf started=2026-03-01T10:00:00Z pairs_active=4\n"
    (run,) = _runs(_read(own + log(["pod-0", "pod-1"], 2)))
    assert run.hosts == ("kiwi1", "kiwi2")
    assert {member.host for member in run.members} == {"kiwi1", "kiwi2"}
    assert (run.pairs_active, run.measured_at) == (4, datetime(2026, 3, 1, 10, tzinfo=UTC))


def test_localhost_is_the_host_that_the_sender_named() -> None:
    """Else nobody knows which it is."""
    text = log(["localhost"], 4, program="all_reduce")
    assert [(run.hosts, run.nodes, run.ranks_per_node) for run in _runs(_read(text))] == [((), 1, 4)]
    assert [run.hosts for run in _runs(_read(text, host="kiwi7"))] == [("kiwi7",)]


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "  [1,0]<stdout>: ", "[pod/launcher/nccl] "])
def test_prefixes_change_nothing_but_the_teller(prefix: str) -> None:
    """The prefix that a launcher puts before each line is not part of the log."""
    text = log(["kiwi1", "kiwi2"], 2) + log(["kiwi1", "kiwi2"], 2, program="sendrecv")
    prefixed = "".join(f"{prefix}{line}\r\n" for line in text.splitlines())
    assert _read(prefixed) == _read(text)


@given(st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """A log without a test in it is refused, if it has lines at all."""
    found = _read(text)
    assert bool(found.facts or found.refusals) == bool(clean_lines(text))


_WHOLE = log(["kiwi1", "kiwi2"], 2) + "NCCL INFO noise\n" + log(["kiwi1", "kiwi3"], 2, program="all_reduce")


@given(st.data())
def test_damaged_logs_are_read_without_an_error(data: st.DataObject) -> None:
    """Lines dropped, doubled, cut and with other figures: every fact stands on lines of the file."""
    lines = _WHOLE.splitlines()
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["drop", "double", "cut", "replace", "swap"]))
        if change == "drop" and len(lines) > 1:
            del lines[at]
        elif change == "double":
            lines.insert(at, lines[at])
        elif change == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        elif change == "replace":
            digit = data.draw(st.sampled_from(["0", "9", "x", "-", " ", "nan", "1e999", "#"]))
            lines[at] = lines[at].replace(data.draw(st.sampled_from(list("0123456789 #."))), digit)
        else:
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
    found = _read("\n".join(lines))
    for run in _runs(found):
        assert 1 <= run.origin.first_line <= run.origin.last_line <= len(lines)
        for point in run.points:
            assert run.origin.first_line <= point.line <= run.origin.last_line
            assert point.bytes_per_s is None or point.bytes_per_s > 0
            assert str(int(point.message_bytes or 0)) in lines[point.line - 1]


def test_other_names_of_hosts_change_nothing_else() -> None:
    """The reader looks at no name."""
    one, two = (_runs(_read(log(hosts, 2)))[0] for hosts in (["kiwi1", "kiwi2"], ["a.b.example", "10.0.0.7"]))
    assert two.hosts == ("a.b.example", "10.0.0.7")
    assert replace(one, hosts=(), members=()) == replace(two, hosts=(), members=())


def test_reduce_scatter_is_told_by_its_count() -> None:
    """It counts the elements of one rank, all-reduce those of the whole message."""
    rows = "".join(f"{size} {size // 32} float sum -1 {size / 1e5:.1f} 100.0 87.5 0\n" for size in (2**24, 2**26))
    (run,) = _runs(_read(rows))
    assert (run.operation, run.ranks) == (Operation.REDUCE_SCATTER, 8)
