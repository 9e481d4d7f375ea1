"""Everything the page of a finished plan shows, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.presentation.choice import caution_of, choice_sentences
from app.presentation.experts import ExpertPage, expert_page
from app.presentation.figures import gib
from app.presentation.robustness import DriftRow, drift_basis, drift_rows
from app.presentation.survival import survival_sentences
from app.web.views.drawing import Drawing
from app.web.views.memory import MemoryRow, memory_bars, memory_table
from app.web.views.proof import Proof, proof
from app.web.views.schedule import Schedule, Window, schedule
from app.web.views.seats import SeatGrid, seat_grid
from app.web.views.step_time import PartOfStep, time_bar, time_table
from app.web.views.summary import Degree, OtherPlan, degrees, headline, one_line, other_plans, settings
from cluster_models.plan import MEMORY_PARTS, NoPlan, Plan, Provenance
from cluster_models.workload import TrainingWorkload

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A plan as words, tables and drawings."""

    degrees: tuple[Degree, ...]
    headline: Pairs
    caution: str
    """In what the plan is unlike anything measured; empty where it is not."""
    choice: tuple[str, ...]
    proof: Proof
    warnings: tuple[str, ...]
    settings: Pairs
    seats: SeatGrid
    unused_nodes: tuple[str, ...]
    spare_nodes: tuple[str, ...]
    survives: tuple[str, ...]
    memory_bars: Drawing
    memory_parts: tuple[str, ...]
    memory_rows: tuple[MemoryRow, ...]
    time_bar: Drawing
    time_rows: tuple[PartOfStep, ...]
    schedule: Schedule | None
    alternatives: tuple[OtherPlan, ...]
    drift_summary: str
    drift_basis: str
    drift_rows: tuple[DriftRow, ...]
    experts: ExpertPage | None
    expert_cut: int
    """GPUs that hold a share of each expert of a rank."""
    provenance: Pairs


@dataclass(frozen=True, slots=True)
class NothingFits:
    """Why there is no plan, and what would make one fit."""

    reason: str
    closest: str
    closest_details: str
    missing: str
    remedies: tuple[str, ...]
    provenance: Pairs


def result(plan: Plan, workload: TrainingWorkload, leaf_of: Mapping[str, str], window: Window) -> Result:
    """The page of ``plan``; ``leaf_of`` names the leaf switch of each node that has one."""
    return Result(
        degrees=degrees(plan.configuration.degrees),
        headline=headline(plan),
        caution=caution_of(plan),
        choice=choice_sentences(plan),
        proof=proof(plan.certificate, workload.objective, plan.selection.given_up if plan.selection else 0.0),
        warnings=plan.warnings,
        settings=settings(plan.configuration, workload),
        seats=seat_grid(plan.configuration, plan.placement, leaf_of, plan.mixed_kinds),
        unused_nodes=plan.unused_nodes,
        spare_nodes=plan.spare_nodes,
        survives=survival_sentences(plan),
        memory_bars=memory_bars(plan.memory),
        memory_parts=tuple(MEMORY_PARTS.values()),
        memory_rows=memory_table(plan.memory, plan.mixed_kinds),
        time_bar=time_bar(plan.time),
        time_rows=time_table(plan.time),
        schedule=schedule(plan.timeline, window),
        alternatives=other_plans(plan.alternatives),
        drift_summary=plan.robustness.summary if plan.robustness else "",
        drift_basis=drift_basis(plan),
        drift_rows=drift_rows(plan),
        experts=expert_page(plan),
        expert_cut=plan.configuration.degrees.expert_tensor,
        provenance=provenance(plan.provenance),
    )


def nothing_fits(answer: NoPlan) -> NothingFits:
    """The page of a search that found nothing."""
    return NothingFits(
        reason=answer.reason,
        closest=str(answer.closest.degrees) if answer.closest else "",
        closest_details=one_line(answer.closest) if answer.closest else "",
        missing=gib(answer.missing_bytes) if answer.missing_bytes is not None else "",
        remedies=answer.remedies,
        provenance=provenance(answer.provenance),
    )


def provenance(made_from: Provenance) -> Pairs:
    """What the answer was made from; the same values give the same answer."""
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
