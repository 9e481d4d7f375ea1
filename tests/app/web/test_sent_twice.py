"""Forms that are sent twice, as by two clicks."""

from __future__ import annotations

from pathlib import Path

from app.db.engine import transaction
from app.db.status import PlanStatus
from app.documents.cluster import ClusterDocument
from app.serialization import jsonable
from app.services.clusters import clusters
from app.services.planning import solves
from tests.app.web_site import site, where
from tests.plans import small_cluster, small_no_plan, small_samples

TYPED = {"sequence_length": "2048", "global_batch_sequences": "8", "context_exchange": "ring", "schedule": "1f1b"}
TYPED |= dict.fromkeys(("recompute", "sharding", "offload"), "none")
CLUSTER = small_cluster().name


def test_a_form_that_is_sent_twice_finds_the_plan_of_the_first(tmp_path: Path) -> None:
    """While that waits or runs, for the same request on the same cluster."""
    with site(tmp_path) as (service, browser):
        with transaction(service.sessions) as session:
            document = ClusterDocument.from_cluster(small_cluster(), small_samples())
            clusters.create_cluster(session, document=document)

        def sent(**changes: str) -> str:
            typed = {**TYPED, "cluster": CLUSTER, "model": "llama-3-8b", **changes}
            return where(browser.post("/plans/new", data=typed))

        first = sent()
        assert sent() == first
        assert sent(effort="2") != first
        with transaction(service.sessions) as session:
            change = clusters.NodeChange(labels={"leaf": "l2"})
            clusters.change_node(session, reference=CLUSTER, node="c", change=change)
        second = sent()
        assert second != first
        assert sent() == second
        with transaction(service.sessions) as session:
            plan_id, nothing = second.rpartition("/")[2], jsonable(small_no_plan())
            assert solves.finish(session, plan_id=plan_id, status=PlanStatus.INFEASIBLE, result=nothing)
        assert sent() not in {first, second}
