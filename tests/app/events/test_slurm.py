"""Output of Slurm about nodes: blocks, tables, JSON, and lines of trigger programs."""

from __future__ import annotations

import pytest

from cluster_models.errors import InvalidInput
from cluster_models.health.slurm import state_of
from tests.app.events.reports import NOW, read, shown


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ("IDLE", "recovered"),
        ("MIXED+PLANNED", "recovered"),
        ("alloc", "recovered"),
        ("IDLE*", "failed"),
        ("DOWN+DRAIN", "failed"),
        ("DOWN*", "failed"),
        ("IDLE+DRAIN", "draining"),
        ("drng", "draining"),
        ("FAILING", "draining"),
        ("MIXED$", "draining"),
        ("IDLE+REBOOT_ISSUED", "draining"),
        ("idle~", "draining"),
        ("IDLE+NOT_RESPONDING", "failed"),
        ("ALLOCATED+CLOUD", "recovered"),
        ("UNKNOWN", "suspected"),
        ("NONSENSE", None),
        ("", None),
    ],
)
def test_the_worst_of_joined_states_holds(states: str, state: str | None) -> None:
    assert state_of(states) == state


def test_nodes_of_scontrol_in_blocks_and_in_lines() -> None:
    """With their reason, whose brackets name a user and a time without a zone."""
    blocks = (
        "NodeName=n[1-2] Arch=x86_64\n   State=DOWN*+DRAIN ThreadsPerCore=2\n"
        "   Reason=NHC: State=odd GPU count [root@2026-03-01T10:00:00]\n\n"
        "NodeName=n3 Arch=x86_64\n   State=MIXED CPUTot=8\n"
    )
    reported = read("slurm", blocks)
    assert shown(reported) == ["node n1 failed", "node n2 failed", "node n3 recovered"]
    assert reported.events[0].text == "DOWN*+DRAIN: NHC: State=odd GPU count"
    assert reported.events[0].occurred_at == NOW
    assert reported.events[0].is_sighting
    line = (
        "NodeName=n3 Arch=x86_64 OS=Linux 5 State=DRAIN ThreadsPerCore=2 Reason=bad disk [root@2026-03-01T10:00:00]"
    )
    assert shown(read("slurm", line)) == ["node n3 draining"]


def test_tables_of_sinfo() -> None:
    """Columns by their heads, wherever they stand; a reason may hold spaces."""
    reasons = (
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "Not responding       slurm     2026-03-01T10:00:00 n[1-2]\n"
        "IB port down twice   root      2026-03-01T10:00:00 n3\n"
    )
    assert shown(read("slurm", reasons)) == ["node n1 failed", "node n2 failed", "node n3 draining"]
    nodes = (
        "NODELIST   NODES PARTITION STATE \nn1             1      gpu idle \nn1  1 debug idle*\nn2 1 gpu drain\n"
    )
    assert shown(read("slurm", nodes)) == ["node n1 failed", "node n2 draining"]
    piped = "HOSTNAMES|STATE|REASON\nn1|down*|a | b\nn2|mixed|none\n"
    assert shown(read("slurm", piped)) == ["node n1 failed", "node n2 recovered"]
    partitions = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*  up  infinite  2  down* n[5-6]\n"
    assert shown(read("slurm", partitions)) == ["node n5 failed", "node n6 failed"]


def test_json_of_scontrol_and_sinfo() -> None:
    seconds = int(NOW.timestamp()) - 60
    nodes = [
        {
            "name": "n1",
            "state": ["DOWN", "NOT_RESPONDING"],
            "reason": "gone",
            "reason_changed_at": {"number": seconds},
        },
        {"name": "n2", "state": "idle", "state_flags": ["DRAIN"], "reason_changed_at": seconds},
        {"name": "n3", "state": ["IDLE"], "reason_changed_at": 0},
    ]
    reported = read("slurm", {"nodes": nodes, "errors": []})
    assert shown(reported) == ["node n1 failed", "node n2 draining", "node n3 recovered"]
    assert [(NOW - each.occurred_at).total_seconds() for each in reported.events] == [60, 60, 0]
    rows = [{"nodes": {"nodes": ["n1", "n2"]}, "node": {"state": ["DOWN"]}, "reason": {"description": "gone"}}]
    assert shown(read("slurm", {"sinfo": rows})) == ["node n1 failed", "node n2 failed"]


def test_a_trigger_program_says_what_happened_to_which_nodes() -> None:
    assert shown(read("slurm", "down n[1-2]\nup n3\nstrigger --drained n4")) == [
        "node n1 failed",
        "node n2 failed",
        "node n3 recovered",
        "node n4 draining",
    ]


def test_what_cannot_be_read_is_shown() -> None:
    reported = read("slurm", "NodeName=n1 State=NONSENSE\nNodeName=n[1 State=DOWN\nNodeName=n2 State=DOWN\n")
    assert [each.told for each in reported.events] == ["n2"]
    assert [each.value for each in reported.unread] == ["NONSENSE", "n[1"]
    assert all(each.remedy for each in reported.unread)


@pytest.mark.parametrize("body", ["", "hello", "{}", '{"jobs": []}', "{"])
def test_other_texts_are_refused(body: str) -> None:
    with pytest.raises(InvalidInput):
        read("slurm", body)
