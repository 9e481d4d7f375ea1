"""iperf3: the receiver's figure, whichever way the bytes went."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.formats.network.iperf3 import FORMATS
from readers.frame.facts import Memory, RunFact
from readers.frame.reading import Contents
from readers.frame.sources import Source
from tests.readers.real_files import real, source_of, understood

TEXT, JSON = FORMATS
_KEYS = st.sampled_from(
    ("start", "end", "error", "connected", "test_start", "sum_received", "sum_sent", "bits_per_second", "streams")
)
_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=15,
)


def runs(found: Contents) -> list[RunFact]:
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


def codes(found: Contents) -> set[str]:
    return {doubt.code for doubt in found.doubts}


def test_real_file() -> None:
    source = real("topology/iperf3/wan_200MB_single_stream.json")
    assert JSON.fits is not None
    assert JSON.fits(source.tree)
    found = understood(JSON, source)
    (run,) = runs(found)
    assert run.points[0].bytes_per_s == pytest.approx(350296574.28915393 / 8)
    assert "sum_received" in source.text.splitlines()[run.points[0].line - 1]
    assert run.hosts == ("10.84.0.9", "35.187.232.74")
    assert (run.tool, run.memory) == ("iperf3 3.6", Memory.HOST)
    assert run.measured_at == datetime(2021, 7, 20, 21, 5, 41, tzinfo=UTC)
    assert codes(found) == {"short-run", "wan"}
    assert found.refusals == ()


def tree(*, reverse: int = 0, received: float | None = 80e9, sent: float = 81e9) -> dict[str, Any]:
    end: dict[str, Any] = {"sum_sent": {"seconds": 10.0, "bits_per_second": sent}}
    if received is not None:
        end["sum_received"] = {"seconds": 10.0, "bits_per_second": received}
    return {
        "start": {
            "connected": [{"local_host": "10.0.0.1", "remote_host": "10.0.0.2"}],
            "version": "iperf 3.16",
            "test_start": {"num_streams": 8, "reverse": reverse},
        },
        "end": end,
    }


def read(one: Any) -> Contents:
    return understood(JSON, Source("run.json", json.dumps(one, indent=1), one))


def test_the_receiver_counts() -> None:
    found = read(tree(received=60e9))
    assert runs(found)[0].points[0].bytes_per_s == 7.5e9
    assert runs(found)[0].hosts == ("10.0.0.1", "10.0.0.2")
    assert codes(found) == {"receiver-below-sender"}
    assert codes(read(tree())) == set()


def test_reverse_runs_go_the_other_way() -> None:
    assert runs(read(tree(reverse=1)))[0].hosts == ("10.0.0.2", "10.0.0.1")


def test_the_sender_alone_is_doubted() -> None:
    found = read(tree(received=None))
    assert runs(found)[0].points[0].bytes_per_s == 81e9 / 8
    assert codes(found) == {"sender-figure"}


def test_both_ways_at_once_are_two_runs() -> None:
    one = tree()
    one["end"]["sum_received_bidir_reverse"] = {"seconds": 10.0, "bits_per_second": 40e9}
    there, back = runs(read(one))
    assert (back.hosts, back.points[0].bytes_per_s) == (there.hosts[::-1], 5e9)


def test_lost_packets_are_taken_off() -> None:
    one = tree()
    one["end"] = {"sum": {"seconds": 10.0, "bits_per_second": 8e9, "lost_percent": 25.0}}
    assert runs(read(one))[0].points[0].bytes_per_s == 0.75e9


def test_failed_tests_are_refused_and_lists_are_read() -> None:
    failed = {"start": {}, "error": "unable to connect to server: Connection refused"}
    found = read([tree(), failed])
    assert len(runs(found)) == 1
    assert "Connection refused" in found.refusals[0].sentence
    assert read({"start": {}, "end": {}}).refusals


def text(streams: int = 1, head: str = "Connecting to host 10.0.0.2, port 5201\n", retr: str = "   12") -> str:
    names = [f"{5 + 2 * i:3d}" for i in range(streams)]
    lines = [
        f"[{name}] local 10.0.0.1 port 5000{i} connected to 10.0.0.2 port 5201" for i, name in enumerate(names)
    ]
    lines.append("[ ID] Interval           Transfer     Bitrate         Retr  Cwnd")
    lines += [f"[{name}]   0.00-1.00   sec  1.00 GBytes  8.00 Gbits/sec    0   1.20 MBytes" for name in names]
    lines.append("- - - - - - - - - - - - - - - - - - - - - - - - -")
    for role, rate in (("sender", 9.5), ("receiver", 9.25)):
        end = retr + "             sender" if role == "sender" else "                  receiver"
        lines += [f"[{name}]   0.00-10.00  sec  11.0 GBytes  {rate:.2f} Gbits/sec{end}" for name in names]
        if streams > 1:
            lines.append(f"[SUM]   0.00-10.00  sec  44.0 GBytes  {rate * streams:.1f} Gbits/sec{end}")
    return head + "\n".join([*lines, "", "iperf Done.", ""])


@pytest.mark.parametrize("streams", [1, 4])
def test_text_gives_the_sum_that_arrived(streams: int) -> None:
    found = understood(TEXT, source_of(text(streams)))
    (run,) = runs(found)
    assert run.points[0].bytes_per_s == pytest.approx(9.25e9 / 8 * streams)
    assert (run.hosts, run.nodes) == (("10.0.0.1", "10.0.0.2"), 2)
    assert "receiver" in text(streams).splitlines()[run.points[0].line - 1]
    assert codes(found) == set()


def test_text_of_servers_and_of_reverse_runs_goes_the_other_way() -> None:
    server = understood(TEXT, source_of(text(head="Accepted connection from 10.0.0.2, port 4000\n")))
    reverse = "Connecting to host 10.0.0.2, port 5201\nReverse mode, remote host 10.0.0.2 is sending\n"
    for found in (server, understood(TEXT, source_of(text(head=reverse)))):
        assert runs(found)[0].hosts == ("10.0.0.2", "10.0.0.1")


def test_text_that_was_cut_is_doubted() -> None:
    found = understood(TEXT, source_of(text()[: text().index("- - -")]))
    assert runs(found)[0].points[0].bytes_per_s == 1e9
    assert codes(found) == {"partial", "short-run", "sender-figure"}


def test_bytes_per_second_are_binary_and_errors_refused() -> None:
    (run,) = runs(understood(TEXT, source_of(text().replace("Gbits/sec", "MBytes/sec"))))
    assert run.points[0].bytes_per_s == pytest.approx(9.25 * 2**20)
    found = understood(TEXT, source_of("iperf3: error - unable to connect to server: No route to host"))
    assert "No route" in found.refusals[0].sentence


@given(_ANY_JSON)
def test_any_json_is_taken(one: object) -> None:
    assert JSON.fits is not None
    JSON.fits(one)
    understood(JSON, Source("run.json", "", one))
    understood(JSON, Source("run.json", "", {"start": one if isinstance(one, dict) else {}, "end": one}))
