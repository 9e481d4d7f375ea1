"""Serving cases for tests."""

from __future__ import annotations

from typing import Final

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.workload import Pool, ServingConfiguration, ServingWorkload, WeightFormat, Worker
from solver.serving.cases import ServingCase
from solver.serving.loads import WorkerLinks

NVLINK: Final = WorkerLinks(domain_gpus=8, domain_bytes_per_s=450e9, cross_bytes_per_s=40e9, cross_latency_s=1e-5)


def case(
    model: str = "llama-3.1-70b",
    *,
    gpu: str = "H100",
    worker: Worker | None = None,
    replicas: int = 1,
    prefill: Pool | None = None,
    links: WorkerLinks = NVLINK,
    workload: ServingWorkload | None = None,
) -> ServingCase:
    """A case of 8 requests of 1,024 + 1,024 tokens in FP8 unless stated otherwise."""
    load = workload or ServingWorkload(1024, 1024, concurrency=8, weights=WeightFormat.FP8)
    pool = Pool(worker or Worker(tensor=4), replicas)
    return ServingCase(catalogue_model(model), gpu_kind(gpu), links, load, ServingConfiguration(pool, prefill))
