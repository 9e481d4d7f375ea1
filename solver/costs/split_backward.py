"""Backward passes whose gradients of weights wait: what that changes about kernels, and what it holds meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mlp
from cluster_models.training.schedules import as_run
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.calibration import Calibration
from solver.costs.layer_costs import projections
from solver.costs.local_sizes import LocalSizes, gathered_tokens


def calibration_under(calibration: Calibration, batch: CandidateBatch) -> Calibration:
    """``calibration`` with its framework as it runs the settings and the schedule of candidates that share them."""
    framework = as_run(batch.chosen.under(calibration.framework), batch.runs)
    return calibration if framework is calibration.framework else replace(calibration, framework=framework)


def waiting_bytes(architecture: Architecture, sizes: LocalSizes, layers: IntArray) -> FloatArray:
    """(n, C) bytes that wait for the gradients of weights of one micro-batch in a chunk with ``layers``.

    They are gradients of the outputs of linear layers; the inputs are activations, which are held for as long
    (``layers``: (C, K) or (n, C, K)).
    """
    element, h = sizes.element_bytes, architecture.hidden
    fan = 2.0 if architecture.gated_mlp else 1.0
    outputs = {
        Mlp.DENSE: fan * architecture.mlp_hidden * sizes.shard_tokens + h * sizes.tokens,
        Mlp.NONE: np.zeros_like(sizes.tokens),
    }
    if (experts := architecture.experts) is not None:
        rows = gathered_tokens(experts, sizes)
        sparse = (fan * experts.hidden / sizes.expert_tensor + architecture.expert_width) * rows
        sparse = sparse + experts.count * sizes.shard_tokens
        if experts.shared_hidden:
            sparse = sparse + fan * experts.shared_hidden * sizes.shard_tokens + h * sizes.tokens
        if experts.latent:
            sparse = sparse + (experts.latent + h) * sizes.shard_tokens
        outputs[Mlp.EXPERTS] = sparse
    kinds = []
    for kind in architecture.layer_kinds:
        products = projections(architecture.of_mixer(kind.mixer), sizes, kind.mixer)
        kinds.append(sum((m * n for m, n, _ in products), outputs[kind.mlp]))
    return np.asarray(element * (layers * np.stack(kinds, axis=1)[:, None, :]).sum(axis=-1))
