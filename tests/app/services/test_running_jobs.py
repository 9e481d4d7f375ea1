"""Jobs hold GPUs, each GPU once, through plans that are proposed, approved, applied and superseded."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.running_tables import OccupiedGpuRow, RunningJobRow
from app.db.status import JobStanding, RunningPlanStatus
from app.documents.cluster import ClusterDocument
from app.serialization import jsonable
from app.services.clusters import clusters, live_clusters, snapshots
from app.services.errors import GpusTaken, NameTaken, NotFound, WrongStatus
from app.services.planning import planning_problems
from app.services.planning.requests import PlanRequest
from app.services.running import occupancy, running_jobs, running_plans
from app.services.running.occupancy import Gpus
from app.services.running.running_plans import PlanSource
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidCluster
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.jobs.running import InvalidRunningJob, RecoveryPolicy
from tests.app.api_client import plan_body
from tests.app.running_rows import CLUSTER, START, add_cluster, add_job, nodes_held, occupied, plan_on, report, told
from tests.plans import small_plan

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def _now(session: Session) -> tuple[JobStanding, float | None]:
    job = running_jobs.get_job(session, reference=CLUSTER, job="a")
    return job.standing, job.tokens_per_s


def test_a_job_on_a_failed_node_is_down_until_it_runs_elsewhere(sessions: SessionFactory) -> None:
    """Approving another plan starts nothing; a slow node leaves it running at a rate that nobody knows."""
    with transaction(sessions) as session:
        add_cluster(session)
        job = add_job(session, "a", "n0", "n1")
        assert job.plan is not None
        planned = job.plan.summary.tokens_per_s
        assert _now(session) == (JobStanding.RUNNING, planned)
        report(session, told("n1", HealthState.DEGRADED))
        assert _now(session) == (JobStanding.RUNNING, None)
        report(session, told("n0"), told("n5"))
        assert _now(session) == (JobStanding.DOWN, 0.0)
        moved = PlanSource(plan=plan_on("n2", "n3"))
        proposed = running_plans.propose_plan(session, reference=CLUSTER, job="a", source=moved)
        running_plans.approve_plan(session, running_plan_id=proposed.id)
        assert _now(session) == (JobStanding.DOWN, 0.0)
        running_plans.apply_plan(session, running_plan_id=proposed.id)
        assert _now(session) == (JobStanding.RUNNING, planned)


@on_sqlite
@pytest.mark.parametrize(("goes_round", "expected"), [(False, JobStanding.DOWN), (True, JobStanding.RUNNING)])
def test_a_lost_card_ends_a_job_unless_its_communication_goes_round_it(
    sessions: SessionFactory, goes_round: bool, expected: JobStanding
) -> None:
    """As its owner says; a failed link only slows it."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1", recovery=RecoveryPolicy(survives_lost_card=goes_round))
        report(session, told("n0", kind=EntityKind.LINK, part="n1"))
        assert _now(session) == (JobStanding.RUNNING, None)
        report(session, told("n0", kind=EntityKind.NIC, part="nic0"))
        assert _now(session)[0] is expected


def test_a_job_runs_by_one_plan_and_the_next_supersedes_it(sessions: SessionFactory) -> None:
    """Its GPUs are held from approval on; what the new plan leaves is free once it is applied."""
    with transaction(sessions) as session:
        add_cluster(session)
        job = add_job(session, "a", "n0", "n1")
        assert (job.standing, job.gpus_held) == (JobStanding.RUNNING, 8)
        moved = PlanSource(plan=plan_on("n1", "n2"))
        proposed = running_plans.propose_plan(session, reference=CLUSTER, job="a", source=moved)
        assert nodes_held(session, job) == {"n0", "n1"}
        running_plans.approve_plan(session, running_plan_id=proposed.id)
        assert nodes_held(session, job) == {"n1", "n2"}
        assert {gpu[0] for gpu in occupied(session) if gpu[4]} == {"n0"}
        running_plans.apply_plan(session, running_plan_id=proposed.id)
    with transaction(sessions) as session:
        again = running_jobs.get_job(session, reference=CLUSTER, job="a")
        assert again.plan is not None
        assert again.plan.id == proposed.id
        assert {gpu[0] for gpu in occupied(session)} == {"n1", "n2"}
        listed = running_plans.list_running_plans(session, reference=CLUSTER, job="a", limit=10)
        assert [plan.status for plan in listed.items] == [RunningPlanStatus.APPLIED, RunningPlanStatus.SUPERSEDED]


def test_no_gpu_is_given_twice_even_past_the_services(sessions: SessionFactory) -> None:
    """The second job is refused with the GPUs named; a row put in by hand meets the key of the table."""
    with transaction(sessions) as session:
        add_cluster(session)
        job = add_job(session, "a", "n0", "n1")
    with pytest.raises(GpusTaken, match="n1:0"), transaction(sessions) as session:
        add_job(session, "b", "n1", "n2")
    with transaction(sessions) as session:
        assert running_jobs.list_jobs(session, reference=CLUSTER, limit=10).items == (job,)
    row = {"cluster_id": job.cluster_id, "node": "n0", "gpu": 0, "job_id": job.id, "releasing": False}
    with pytest.raises(IntegrityError), transaction(sessions) as session:
        session.execute(insert(OccupiedGpuRow), [row])


