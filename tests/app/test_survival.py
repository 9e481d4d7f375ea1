"""Losses that a plan survives, as they are shown: in its document, on the command line and on its page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from app.cli.planning.plan_view import plan_view
from app.documents.plan import PlanDocument, plan_from_text
from app.documents.reading import problems_of
from app.presentation.survival import survival_sentences
from app.web.planning.form import at_fields, blank, workload_data
from cluster_models.errors import InvalidWorkload
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import Plan
from cluster_models.training.workload import TrainingWorkload
from tests.plans import small_plan


def surviving() -> Plan:
    """A plan that survives a node and no leaf."""
    losses = (
        FailureDomainLosses("node", 1, 4, ("a", "b")),
        FailureDomainLosses("leaf", 0, 2, ("leaf-0",)),
        FailureDomainLosses("rack", 2, 3, ("r0", "r1", "r2")),
    )
    return replace(small_plan(), survives=losses)


def test_losses_survive_the_document() -> None:
    """Printed as JSON and read again they are the same."""
    assert plan_from_text(PlanDocument.from_plan(surviving()).model_dump_json()) == surviving()


def test_every_label_is_told_in_a_sentence() -> None:
    """Losses that may happen, and those that would take the last copy of something."""
    assert survival_sentences(surviving()) == (
        "Any 1 node of 4 may be lost; a and b together hold all copies of something.",
        "No leaf may be lost: state on leaf leaf-0 (of 2) has no copy elsewhere.",
        "Any 2 racks of 3 may be lost; r0 and r1 and r2 together hold all copies of something.",
    )
    assert survival_sentences(small_plan()) == ()
    (many,) = survival_sentences(
        replace(small_plan(), survives=(FailureDomainLosses("node", 7, 9, tuple("abcdefgh")),))
    )
    assert many.endswith("a and b and c and d and e and 3 more together hold all copies of something.")


def test_the_command_line_shows_them() -> None:
    """A section of its own, left out where nothing is known."""
    console = Console(width=200)
    shown = []
    for plan in (surviving(), small_plan()):
        with console.capture() as captured:
            console.print(plan_view(plan, everything=True))
        shown.append("What it survives" in captured.get())
    assert shown == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("node: 1, leaf: 2", {"node": 1, "leaf": 2}), ("rack", {"rack": 1}), ("node: two", {"node": "two"})],
)
def test_the_form_spells_losses(text: str, expected: dict[str, object]) -> None:
    """Label and count, 1 where no count stands; what is not a number goes on for the document to refuse."""
    assert workload_data({**blank(time_limit_s=60), "survive": text})["survive"] == expected


def test_a_refusal_stands_at_its_field() -> None:
    """Counts that cannot be survived are told beside the box."""
    with pytest.raises(InvalidWorkload) as error:
        TrainingWorkload(sequence_length=1, global_batch=1, survive={"leaf": 0})
    (found,) = at_fields(problems_of(error.value))
    assert (found.anchor, found.where) == ("survive", "Losses to survive")
