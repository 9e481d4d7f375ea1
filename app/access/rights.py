"""The right that each route asks for; routes are named by module and function.

Routes that are not listed here are for administrators alone, and a test says so of a route that was forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.access.principals import Scope


@dataclass(frozen=True, slots=True)
class Right:
    """Right that a route asks for: one scope, or nothing at all.  ``changes``: the audit log tells of its use."""

    scope: Scope | None
    changes: bool = False


OPEN: Final = Right(None)
"""For everybody: says nothing about any tenant, or is signed by its sender."""
READ: Final = Right(Scope.READ)
COMPUTE: Final = Right(Scope.PLAN)
"""Works something out and changes nothing."""
PLAN: Final = Right(Scope.PLAN, changes=True)
OPERATE: Final = Right(Scope.OPERATE, changes=True)
SEE_ALL: Final = Right(Scope.ADMIN)
ADMIN: Final = Right(Scope.ADMIN, changes=True)

_API: Final[Mapping[str, Mapping[Right, str]]] = {
    "access": {READ: "get_caller"},
    "aliases": {READ: "list_aliases", OPERATE: "replace_aliases"},
    "audit": {SEE_ALL: "list_audit"},
    "calibrations": {
        OPEN: "get_profiler",
        READ: "list_calibrations get_calibration",
        PLAN: "create_calibration delete_calibration",
    },
    "clusters": {
        READ: "list_clusters get_cluster get_topology list_nodes get_node",
        OPERATE: "create_cluster replace_cluster change_node",
        ADMIN: "delete_cluster",
    },
    "comparisons": {COMPUTE: "create_comparison"},
    "event_sources": {
        READ: "list_event_sources get_event_source",
        ADMIN: "create_event_source delete_event_source",
    },
    "events": {
        OPEN: "receive_events",
        READ: "list_events list_conditions get_reliability list_event_adapters",
        OPERATE: "report_events",
    },
    "experiments": {COMPUTE: "create_experiments"},
    "expert_placements": {
        READ: "list_expert_map_formats",
        COMPUTE: "create_expert_placement rebalance_experts export_expert_placement",
    },
    "frameworks": {READ: "list_frameworks get_framework"},
    "health": {OPEN: "get_health get_readiness get_problem_type", READ: "get_metrics"},
    "imports": {READ: "list_import_formats", OPERATE: "import_files"},
    "keys": {SEE_ALL: "list_keys get_key", ADMIN: "create_key revoke_key"},
    "measured_runs": {
        READ: "list_runs get_run get_drift",
        COMPUTE: "create_recalibration",
        OPERATE: "create_run delete_run",
    },
    "measurements": {
        READ: "list_measurements list_snapshots get_snapshot",
        PLAN: "take_snapshot",
        OPERATE: "add_measurements",
    },
    "measuring": {COMPUTE: "plan_measurements"},
    "models": {
        READ: "list_models get_model list_model_catalogue list_gpu_kinds",
        PLAN: "create_model delete_model",
    },
    "occupancy": {READ: "get_occupancy list_spares", OPERATE: "replace_spares"},
    "outlooks": {COMPUTE: "create_outlook"},
    "plans": {
        READ: "list_plans get_plan get_timeline list_exports get_export stream_plan",
        PLAN: "create_plan delete_plan cancel_plan stop_plan",
    },
    "portfolios": {
        READ: "list_portfolios get_portfolio",
        PLAN: "create_portfolio cancel_portfolio delete_portfolio",
    },
    "predictions": {COMPUTE: "create_prediction"},
    "replan_settings": {READ: "get_replan_settings", OPERATE: "replace_replan_settings"},
    "replans": {
        READ: "list_cluster_replans list_replans get_replan get_decided_plan list_decided_exports "
        "get_decided_export stream_replan",
        COMPUTE: "answer_what_if",
        OPERATE: "create_replan approve_replan start_replan complete_replan_job complete_replan fail_replan "
        "cancel_replan",
    },
    "resilience": {READ: "get_plan_resilience", COMPUTE: "judge_resilience"},
    "routing": {READ: "list_routing get_routing", PLAN: "create_routing replace_routing delete_routing"},
    "running_jobs": {
        READ: "list_jobs get_job list_running_plans",
        OPERATE: "create_job change_job delete_job propose_running_plan",
    },
    "running_plans": {
        READ: "get_running_plan list_running_plan_exports get_running_plan_export",
        OPERATE: "approve_running_plan apply_running_plan cancel_running_plan",
    },
    "sensitivity": {COMPUTE: "analyse_sensitivity"},
    "serving_predictions": {COMPUTE: "create_serving_prediction"},
    "sweeps": {READ: "list_sweeps get_sweep list_sweep_answers", PLAN: "create_sweep cancel_sweep delete_sweep"},
    "webhooks": {
        READ: "list_webhooks get_webhook list_deliveries",
        ADMIN: "create_webhook change_webhook delete_webhook renew_webhook_secret ping_webhook retry_delivery",
    },
}
_PAGES: Final[Mapping[str, Mapping[Right, str]]] = {
    "audit_pages": {SEE_ALL: "audit_list"},
    "calibration_pages": {
        READ: "calibration_list new_calibration calibration calibration_file",
        PLAN: "create forget",
    },
    "cluster_pages": {READ: "cluster_list new_cluster cluster", OPERATE: "import_cluster"},
    "comparison_pages": {READ: "ask stored_plans", COMPUTE: "answer"},
    "expert_moves_pages": {READ: "empty", COMPUTE: "rebalance map_file"},
    "expert_pages": {READ: "statistics_list statistics", COMPUTE: "place map_file", PLAN: "take_in forget"},
    "failure_pages": {READ: "failures_of", OPERATE: "change_failures"},
    "fleet_pages": {READ: "new_fleet_plan", PLAN: "ask_for_fleet_plan"},
    "framework_pages": {READ: "framework_file"},
    "import_pages": {READ: "empty", OPERATE: "look_or_store"},
    "job_pages": {READ: "run_plan job_of_cluster", OPERATE: "register change_job"},
    "kept_pages": {READ: "kept"},
    "key_pages": {SEE_ALL: "key_list", ADMIN: "make_key end_key"},
    "measuring_pages": {READ: "what_next script"},
    "new_plan_pages": {READ: "new_plan", COMPUTE: "look_ahead", PLAN: "ask_for_plan try_story"},
    "plan_pages": {READ: "plan_list plan plan_progress", PLAN: "cancel stop"},
    "portfolio_pages": {
        READ: "portfolio_list portfolio portfolio_progress",
        PLAN: "ask_for_portfolio cancel_portfolio",
    },
    "reinforcement_pages": {READ: "new_reinforcement_plan", PLAN: "ask_for_reinforcement_plan"},
    "replan_pages": {
        READ: "replan_list replan replan_progress with_free_nodes launch_file",
        OPERATE: "change_replan",
    },
    "routes": {OPEN: "static_file", READ: "home"},
    "run_pages": {READ: "run_list", COMPUTE: "offer_calibration", PLAN: "accept_calibration"},
    "sensitivity_pages": {READ: "ask", COMPUTE: "answer"},
    "serving_plan_pages": {
        READ: "new_serving_plan",
        COMPUTE: "look_ahead_at_serving",
        PLAN: "ask_for_serving_plan",
    },
    "sign_in_pages": {OPEN: "sign_in sign_in_by_key sign_in_by_provider provider_answer sign_out"},
    "webhook_pages": {READ: "connections deliveries", ADMIN: "change_connections send_again"},
    "sweep_pages": {READ: "sweep sweep_progress", PLAN: "ask_for_sweep cancel_sweep"},
    "what_if_pages": {READ: "ask", COMPUTE: "answer"},
}

RIGHTS: Final[Mapping[str, Right]] = {
    f"{module}.{name}": right
    for table in (_API, _PAGES)
    for module, rights in table.items()
    for right, names in rights.items()
    for name in names.split()
}


def name_of(endpoint: Callable[..., Any]) -> str:
    """The name of a route's function in the table."""
    return f"{endpoint.__module__.rpartition('.')[2]}.{endpoint.__name__}"


def right_of(endpoint: Callable[..., Any]) -> Right:
    """The right that a route asks for."""
    return RIGHTS.get(name_of(endpoint), ADMIN)
