"""Figures of DCGM and Xids of the kernel log."""

from __future__ import annotations

import pytest

from cluster_models.errors import InvalidInput
from cluster_models.health.xids import state_of_xid
from tests.app.events.reports import NOW, read, shown


def figure(name: str, value: str, gpu: int = 3, **labels: str) -> str:
    """One line of the exporter."""
    told = {
        "gpu": str(gpu),
        "UUID": f"GPU-{gpu}",
        "pci_bus_id": f"00000000:4{gpu}:00.0",
        "Hostname": "n1",
        **labels,
    }
    inside = ",".join(f'{key}="{label}"' for key, label in told.items())
    return f"{name}{{{inside}}} {value}\n"


XID = "DCGM_FI_DEV_XID_ERRORS"


@pytest.mark.parametrize(
    ("xid", "text", "state"),
    [
        (79, "", "failed"),
        (48, "", "failed"),
        (119, "", "failed"),
        (94, "", "suspected"),
        (63, "", "suspected"),
        (999, "", "suspected"),
        (13, "", None),
        (43, "", None),
        (45, "", None),
        (0, "", None),
        (149, "NETIR Nonfatal XC0", "suspected"),
        (149, "NETIR Fatal XC0", "failed"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "failed"),
        (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "recovered"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "draining"),
        (154, "", "suspected"),
    ],
)
def test_the_catalogue_says_what_an_xid_is(xid: int, text: str, state: str | None) -> None:
    assert state_of_xid(xid, text) == state


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (figure(XID, "79"), "gpu n1:3 failed Xid 79"),
        (figure(XID, "0"), "gpu n1:3 recovered"),
        (figure("DCGM_EXP_XID_ERRORS_COUNT", "2", xid="48"), "gpu n1:3 failed Xid 48"),
        (figure("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1"), "gpu n1:3 failed DCGM_FI_DEV_ROW_REMAP_FAILURE"),
        (figure("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0"), "gpu n1:3 recovered DCGM_FI_DEV_ROW_REMAP_FAILURE"),
        (figure("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "4"), "gpu n1:3 failed DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
        (
            figure("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "72"),
            "gpu n1:3 degraded DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        ),
        (
            figure("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "4"),
            "gpu n1:3 recovered DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        ),
        (figure("DCGM_FI_DEV_GPU_NVLINK_ERRORS", "2"), "gpu n1:3 failed DCGM_FI_DEV_GPU_NVLINK_ERRORS"),
    ],
)
def test_a_figure_becomes_a_sighting(line: str, report: str) -> None:
    reported = read("dcgm", line)
    assert shown(reported) == [report]
    assert reported.events[0].is_sighting


def test_a_gpu_is_well_as_a_whole_only_without_any_finding() -> None:
    """The last Xid of an application may hide an older one: nothing is taken back for it."""
    text = figure(XID, "0") + figure("DCGM_FI_DEV_ROW_REMAP_PENDING", "1") + figure(XID, "45", gpu=4)
    assert shown(read("dcgm", text)) == ["gpu n1:3 suspected DCGM_FI_DEV_ROW_REMAP_PENDING"]


def test_other_figures_and_comments_are_passed_over() -> None:
    text = (
        "# HELP DCGM_FI_DEV_GPU_TEMP t\n" + figure("DCGM_FI_DEV_GPU_TEMP", "41") + 'up{job="x"} 1\n' + "other 3\n"
    )
    assert shown(read("dcgm", text)) == []
    assert shown(read("dcgm", figure(XID, "NaN"))) == []


def test_a_bus_address_becomes_the_number_that_figures_tell() -> None:
    line = "2026-03-01T11:00:00+00:00 N1 kernel: NVRM: Xid (PCI:0000:43:00): 79, pid=1, name=python3, fell off"
    reported = read("dcgm", figure(XID, "0") + line)
    assert shown(reported) == ["gpu n1:3 recovered", "gpu N1:3 failed Xid 79"]
    assert shown(read("dcgm", line)) == ["gpu N1:PCI:0000:43:00 failed Xid 79"]
    assert (NOW - read("dcgm", line).events[0].occurred_at).total_seconds() == 3600


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Mar  1 10:00:00 n7 kernel: [  12.5] NVRM: Xid (PCI:0000:1b:00): 48, pid=2, dbe", "n7"),
        ("<3>1 2026-03-01T11:00:00.123456Z n7 kernel - - - NVRM: Xid (PCI:0000:1b:00.0): 48", "n7"),
        ("n7 kernel: NVRM: GPU0 Xid (PCI:0000:1b:00): 48, x", "n7"),
        ("Mar  1 10:00:00 n7 kernel: NVRM: GPU at PCI:0000:1b:00: GPU-1 has fallen off the bus.", "n7"),
    ],
)
def test_lines_of_the_kernel_log_in_several_spellings(line: str, told: str) -> None:
    (event,) = read("dcgm", line).events
    assert (event.told, event.part, event.state) == (told, "PCI:0000:1b:00", "failed")
    assert not event.is_sighting


def test_a_line_without_a_host_is_shown_unless_the_figures_are_of_one() -> None:
    line = "[  12.5] NVRM: Xid (PCI:0000:1b:00): 48, dbe"
    (unread,) = read("dcgm", line).unread
    assert (unread.field, "host" in unread.remedy) == ("line 1.host", True)
    assert shown(read("dcgm", figure(XID, "0") + line))[1] == "gpu n1:PCI:0000:1b:00 failed Xid 48"


@pytest.mark.parametrize("body", ["", "hello\n", "up 1\n", b"\xff\xfe"])
def test_other_texts_are_refused(body: str | bytes) -> None:
    with pytest.raises(InvalidInput):
        read("dcgm", body)
