"""Output that is of no use is refused with the tool to send instead."""

from __future__ import annotations

import pytest

from readers import registry
from tests.readers.real_files import source_of


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("mlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 ==> ib1 (Down)\n", "ibstat"),
        ("hca_id:\tmlx5_0\n\ttransport:\tInfiniBand (0)\n", "ibstat"),
        ("# DEVICE ATTRIBUTES OPTIONS\nguid 0x0000000000000000\nm_key 0x0000000000000000\n", "iblinkinfo"),
        ('Ca\t: 0x0000000000000001 ports 1 "m1 mlx5_0"\n', "iblinkinfo"),
        ("Architecture:        x86_64\nCPU(s): 8\n", "topo -m"),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu up infinite 4 idle n[1-4]\n", "scontrol"),
        ('<?xml version="1.0" ?>\n<nvidia_smi_log>\n</nvidia_smi_log>\n', "nvidia-smi -q"),
        ("NAME   READY   STATUS   RESTARTS   AGE\np 1/1 Running 0 1d\n", "kubectl get nodes -o json"),
    ],
)
def test_the_refusal_names_the_tool_to_send(text: str, instead: str) -> None:
    reading = registry.read(source_of(text))
    assert [len(found.facts) for _, found in reading.sections] == [0]
    (refusal,) = reading.sections[0][1].refusals
    assert instead in refusal.remedy
