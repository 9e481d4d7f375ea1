"""Health checks with figures and limits, Xids, lost links, the fabric manager's errors."""

from __future__ import annotations

import pytest
from hypothesis import given

from cluster_models.cluster.topology import NodeState
from readers import registry
from readers.frame.facts import HealthFact, Operation, PortFact, RunFact
from readers.health.formats import FORMATS
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

NHC, MANAGER, KERNEL = FORMATS
FOLDER = "topology/failure_signals"
FAILED_NHC = (
    "SUCCESS:  nhc:  Health check passed:  check_gpu_count: Expected 4 and found 4\n"
    "ERROR:  nhc:  Health check failed:  check_gpu_bw: GPU 1 to GPU 3 P2P bandwidth 21.5 GB/s is below the "
    "threshold 40 GB/s. FaultCode: NHC9999\n"
    "ERROR:  nhc:  Health check failed:  check_ib_bw: test failed for IB=mlx5_ib2, IB BW=120.25. Expected at least "
    "380. FaultCode: NHC9998\n"
    "ERROR:  nhc:  Health check failed:  check_ps: Service chronyd not running\n"
)


def health_of(form: str, text: str) -> list[HealthFact]:
    chosen = {"nhc": NHC, "kernel": KERNEL, "manager": MANAGER}[form]
    return [fact for fact in understood(chosen, source_of(text)).facts if isinstance(fact, HealthFact)]


@pytest.mark.parametrize(
    ("prefix", "form"),
    [
        ("user  :info  : [Tue Nov 12 22:21:15 2024] ", "kernel-log"),
        ("kern  :info  : 2024-11-12T22:21:15,123456+00:00 ", "kernel-log"),
        ("", "kernel-log"),
    ],
)
def test_a_crash_in_a_gpu_library_is_told_whatever_stands_before_it(prefix: str, form: str) -> None:
    text = f"{prefix}train[77]: segfault at 7f00 ip 00007f01 sp 00007f02 error 4 in libnccl.so.2[7f03+d3]\n"
    ((section, found),) = registry.read(source_of(text)).sections
    assert (section.format, found.facts, found.refusals) == (form, (), ())
    assert [doubt.code for doubt in found.doubts] == ["library-crash"]


def test_what_the_fabric_manager_says_in_the_journal_is_a_doubt() -> None:
    text = "nvidia-fabricmanager[9]: fabric manager interface version 5.1 don't match with driver version 5.2.\n"
    ((section, found),) = registry.read(source_of(text)).sections
    assert section.format == "fabric-manager"
    assert [doubt.code for doubt in found.doubts] == ["fabric-manager-error"]


def test_a_passing_check_gives_its_figures() -> None:
    """Eight adapters in Gb/s and one all-reduce over eight GPUs of a host that nobody names."""
    found = understood(NHC, real(f"{FOLDER}/azure_nhc_h100_pass.txt"))
    ports = {fact.device: fact for fact in found.facts if isinstance(fact, PortFact)}
    assert len(ports) == 8
    assert ports["mlx5_ib2"].bytes_per_s == pytest.approx(393.01e9 / 8)
    assert ports["mlx5_ib2"].origin.first_line == 22
    (run,) = [fact for fact in found.facts if isinstance(fact, RunFact)]
    assert (run.operation, run.ranks, run.points[0].bytes_per_s, run.points[0].line) == (
        Operation.ALL_REDUCE,
        8,
        480.318e9,
        8,
    )
    assert [doubt.code for doubt in found.doubts] == ["host-unknown"]
    assert found.refusals == ()
    assert not any(isinstance(fact, HealthFact) for fact in found.facts)


def test_failed_checks_name_the_part_and_say_what_they_print() -> None:
    gpu, card, service = health_of("nhc", FAILED_NHC)
    assert [fact.entity for fact in (gpu, card, service)] == ["gpu:1", "nic:mlx5_ib2", "node"]
    assert gpu.state is NodeState.FAILED
    assert "NHC9999" in gpu.text
    assert gpu.origin.first_line == 2


