"""Texts of the files that the command line's tests name."""

from __future__ import annotations

CLUSTER = """
name: pair
nodes:
  - {name: n1, gpu_kind: H100-SXM5-80GB, gpu_count: 4, nics: {count: 4, rate_gbits_per_s: 400}}
  - {name: n2, gpu_kind: H100-SXM5-80GB, gpu_count: 4, nics: {count: 4, rate_gbits_per_s: 400}}
measurement_tables:
  - {tool: nccl-tests, collective: sendrecv, ranks_per_node: 4, message_bytes: [268435456], pairs: [[n1, n2, 40]]}
"""
WORKLOAD = "sequence_length: 2048\nglobal_batch_sequences: 8\n"