def test_a_cancelled_approval_leaves_all_as_it_was(sessions: SessionFactory) -> None:
    """Called off before it is applied, a plan gives back what it took."""
    with transaction(sessions) as session:
        add_cluster(session)
        job = add_job(session, "a", "n0", "n1")
        before = occupied(session)
        moved = PlanSource(plan=plan_on("n1", "n2"))
        proposed = running_plans.propose_plan(session, reference=CLUSTER, job=job.id, source=moved)
        running_plans.approve_plan(session, running_plan_id=proposed.id)
        with pytest.raises(WrongStatus, match="approved first"):
            running_jobs.delete_job(session, reference=CLUSTER, job="a")
        running_plans.cancel_plan(session, running_plan_id=proposed.id)
        assert occupied(session) == before
        with pytest.raises(WrongStatus, match="cancelled"):
            running_plans.approve_plan(session, running_plan_id=proposed.id)


@on_sqlite
def test_each_step_done_twice_is_done_once(sessions: SessionFactory) -> None:
    """Approving, applying and cancelling may be repeated."""
    with transaction(sessions) as session:
        add_cluster(session)
        source = PlanSource(plan=plan_on("n0", "n1"))
        job = running_jobs.register_job(session, reference=CLUSTER, name="a", source=source)
        assert (job.standing, job.plan, job.gpus_held) == (JobStanding.IDLE, None, 0)
        (plan,) = running_plans.list_running_plans(session, reference=CLUSTER, job="a", limit=1).items
        for step in (running_plans.approve_plan, running_plans.apply_plan):
            assert step(session, running_plan_id=plan.id) == step(session, running_plan_id=plan.id)
        for _ in range(2):
            running_plans.cancel_plan(session, running_plan_id=plan.id)
        assert occupied(session) == set()
        assert running_jobs.get_job(session, reference=CLUSTER, job="a").standing is JobStanding.IDLE


@on_sqlite
def test_what_does_not_fit_is_refused_with_its_place(sessions: SessionFactory) -> None:
    """Unknown nodes, GPUs that a node does not have, names and weights."""
    with transaction(sessions) as session:
        add_cluster(session)
        with pytest.raises(InvalidRunningJob, match=r"plan\.ranks\[0\]"):
            add_job(session, "a", "nowhere", "n1")
        with pytest.raises(InvalidRunningJob, match="serves two ranks"):
            add_job(session, "b", "n1", "n1")
        bare = PlanSource(plan=replace(small_plan(), architecture=None))
        with pytest.raises(InvalidRunningJob, match="which model"):
            running_jobs.register_job(session, reference=CLUSTER, name="c", source=bare)
        with pytest.raises(InvalidRunningJob, match="weight"):
            add_job(session, "d", "n0", "n1", weight=0.0)
        with pytest.raises(InvalidRunningJob, match="plan_id"):
            PlanSource(plan=small_plan(), plan_id="p")
        add_job(session, "e", "n0", "n1")
        with pytest.raises(NameTaken):
            add_job(session, "e", "n2", "n3")
        with pytest.raises(NotFound):
            running_jobs.get_job(session, reference=CLUSTER, job="nobody")


@on_sqlite
def test_weight_and_policy_can_change_and_a_job_can_go(sessions: SessionFactory) -> None:
    """Fields left alone stay; a job that is deleted frees its GPUs."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        policy = RecoveryPolicy(may_change_batch=True, most_gpus=16)
        assert running_jobs.change_job(session, reference=CLUSTER, job="a", weight=3.0).weight == 3.0
        changed = running_jobs.change_job(session, reference=CLUSTER, job="a", recovery=policy)
        assert (changed.weight, changed.recovery) == (3.0, policy)
        running_jobs.delete_job(session, reference=CLUSTER, job="a")
        assert occupied(session) == set()


@on_sqlite
def test_a_new_job_is_planned_on_what_is_free_and_works(sessions: SessionFactory) -> None:
    """GPUs that are held count as in use, failed nodes as failed; without either the stored snapshot is meant."""
    with transaction(sessions) as session:
        add_cluster(session)
        stored = snapshots.take_snapshot(session, reference=CLUSTER)
        assert live_clusters.snapshot_for_new_job(session, reference=CLUSTER, now=START).id == stored.id
        add_job(session, "a", "n0", "n1")
        report(session, told("n7"))
        live = live_clusters.snapshot_for_new_job(session, reference=CLUSTER, now=START)
        free = {node.name for node in live.cluster.nodes if node.usable}
        assert free == {"n2", "n3", "n4", "n5", "n6"}
        assert snapshots.get_snapshot(session, snapshot_id=live.id) == live
        report(session, told("n7", HealthState.RECOVERED, at_s=60))
        running_jobs.delete_job(session, reference=CLUSTER, job="a")
        later = datetime(2026, 3, 2, tzinfo=UTC)
        assert live_clusters.snapshot_for_new_job(session, reference=CLUSTER, now=later).id == stored.id


@on_sqlite
def test_a_request_says_when_it_means_the_cluster_as_stored(sessions: SessionFactory) -> None:
    """Without saying so, a plan sees the GPUs that are held in use."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        in_use = {}
        for as_stored in (True, False):
            request = PlanRequest.model_validate(plan_body(cluster=CLUSTER, as_stored=as_stored))
            snapshot = planning_problems.make_problem(session, request=request).snapshot
            in_use[as_stored] = {node.name for node in snapshot.cluster.nodes if node.gpus_in_use}
        assert in_use == {True: set(), False: {"n0", "n1"}}