@pytest.mark.parametrize(
    ("file", "entity", "state", "lines", "words"),
    [
        ("dmesg_xid119.log", "gpu:PCI:0000:9b:00", NodeState.FAILED, (3, 43), "(5 times)"),
        ("ib_link_flap_syslog.txt", "nic:ib6", NodeState.DEGRADED, (3, 8), "(6 times)"),
        ("kmsg_peermem.log", "node", NodeState.DEGRADED, (1, 7), "(7 times)"),
    ],
)
def test_real_logs_give_one_fact_a_trouble(
    file: str, entity: str, state: NodeState, lines: tuple[int, int], words: str
) -> None:
    """Repeated lines are counted."""
    source = real(f"{FOLDER}/{file}")
    (fact,) = understood(KERNEL, source).facts
    assert isinstance(fact, HealthFact)
    assert (fact.entity, fact.state) == (entity, state)
    assert (fact.origin.first_line, fact.origin.last_line) == lines
    assert words in fact.text
    assert [section.format for section in registry.recognise(source)] == ["kernel-log"]


@pytest.mark.parametrize(
    ("xid", "state"), [(79, NodeState.FAILED), (63, NodeState.UNKNOWN), (94, NodeState.UNKNOWN)]
)
def test_xids_of_hardware_are_told_by_gpu(xid: int, state: NodeState) -> None:
    """The host is the syslog's."""
    line = f"Jan  7 01:02:03 gpu-4 kernel: [ 12.345678] NVRM: Xid (PCI:0000:1b:00): {xid}, pid=1, something\n"
    (fact,) = health_of("kernel", line + line)
    assert (fact.host, fact.entity, fact.state) == ("gpu-4", "gpu:PCI:0000:1b:00", state)
    assert fact.text.startswith(f"Xid {xid}: ")


def test_xids_of_applications_mark_no_node() -> None:
    """Out-of-range accesses and stopped channels are the program's; neither is a crash in a library the node's."""
    text = (
        "[Mon Jan  5 01:02:03 2026] NVRM: Xid (PCI:0000:1b:00): 31, pid=1, MMU Fault\n"
        "[Mon Jan  5 01:02:04 2026] python3[9]: segfault at 0 ip 0 sp 0 error 4 in libnccl.so.2.1[7f+1000]\n"
    )
    found = understood(KERNEL, source_of(text))
    assert found.facts == ()
    assert [doubt.code for doubt in found.doubts] == ["application-xid", "library-crash"]


@pytest.mark.parametrize(
    "stamp",
    [
        "[Mon Jan  5 01:02:03 2026]",
        "2026-01-05T01:02:03,500000+00:00",
        "2026-01-05T01:02:03.500000+00:00 gpu-1 kernel:",
        "[   12.345678]",
    ],
)
def test_xids_are_found_behind_every_kind_of_stamp(stamp: str) -> None:
    text = f"{stamp} NVRM: Xid (PCI:0000:1b:00): 48, pid=1\n"
    assert [fact.entity for fact in health_of("kernel", text)] == ["gpu:PCI:0000:1b:00"]
    assert [section.format for section in registry.recognise(source_of(text))] == ["kernel-log"]


def test_a_log_without_trouble_is_refused() -> None:
    """It is known, and there is nothing in it."""
    found = understood(KERNEL, source_of("[    0.000000] Linux version 6.1\n[    1.000000] all is well\n"))
    assert found.facts == ()
    assert [(refusal.first_line, refusal.last_line) for refusal in found.refusals] == [(1, 2)]


def test_the_fabric_manager_names_switches() -> None:
    """Fatal and other errors by switch; errors without a switch are a doubt."""
    head, error = "[Jan 05 2026 01:02:0", "[ERROR] [tid 7] detected NVSwitch"
    text = (
        f"{head}3] [INFO] [tid 7] multicast group 0 is allocated.\n"
        f"{head}4] [ERROR] [tid 7] cannot find handle 5 in request 6.\n"
        f"{head}5] {error} fatal error 20034 on NVSwitch pci bus id 00000000:86:00.0 port 3\n"
        f"{head}6] {error} non-fatal error 12028 on NVSwitch pci bus id 00000000:87:00.0\n"
    )
    found = understood(MANAGER, source_of(text))
    states = {fact.entity: fact.state for fact in found.facts if isinstance(fact, HealthFact)}
    assert states == {
        "nvswitch:PCI:00000000:86:00.0": NodeState.FAILED,
        "nvswitch:PCI:00000000:87:00.0": NodeState.DEGRADED,
    }
    assert [(doubt.code, doubt.first_line) for doubt in found.doubts] == [("fabric-manager-error", 2)]
    assert [section.format for section in registry.recognise(source_of(text))] == ["fabric-manager"]


@given(damaged(FAILED_NHC))
def test_damage_never_stops_the_reader(text: str) -> None:
    """A passed check is never a failure."""
    found = sound(NHC, text)
    failures = sum(isinstance(fact, HealthFact) for fact in found.facts)
    assert failures <= text.count("Health check") - text.count("check passed:")
