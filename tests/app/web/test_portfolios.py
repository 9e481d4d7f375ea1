"""The page of several plans as one: asked for on a plan's page, watched, called off."""

from __future__ import annotations

from pathlib import Path

from app.db.engine import transaction
from app.db.status import PlanStatus
from app.serialization import jsonable
from app.services.clusters import snapshots
from app.services.planning import plans, solves
from solver.problem import PlanningProblem, SearchOptions
from tests.app.web_site import FOREIGN, site, told, where
from tests.plans import small_architecture, small_cluster, small_plan, small_samples, small_workload


def test_a_plan_is_asked_for_on_other_numbers_of_gpus(tmp_path: Path) -> None:
    """The same problem, capped; the plan on four GPUs is also the best of those that may use eight so far."""
    with site(tmp_path) as (service, browser):
        with transaction(service.sessions) as session:
            snapshot = snapshots.store_inline(session, cluster=small_cluster(), samples=small_samples())
            problem = PlanningProblem(snapshot, small_architecture(), small_workload())
            first = plans.create_plan(session, problem=problem, options=SearchOptions(seed=7))
            solves.finish(session, plan_id=first, status=PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
        assert "On other numbers of GPUs" in browser.get(f"/plans/{first}").text
        ask = f"/plans/{first}/portfolio"
        for wrong in ("", "8", "a, b", "0 0", " ".join(map(str, range(1, 18)))):
            refused = browser.post(ask, data={"gpus": wrong})
            assert refused.status_code == 422
            assert "are not numbers of GPUs" in told(refused.text)
        assert browser.post(ask, data={"gpus": "4, 8"}, headers=FOREIGN).status_code == 403
        assert "None yet." in told(browser.get("/portfolios").text)
        address = where(browser.post(ask, data={"gpus": "8, 4, 4"}))
        assert where(browser.post(ask, data={"gpus": "4 8"})) == address, "sent twice"
        with transaction(service.sessions) as session:
            waiting = [each for each in plans.list_plans(session, limit=9).items if each.id != first]
            assert {each.options.seed for each in waiting} == {7}
            caps = {plans.get_problem(session, plan_id=each.id).workload.max_gpus: each.id for each in waiting}
            assert set(caps) == {4, 8}
            solves.finish(session, plan_id=caps[4], status=PlanStatus.SUCCEEDED, result=jsonable(small_plan()))
        page = told(browser.get(address).text)
        assert "1 of 2 plans have ended. The best is 4 GPUs; plans without a proof may be better." in page
        assert "8 GPUs queued" in page
        assert "Plan-Finished" not in browser.get(f"{address}/progress").headers
        assert where(browser.post(f"{address}/cancel")) == address
        assert browser.get(f"{address}/progress").headers["Plan-Finished"] == "yes"
        assert "8 GPUs cancelled" in told(browser.get(address).text)
        again = where(browser.post(ask, data={"gpus": "4, 8"}))
        assert again != address
        listed = browser.get("/portfolios").text
        assert listed.index(again) < listed.index(address)
        assert "4 GPUs, 8 GPUs 2 of 2 plans have ended." in told(listed)
