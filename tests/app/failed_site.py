"""A site with a decision on failures that has just been opened, and what a person does with its page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.db.engine import transaction
from app.db.status import ReplanStatus
from app.resources import Service
from app.services.decisions import replans
from app.services.running import occupancy
from app.services.running.running_jobs import JobRecord
from cluster_models.jobs.recovery import (
    BatchDecision,
    RecoveryAction,
)
from tests.app.running_rows import CLUSTER, add_cluster, add_job, decided, plan_on, report, solved
from tests.app.running_rows import told as heard
from tests.app.web_site import site


@dataclass
class Failed:
    """Jobs ``a`` on n0, n1 and ``b`` on n2, n3; a spare n7; n0 has failed and its replan collects."""

    service: Service
    browser: TestClient
    replan_id: str
    a: JobRecord
    b: JobRecord

    @property
    def address(self) -> str:
        """Text of the decision's page."""
        return f"/replans/{self.replan_id}"

    def page(self) -> str:
        """The decision's page as it is now."""
        answer = self.browser.get(self.address)
        assert answer.status_code == 200, answer.text
        return answer.text

    def press(self, do: str, **fields: str) -> Any:
        """Answer to a button."""
        return self.browser.post(self.address, data={"do": do, **fields})

    def solve(self, decision: BatchDecision | None = None) -> None:
        """Let the window end and the solver answer, by default that ``a`` takes the spare."""
        swap = decided({self.a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}, untouched=[self.b])
        with transaction(self.service.sessions) as session:
            solved(session, self.replan_id, decision or swap)

    def status(self) -> ReplanStatus:
        """Where the decision is."""
        with self.service.read_sessions() as session:
            return replans.get_replan(session, replan_id=self.replan_id).status


@contextmanager
def failed_site(folder: Path) -> Iterator[Failed]:
    """Jobs, a spare and a failed node on an empty database."""
    with site(folder) as (service, browser):
        with transaction(service.sessions) as session:
            add_cluster(session)
            jobs = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
            occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
            replan_id = report(session, heard("n0")).replan_id
        assert replan_id is not None
        yield Failed(service, browser, replan_id, *jobs)