@on_sqlite
def test_spares_are_nodes_of_the_cluster_and_free_while_nobody_holds_them(sessions: SessionFactory) -> None:
    """A spare in use is listed as such; names that the cluster does not have are refused with their place."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        spares = occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7", "n1"])
        assert [(spare.node, spare.free) for spare in spares] == [("n1", False), ("n7", True)]
        with pytest.raises(Exception, match=r"nodes\[1\]"):
            occupancy.replace_spares(session, reference=CLUSTER, nodes=["n6", "n77"])


@on_sqlite
def test_nodes_that_jobs_hold_stay_in_their_cluster(sessions: SessionFactory) -> None:
    """A new version without them is refused; without a spare that nobody holds it is not."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n7")
        occupancy.replace_spares(session, reference=CLUSTER, nodes=["n6", "n5"])
        whole = clusters.get_cluster(session, reference=CLUSTER).cluster
        with pytest.raises(InvalidCluster, match="'a' holds"):
            _replace(session, replace(whole, nodes=whole.nodes[:7]))
        _replace(session, replace(whole, nodes=(*whole.nodes[:6], whole.nodes[7])))
        assert occupancy.spare_names(session, cluster_id=clusters.find_cluster(session, reference=CLUSTER).id) == (
            "n5",
        )


def _replace(session: Session, cluster: Cluster) -> None:
    document = ClusterDocument.from_cluster(cluster, ())
    clusters.replace_cluster(session, reference=CLUSTER, document=document)


def _bare_job(session: Session, cluster_id: str, name: str) -> str:
    values = {"weight": 1.0, "recovery": jsonable(RecoveryPolicy()), "created_at": START, "updated_at": START}
    session.add(RunningJobRow(id=name, cluster_id=cluster_id, name=name, standing=JobStanding.RUNNING, **values))
    session.flush()
    return name


@on_sqlite
@pytest.mark.parametrize("seed", range(3))
def test_claims_are_whole_or_undone_whatever_comes(sessions: SessionFactory, seed: int) -> None:
    """Random claims of random jobs, settled or given back, do what a dictionary of owners says."""
    dice = random.Random(seed)  # noqa: S311 - a test that can be repeated
    gpus = [(f"n{node}", gpu) for node in range(3) for gpu in range(4)]
    with transaction(sessions) as session:
        cluster_id = add_cluster(session)
        jobs = [_bare_job(session, cluster_id, name) for name in "abc"]
        owner: dict[tuple[str, int], str] = {}
        for number in range(40):
            claim_id = f"claim-{number}"
            taking = dice.sample(jobs, dice.randint(1, 3))
            wanted = {gpu: dice.choice(taking) for gpu in dice.sample(gpus, dice.randint(0, 6))}
            holdings: dict[str, Gpus] = {
                job: frozenset(gpu for gpu, taker in wanted.items() if taker == job) for job in taking
            }
            if any(owner.get(gpu, taking[0]) not in taking for gpu in wanted):
                with pytest.raises(GpusTaken):
                    occupancy.claim(session, cluster_id=cluster_id, claim_id=claim_id, holdings=holdings)
                continue
            occupancy.claim(session, cluster_id=cluster_id, claim_id=claim_id, holdings=holdings)
            staying = occupancy.staying_gpus(session, cluster_id=cluster_id)
            assert {job: staying.get(job, frozenset()) for job in taking} == holdings
            assert occupancy.held_gpus(session, cluster_id=cluster_id, but_claim=claim_id) == owner
            if dice.random() < 0.5:
                occupancy.settle(session, claim_id=claim_id)
                owner = {gpu: job for gpu, job in owner.items() if job not in taking} | wanted
            else:
                occupancy.give_back(session, claim_id=claim_id)
            assert occupancy.held_gpus(session, cluster_id=cluster_id) == owner
            assert not any(claimed or leaving for *_, claimed, leaving in occupied(session))
