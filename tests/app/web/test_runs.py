"""The page of measured runs."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.db.engine import transaction
from app.documents.cluster import ClusterDocument
from app.services.clusters import clusters
from app.services.feedback import measured_runs
from cluster_models.calibration.run_report import NodeTime, RunReport
from tests.app.api_client import cluster_body
from tests.app.web_site import site, told
from tests.plans import STEP_S, small_plan

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_runs_drift_and_a_calibration_that_is_accepted(tmp_path: Path) -> None:
    """Slow parts are named first; a calibration is shown with its effect, and kept once it is accepted."""
    with site(tmp_path) as (service, browser):
        assert "No run was reported yet" in told(browser.get("/runs").text)
        with transaction(service.sessions) as session:
            clusters.create_cluster(session, document=ClusterDocument.model_validate(cluster_body()))
            for day in range(4):
                times = (NodeTime("a", 0.3), NodeTime("b", 0.36))
                report = RunReport(STEP_S * (1.3 + 0.01 * day), nodes=times)
                at = BEGIN + timedelta(days=day)
                measured_runs.record_run(session, plan=small_plan(), report=report, ended_at=at, now=at)
        words = told(browser.get("/runs").text)
        assert "4 runs reported; 1 slow part suspected" in words
        assert "Node b of two-and-a-spare computes 9.1 % longer" in words
        text = browser.get("/runs").text
        assert "Measured over predicted step" in text
        assert "Measured against predicted step. On the line steps are as predicted" in text
        row = re.search(r">megatron[^<]*, [^<]+: 4</text>", text)
        assert row is not None, "frameworks and GPUs with how many runs they have"
        offered = browser.post("/runs", data={"name": "ours"}, follow_redirects=True)
        assert offered.status_code == 200
        assert "What it would change" in told(offered.text)
        document = re.search(r'name="document" value="([^"]*)"', offered.text)
        assert document is not None
        sent = {"document": html.unescape(document[1])}
        assert browser.post("/runs/accept", data=sent).headers["Location"] == "/calibrations/ours"
        assert "How far runs are off, before the fit and after" in browser.get("/calibrations/ours").text
        again = browser.post("/runs/accept", data=sent)
        assert (again.status_code, "exists already" in told(again.text)) == (422, True)
        assert browser.post("/runs", data={"cluster": "none"}).status_code == 422
        assert browser.post("/runs/accept", data={"document": "{"}).status_code == 422
