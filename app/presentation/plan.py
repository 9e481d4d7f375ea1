"""A plan as pages and terminal report it: figures and sentences, most important first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.presentation.choice import caution_of, choice_sentences, other_warnings
from app.presentation.configuration import settings, settings_line
from app.presentation.costs import MemoryRow, PartOfStep, memory_rows, time_rows
from app.presentation.decision import NO_BUDGET, Budget, decision_figures
from app.presentation.experts import expert_summary
from app.presentation.figures import count, gib, interval, interval_name, percent, seconds, tflops
from app.presentation.proof import Proof, proof
from app.presentation.robustness import DriftRow, drift_basis, drift_rows, drift_summary
from app.presentation.sentences import sentence
from app.presentation.survival import survival_sentences
from cluster_models.training.plan import Alternative, Plan, Provenance
from cluster_models.training.workload import LinkBandwidth, Objective, TrainingWorkload

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class OtherPlan:
    """An alternative that lost: what it is, its figures, and why it lost."""

    configuration: str
    details: str
    step: str
    slower: str
    peak_memory: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Report on a plan in words; tables and drawings of places are made where they are shown."""

    caution: str
    """In what the plan is unlike anything measured; empty where it is not."""
    headline: Pairs
    choice: tuple[str, ...]
    proof: Proof
    warnings: tuple[str, ...]
    """Warnings but for those that the caution says already."""
    settings: Pairs
    memory: tuple[MemoryRow, ...]
    time: tuple[PartOfStep, ...]
    alternatives: tuple[OtherPlan, ...]
    spares: str
    survives: tuple[str, ...]
    drift: tuple[DriftRow, ...]
    drift_summary: str
    drift_basis: str
    experts: str
    provenance: Pairs


def plan_report(plan: Plan, workload: TrainingWorkload | None = None, budget: Budget = NO_BUDGET) -> PlanReport:
    """The report of ``plan``; ``workload``: what was asked for, where the plan does not carry it."""
    workload = workload or plan.workload
    return PlanReport(
        caution=caution_of(plan),
        headline=headline(plan, budget),
        choice=choice_sentences(plan),
        proof=proof(
            plan.certificate,
            workload.objective if workload else Objective.STEP_TIME,
            plan.selection.given_up if plan.selection else 0.0,
        ),
        warnings=other_warnings(plan),
        settings=settings(
            plan.configuration,
            workload,
            plan.mixed_kinds,
            host_bytes=max((max(stage.host_bytes, stage.disk_bytes) for stage in plan.memory), default=0.0),
        ),
        memory=memory_rows(plan.memory, plan.mixed_kinds),
        time=time_rows(plan.time),
        alternatives=other_plans(plan.alternatives, _limit_bytes(plan)),
        spares=f"Kept as spares: {', '.join(plan.spare_nodes)}." if plan.spare_nodes else "",
        survives=survival_sentences(plan),
        drift=drift_rows(plan),
        drift_summary=drift_summary(plan),
        drift_basis=drift_basis(plan),
        experts=expert_summary(plan),
        provenance=provenance(plan.provenance),
    )


def headline(plan: Plan, budget: Budget = NO_BUDGET) -> Pairs:
    """The figures a reader came for, each with its name."""
    sure, careful = plan.confidence, plan.provenance.link_bandwidth is LinkBandwidth.PESSIMISTIC
    return (
        ("throughput", f"{count(plan.tokens_per_s)} tokens/s"),
        ("per GPU", f"{count(plan.tokens_per_s_per_gpu)} tokens/s"),
        ("step time", seconds(plan.time.step_s)),
        *(() if sure is None else ((f"step time, {interval_name(sure)}", interval(sure)),)),
        ("MFU", percent(plan.mfu)),
        ("model arithmetic per GPU", tflops(plan.model_flops_per_s_per_gpu)),
        ("GPUs used", count(plan.configuration.degrees.gpus)),
        *decision_figures(plan, budget),
        *((("link bandwidth", "pessimistic (p10)"),) if careful else ()),
    )


def other_plans(alternatives: Sequence[Alternative], limit_bytes: float) -> tuple[OtherPlan, ...]:
    """The alternatives with why each lost; one above the limit of memory is no slower plan but none."""
    return tuple(
        OtherPlan(
            configuration=str(other.configuration.degrees),
            details=settings_line(other.configuration),
            step=seconds(other.step_s),
            slower=percent(other.slower_by) if other.peak_memory_bytes <= limit_bytes else "too large",
            peak_memory=gib(other.peak_memory_bytes),
            reason=sentence(other.reason),
        )
        for other in alternatives
    )


def _limit_bytes(plan: Plan) -> float:
    return max((memory.limit_bytes for memory in plan.memory), default=0.0)


def provenance(made_from: Provenance) -> Pairs:
    """Values that the answer was made from; the same ones give the same answer."""
    return (
        ("cluster", made_from.cluster_name),
        ("snapshot", made_from.snapshot_id),
        ("product", made_from.product_version),
        ("cost model", made_from.cost_model_version),
        ("calibration", made_from.calibration or "as shipped"),
        ("link bandwidth", made_from.link_bandwidth),
        ("seed", str(made_from.seed)),
        ("effort", str(made_from.effort)),
        ("solvers", ", ".join(f"{name} {version}" for name, version in made_from.solver_versions.items())),
    )
