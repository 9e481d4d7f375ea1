"""Seconds of multi-token prediction on the last chunk, for one micro-batch."""

from __future__ import annotations

from cluster_models.model.architecture import Architecture
from solver.candidates import FloatArray
from solver.costs.compute import Processor, elementwise_s, linear_s
from solver.costs.local_sizes import LocalSizes
from solver.costs.model_ends import embedding, head_and_loss
from solver.costs.seconds import Seconds


def prediction_ends(
    gpu: Processor, architecture: Architecture, sizes: LocalSizes, *, deferred: FloatArray | float = 0.0
) -> Seconds:
    """Seconds that the prediction layers take besides their decoder layers, which ``layers`` of the chunk count.

    Each embeds the next tokens, normalises hidden state and embedding and lays them side by side (4 passes over the
    h-wide stream in 16 bits), projects both to the width of one, and runs the shared head and a loss of its own
    (DeepSeek-V3, arXiv 2412.19437, section 2.2).  ``deferred`` as in ``head_and_loss``.
    """
    h = float(architecture.hidden)
    joined = 8.0 * h * sizes.stream_tokens
    one = (
        embedding(gpu, architecture, sizes)
        + head_and_loss(gpu, architecture, sizes, deferred=deferred)
        + linear_s(gpu, sizes.tokens, h / sizes.tensor, 2.0 * h)
        + Seconds(elementwise_s(gpu, joined, kernels=3), elementwise_s(gpu, 2.0 * joined, kernels=3))
    )
    return one * architecture.prediction_layers
