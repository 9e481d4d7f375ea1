"""First tokens of a closed loop that starts empty: all C requests arrive at once, as benchmarks begin.

They are prefilled in steps that are full, k prompts on each of r attention ranks, while those before them decode.
The n-th request of a worker gets its first token after

    request + ceil(n / (k r p)) (P(k) + t_decode(n / 2)),     p pipeline stages; split pools only prefill.

Where memory or the engine's limit holds fewer than n, the others wait for answers besides.  Tests hold it to the
simulation of such a trace.
"""

from __future__ import annotations

import numpy as np

from solver.serving.cases import Arrays
from solver.serving.loads import FloatArray
from solver.serving.rates import Rates
from solver.serving.steady_state import decode_of, prefill_of


def first_tokens_at_start(arrays: Arrays, rates: Rates, share: float) -> FloatArray:
    """Seconds (n,) to the first token that ``share`` of the requests in flight at the start do not exceed."""
    traffic = arrays.traffic
    split = traffic.split > 0
    each = traffic.concurrency / traffic.prefill_workers
    number = np.maximum(share * each, 1.0)
    ranks = np.clip(each, 1.0, arrays.prefill.attention_data)
    prompts = np.clip(each / ranks, 1.0, np.maximum(traffic.chunk_tokens / traffic.new_tokens, 1.0))
    steps = np.ceil(number / (prompts * ranks * arrays.prefill.pipeline))
    most = traffic.most_sequences * traffic.decode_workers / traffic.prefill_workers
    beside = np.maximum(0.5 * np.minimum(number, most) * traffic.prefill_workers / traffic.decode_workers, 1.0)
    decode_s = decode_of(arrays.decode, rates, traffic, beside).total_s
    prefill_s = prefill_of(arrays.prefill, rates, traffic, ranks, prompts).total_s
    answers = np.maximum(np.ceil(number / most) - 1.0, 0.0)
    answer_s = np.maximum(traffic.output_tokens - 1.0, 0.0) * decode_s / traffic.yields
    return np.asarray(
        rates.request_s
        + traffic.adapter_wait_s
        + steps * (prefill_s + np.where(split, 0.0, decode_s))
        + answers * answer_s
        + np.where(split, traffic.transfer_s + rates.hand_over_s, 0.0)
    )
