"""Clauses about decisions on failures: what was lost, what is done and why, what else was considered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.presentation.figures import duration
from app.presentation.sentences.formats import Words
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.training.rank_costs import TIME_PARTS
from cluster_models.units import GBYTE, GIB
from cluster_models.wording import named

_NOUNS: Final[Mapping[str, str]] = {
    RecoveryAction.NONE: "running on",
    RecoveryAction.RESTART_IN_PLACE: "a restart in place",
    RecoveryAction.SWAP: "a swap",
    RecoveryAction.SHRINK_DATA_PARALLEL: "going on with fewer replicas",
    RecoveryAction.REROUTE: "re-routing",
    RecoveryAction.RESHAPE: "another shape",
    RecoveryAction.WAIT: "waiting",
    RecoveryAction.PAUSE: "a pause",
}
_SETTINGS: Final = {
    "micro_batch": "micro-batch",
    "recomputation": "recomputation",
    "sharding": "sharding",
    "optimizer_offload": "offloaded percent of optimizer states",
    "offload_to_disks": "optimizer states on disks",
    "offload_parameters": "offloaded parameters",
    "offloaded_layers": "layers with offloaded activations",
    "exchange_words": "exchange of context ranks",
    "settings": "settings of the framework",
    "rank_order": "rank order",
    "schedule": "schedule",
    "global_batch": "global batch",
}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _spares_short(*, lost: int, unit_nodes: int, spares: int) -> str:
    units = "nodes" if unit_nodes == 1 else f"units of {unit_nodes} nodes in one NVLink domain"
    return f"{lost} of its {units} cannot carry its ranks, and {spares} spare ones can"


def _swapped(*, taken: Sequence[str], lost: Sequence[str], others_stay: bool) -> str:
    others = "all other ranks stay"
    if not others_stay:
        others = "and live ranks change places, which the faster step pays"
    return f"{named(taken)} for {named(lost)}, {others}"


def _fewer_replicas(*, replicas: int, before: int, global_batch: int | None) -> str:
    batch = "" if global_batch is None else f" and a global batch of {global_batch}"
    return f"it goes on with {replicas} of {before} replicas{batch}"


def _other_settings(
    *, settings: Sequence[str], before: Sequence[str], after: Sequence[str], other_layers: bool
) -> str:
    changes = [
        f"{_SETTINGS[name]} {now} instead of {was}" for name, was, now in zip(settings, before, after, strict=True)
    ]
    changes += ["other numbers of layers on its stages"] * other_layers
    return f"its degrees stay, with {' and '.join(changes)}"


def _moved(*, taken: Sequence[str], left: Sequence[str]) -> str:
    return f"{named(taken)} for {named(left)}" if left else f"it takes {named(taken)}, too"


def _nodes_back(*, seconds: float) -> str:
    return f"its nodes are expected back in {duration(seconds)}"


def _no_legal_size(*, most: int, global_batch: int, batch_may_change: bool) -> str:
    freedom = "" if batch_may_change else " and must not change"
    return (
        f"no data parallel size up to {most} is legal: the global batch of {global_batch} does not "
        f"divide{freedom}, experts and nodes do not share out evenly, or it is less than the job needs"
    )


def _no_shape(*, least_gpus: int | None, nodes: int) -> str:
    lacking = "fits" if least_gpus is None else f"is as large as {least_gpus} GPUs"
    return f"no legal shape {lacking} on what is left of the job and {nodes} more nodes"


def _others_go_on(*, jobs: Sequence[str], nodes: Sequence[str]) -> str:
    return f"{named(jobs)} {'goes' if len(jobs) == 1 else 'go'} on with {named(nodes)}"


def _gains_too_little(*, action: str, gain: float, least_gain: float) -> str:
    return (
        f"{_NOUNS[action]} would gain {_percent(gain)} of its work, and must gain "
        f"{100 * least_gain:g} % (least_gain_share)"
    )


def _whose(nodes: Sequence[str], jobs: Sequence[str]) -> str:
    return f"{named(nodes)}, which {named(jobs)} {'makes' if len(jobs) == 1 else 'make'} more of"


def _needed_by_others(*, action: str, nodes: Sequence[str], jobs: Sequence[str]) -> str:
    return f"{_NOUNS[action]} would need {_whose(nodes, jobs)}"


def _better_nodes(*, nodes: Sequence[str], jobs: Sequence[str], share: float) -> str:
    return f"with {_whose(nodes, jobs)}, it would be worth {_percent(share)} more"


def _over_budget(*, action: str, gpus: int) -> str:
    return f"{_NOUNS[action]} would hold {gpus} GPUs, which the GPU budget does not leave it"


def _moves_for_little(*, action: str, share: float, ranks: int) -> str:
    return f"{_NOUNS[action]} would be worth {_percent(share)} more, too little for moving {ranks} ranks"


def _as_good(*, holds_more: bool) -> str:
    return "as good, but it holds more GPUs" if holds_more else "as good"


def _fewer_tokens(*, share: float) -> str:
    return f"{_percent(share)} fewer tokens/s"


def _worth_less(*, share: float) -> str:
    return f"worth {_percent(share)} less over the horizon"


def _longer_downtime(*, seconds: float) -> str:
    return f"{duration(seconds)} more downtime"


def _more_to_move(*, bytes: float) -> str:  # noqa: A002 - the name of the figure
    return f"{bytes / GBYTE:.0f} GB more to move"


def _slow_node(*, node: str, slowdown: float) -> str:
    return f"{node}, which computes {100 * (slowdown - 1):.0f} % slower"


def _part(*, part: str) -> str:
    return TIME_PARTS[part]


def _slow_link(*, part: str, source: str, destination: str) -> str:
    return f"{TIME_PARTS[part]}, slowest from {source} to {destination}"


def _in_memory(*, node_bytes: float) -> str:
    return (
        f"Keep each checkpoint in the memory of its node and of the next ({node_bytes / GIB:.0f} GiB a node): "
        f"nothing is lost with a node but the steps since the checkpoint."
    )


def _plan_that_survives(*, label: str, losses: int, degrees: str, sharding: str, slower_s: float) -> str:
    return (
        f"Plan with survive: {{{label}: {losses}}}: {degrees}, sharding {sharding}, {1e3 * slower_s:.0f} ms a step "
        "more."
    )


CAUSES: Final[Mapping[str, Words]] = {
    "parts_lost": "without {parts:names}",
    "cards_failed": "a network card of {nodes:names} failed, which ended it",
}
"""Losses of a job."""

DONE: Final[Mapping[str, Words]] = {
    "nothing_lost": "nothing that it uses is lost",
    "starts_again": "it starts again where it was",
    "starts_on": "it starts on {nodes:names}",
    "own_gpus_take_over": "free GPUs of its own nodes take over",
    "swapped": _swapped,
    "fewer_replicas": _fewer_replicas,
    "peers_take_over": "its peers run the micro-batches of {parts} lost parts, and nothing moves",
    "other_degrees": "{degrees} instead of {before}",
    "other_settings": _other_settings,
    "ranks_change_places": "its ranks change places on its own nodes",
    "moved": _moved,
    "nodes_back": _nodes_back,
    "stays_paused": "it stays paused",
    "frees_gpus": "it frees its GPUs for others",
    "not_worked_out": "nothing can be worked out for it: {problem}",
}
"""Actions on a job."""

PREFERENCES: Final[Mapping[str, Words]] = {
    "gains_too_little": _gains_too_little,
    "others_go_on": _others_go_on,
    "nothing_else": "nothing else is known to work with what is left",
    "over_budget": _over_budget,
    "moves_for_little": _moves_for_little,
    "needed_by_others": _needed_by_others,
    "better_nodes_needed": _better_nodes,
    "makes_nothing": "it makes nothing over the horizon",
    "as_good": _as_good,
    "worth_less": _worth_less,
    "fewer_tokens": _fewer_tokens,
    "longer_downtime": _longer_downtime,
    "more_to_move": _more_to_move,
    "more_spares": "it takes more spares, which are worth something kept",
}
"""Arguments for an option, or against it."""

IMPOSSIBLE: Final[Mapping[str, Words]] = {
    "nodes_cannot_carry": "{nodes:names} cannot carry its ranks any more",
    "own_gpu_lost": "a GPU that it runs on is lost",
    "more_ranks_lost": "more of the ranks that it runs on are lost",
    "spares_short": _spares_short,
    "no_spares_keep_rules": "no choice of spares keeps the GPU kind of each stage and the placement rules",
    "one_replica": "it has one replica",
    "no_whole_replica": "what is left of it holds no whole replica",
    "no_legal_size": _no_legal_size,
    "sizes_do_not_fit": "{replicas} replicas or fewer do not fit into memory or break a placement rule",
    "every_replica_lives": "every replica of every stage lives",
    "may_not_reroute": "its framework does not re-route micro-batches (recovery.may_reroute)",
    "interleaved_order": "stages are interleaved, and their micro-batches have a fixed order",
    "schedule_order": "its schedule has a fixed order",
    "experts_across_data": "its experts lie across data ranks",
    "weights_shared_out": "its weights are shared out among data ranks",
    "stage_lost": "all replicas of some stage are lost",
    "too_few_gpus": "fewer than {gpus} GPUs are left (recovery.least_gpus)",
    "optimizer_state_too_large": "the optimizer state of stage {stage} does not fit on the ranks left",
    "may_not_reshape": "its degrees may not change (recovery.may_reshape)",
    "no_shape": _no_shape,
    "no_shape_as_pinned": "no shape that it may have keeps {pinned:names}, as pinned",
    "cannot_be_placed": "{degrees} cannot be placed on what is left and {nodes} nodes",
    "contradiction": "{problem}",
}
"""Why an action cannot be taken."""

LIMITS: Final[Mapping[str, Words]] = {
    "limit_part": _part,
    "limit_slow_link": _slow_link,
    "limit_slow_node": _slow_node,
    "limit_ranks_lost": "ranks lost before, whose work others share",
    "limit_shared_stage": "stage {stage}, whose work {replicas} of {of} replicas share",
    "limit_nodes_out": "the nodes that are out",
    "limit_gpus": "GPUs",
    "limit_plan": "its plan",
}
"""Limits of the throughput of a job, as nouns."""

HARDENINGS: Final[Mapping[str, Words]] = {
    "more_instances": "Keep {instances} instances of the optimizer instead of {before}: {gpu_bytes:gib} more on a "
    "GPU.",
    "no_sharding": "Do not shard: {gpu_bytes:gib} more on a GPU, and the optimizer's step is that much longer.",
    "checkpoint_in_memory": _in_memory,
    "plan_that_survives": _plan_that_survives,
}
"""Ways to survive more."""

DECISIONS: Final[Mapping[str, Words]] = {
    **CAUSES,
    **DONE,
    **PREFERENCES,
    **IMPOSSIBLE,
    **LIMITS,
    **HARDENINGS,
}
