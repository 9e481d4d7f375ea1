"""Lines as a tool printed them, whatever a launcher or a terminal added."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.frame.lines import LONGEST_LINE, clean_lines
from tests.readers.nccl_logs import log
from tests.readers.uploads import report_of

TOOL = [
    "#       size         count      type   redop",
    "        8             2     float     sum",
    "",
    "[1] 2: three",
    "# Avg bus bandwidth    : 12.5",
]
PREFIXES: dict[str, tuple[Callable[[int], str], str, str]] = {
    "srun": (lambda _: " 3: ", "3", ""),
    "mpirun": (lambda _: "[1,0]<stdout>: ", "1,0", ""),
    "prterun": (lambda _: "[prterun-login-77@1,0]<stderr>: ", "1,0", ""),
    "kubectl": (lambda _: "[pod/sweep-0/main] ", "pod/sweep-0/main", ""),
    "stamps": (lambda i: f"2024-01-12T18:23:{i:02}.5Z ", "", "2024-01-12T18:23:00.5Z"),
    "kubectl with stamps": (lambda i: f"[pod/a/b] 2024-01-12T18:23:{i:02}Z ", "pod/a/b", "2024-01-12T18:23:00Z"),
    "stamps of labels": (lambda i: f"2024-01-12T18:23:{i:02}+01:00 1: ", "1", "2024-01-12T18:23:00+01:00"),
}


def texts(text: str) -> list[str]:
    return [line.text for line in clean_lines(text)]


@pytest.mark.parametrize("kind", PREFIXES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_prefix_of_most_lines_goes_and_is_noted(kind: str, end: str) -> None:
    """The words of the tool stay as they are; who printed them, and when, is kept aside."""
    prefix, teller, stamp = PREFIXES[kind]
    sent = end.join(["srun: job 77 started", *(prefix(index) + row for index, row in enumerate(TOOL)), ""])
    lines = clean_lines(sent)
    assert [line.text for line in lines] == ["srun: job 77 started", *TOOL]
    assert (lines[1].teller, lines[1].stamp) == (teller, stamp)
    assert [line.number for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "text",
    [
        "1: eth0: <BROADCAST,UP>\n    link/ether 02:42:ac\n    inet 10.0.0.1/24\n",
        "CA: node7 mlx5_0:\n 12: up\n 0x01 4X\n 0x02 4X",
        "switch\n[1]  adapter\n[2]  adapter\n[1,0]<stdout>: once",
    ],
)
def test_what_few_lines_begin_with_is_the_tools_own(text: str) -> None:
    assert texts(text) == text.rstrip("\n").split("\n")


@given(st.text(max_size=300))
def test_lines_keep_their_numbers(text: str) -> None:
    """Whatever stands in a file, there is one line for each that an editor would number."""
    lines = clean_lines(text)
    ends = text.removeprefix("\ufeff").replace("\r\n", "\n")
    assert len(lines) == ends.count("\n") + (not ends.endswith("\n") and ends != "")
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert all(line.text == line.text.rstrip() and "\n" not in line.text for line in lines)


@given(
    st.lists(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=40), max_size=12)
)
def test_cleaning_twice_changes_nothing_more_where_no_prefix_is_left(rows: list[str]) -> None:
    """Line ends and colours change no text."""
    plain = texts("\n".join(rows))
    coloured = "\r\n".join(f"\x1b[1;32m{row}\x1b[0m" for row in rows)
    assert [text for text in texts(coloured) if text] == [text for text in plain if text]


def test_terminals() -> None:
    """A carriage return restarts a line, titles and colours show nothing, a byte order mark is not text."""
    assert texts("\ufeff 10 %\r 99 %\rdone\r\n\x1b]0;title\x07\x1b[4mGPU0\x1b[0m  X \n") == ["done", "GPU0  X"]


def test_long_lines_are_cut() -> None:
    assert texts("x" * (LONGEST_LINE + 5)) == ["x" * LONGEST_LINE]


def test_hosts_before_every_line_are_tellers() -> None:
    """As pdsh and clush print them, the lines of several hosts mixed."""
    text = "oak1: a b\noak2: a b\noak1: c d\noak2: c d\noak2:\noak1: e f\noak2: e f\n"
    lines = clean_lines(text)
    assert [line.teller for line in lines] == ["oak1", "oak2", "oak1", "oak2", "oak2", "oak1", "oak2"]
    assert [line.text for line in lines][:5] == ["a b", "a b", "c d", "c d", ""]


@pytest.mark.parametrize(
    "text",
    [
        "oak1: a b\noak1: c d\nc d\noak1: e f\n",  # not every line
        "oak1: 0x1\noak1: 0x2\noak1: 0x3\n",  # a table of one word a line
        "oak1: a b\noak2: a b\n",  # once each: a list of hosts
        "GPU0: a b\nGPU0: c d\nGPU0: e f\n",  # a device
        "NVRM: a b\nNVRM: c d\nNVRM: e f\n",  # a part of a system
    ],
)
def test_other_words_before_a_colon_are_not(text: str) -> None:
    assert {line.teller for line in clean_lines(text)} == {""}


JOURNAL = {
    "journalctl": "Jan 12 18:23:{0:02} gpu-7 nccl-sweep[4711]: ",
    "journalctl -o short-precise": "Jan 12 18:23:{0:02}.123456 gpu-7 srun[4711]: ",
    "journalctl -o short-iso": "2024-01-12T18:23:{0:02}+0100 gpu-7 nccl-sweep[4711]: ",
    "rsyslog": "2024-01-12T18:23:{0:02}.123456+01:00 gpu-7 nccl-sweep: ",
}


@pytest.mark.parametrize("kind", JOURNAL)
def test_the_prefix_of_a_journal_goes_and_its_host_is_noted(kind: str) -> None:
    sent = "\n".join(
        ["-- Journal begins at Fri 2024-01-12 --", *(JOURNAL[kind].format(i) + row for i, row in enumerate(TOOL))]
    )
    lines = clean_lines(sent)
    assert [line.text for line in lines[1:]] == TOOL
    assert {line.teller for line in lines[1:]} == {"gpu-7"}


def test_lines_of_the_kernel_stay_as_they_are() -> None:
    """Their reader knows the prefix, and reads host and moment from it."""
    text = "".join(f"Jan 12 18:23:0{i} gpu-7 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n" for i in range(3))
    assert texts(text) == text.splitlines()


def test_a_test_in_a_journal_is_read() -> None:
    """One log with all its ranks, not a kernel log without faults."""
    sent = "".join(f"Jan 12 18:23:07 n1 nccl-sweep[99]: {row}\n" for row in log(["n1", "n2"], 2).splitlines())
    proposal = report_of({"journal.txt": sent}).proposal
    assert {(one.sample.source, one.sample.destination) for one in proposal.samples} == {("n1", "n2")}
