"""``meshwright replan``: what it decides, prints and writes, and how it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli import main
from app.cli.failures.failure_options import ToldFailures, reported
from app.cli.failures.replan_options import seconds_of
from app.cli.files import read_calibration
from app.documents.plan import PlanDocument, plan_from_text
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState
from tests.app.failure_files import CLUSTER, PLAN, POLICY, plan_on, write_files
from tests.app.framework_bodies import described
from tests.cluster_models.clusters import cluster_of, host
from tests.plans import small_plan
from tests.remarks import codes

JOB = ["--job", f"small={PLAN}", "--recovery", POLICY]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)


def test_a_lost_node_is_replaced_by_the_spare(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer says what to do first, and its plan is the old one with the spare in place of the lost node."""
    assert main(["replan", CLUSTER, *JOB, "--lost", "b", "--spare", "c", "--output", "out"]) == 0
    out, err = capsys.readouterr()
    words = " ".join(out.split())
    assert err == ""
    assert words.startswith(
        "1 of 1 job is touched. Failed: node b. Do this 1. Stop small, as far as it still runs."
    )
    assert "with c in place of b" in words
    assert "sbatch out/small/slurm.sh" in words
    assert "Spares used: c." in words
    after = plan_from_text(Path("out/small/plan.json").read_text())
    assert set(after.placement.hosts) == {"a", "c"}
    assert after.configuration.degrees == small_plan().configuration.degrees
    script = Path("out/small/slurm.sh").read_text()
    assert "#SBATCH --job-name=small\n" in script
    assert "#SBATCH --nodelist=c,a" in script


def test_json_is_the_answer_of_the_service_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """One document on standard output, the same as in the folder."""
    arguments = ["replan", CLUSTER, *JOB, "--lost", "b", "--spare", "all", "--json", "--output", "out"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert err == ""
    assert answer == json.loads(Path("out/decision.json").read_text())
    (job,) = answer["jobs"]
    assert (job["job"], job["action"], job["nodes_left"], job["nodes_joined"]) == ("small", "swap", ["b"], ["c"])
    assert answer["spares_used"] == ["c"]
    assert answer["gap"] <= 0.01


def test_the_safe_answer_says_that_nothing_was_searched_for(capsys: pytest.CaptureFixture[str]) -> None:
    """It can be carried out at once, and says that there may be better."""
    assert main(["replan", CLUSTER, *JOB, "--lost", "b", "--spare", "c", "--safe"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("Safe answer, made without a search")
    assert "Without --safe this command searches." in words


def test_a_free_node_that_nobody_gave_is_only_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --spare no job takes a node; the view says which it might."""
    assert main(["replan", CLUSTER, *JOB, "--lost", "b"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "No spares." in words
    assert "1 node free and no spare: c. Jobs may take it with --spare all." in words
    assert "in place of" not in words


def test_a_failure_of_nobodys_node_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The job runs on, and nothing is written down to do."""
    assert main(["replan", CLUSTER, *JOB, "--lost", "c"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("Nothing to do: the job runs on as before. Failed: node c.")
    assert "Do this" not in words


def test_reports_of_a_monitoring_system_count_and_unknown_names_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Alerts become failures of nodes; one about a stranger is left out with a line."""
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": "NodeDown", "instance": f"{node}:9100"},
            "startsAt": "2026-03-01T12:00:00Z",
            "fingerprint": node,
        }
        for node in ("b", "zz")
    ]
    Path("alerts.json").write_text(json.dumps({"version": "4", "status": "firing", "alerts": alerts}))
    told = ["--events", "alerts.json", "--adapter", "alertmanager"]
    assert main(["replan", CLUSTER, *JOB, *told, "--spare", "c", "--safe"]) == 0
    out, err = capsys.readouterr()
    assert "Failed: node b." in " ".join(out.split())
    assert "'zz:9100' is not part of two-and-a-spare" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lost", "bb"], "--lost: is not part of the cluster two-and-a-spare (got 'bb')"),
        (["--lost", "b:gpu4"], "--lost: is not a GPU of b: it has 4 (got 'b:gpu4'); 0 to 3"),
        (["--lost", "b:2"], "--lost: names no part of b (got 'b:2'); write b:gpu2 or b:nic0"),
        (["--degraded", "a-b=1.5"], "--degraded: leaves no share in (0, 1] (got 'a-b=1.5')"),
        (["--degraded", "a-b=0"], "--degraded: leaves no share in (0, 1] (got 'a-b=0')"),
        (["--degraded", "a-b"], "--degraded: does not say how much is left (got 'a-b')"),
        ([], "--lost: nothing is said to have failed"),
        (["--lost", "b", "--horizon", "6"], "--horizon: is not a duration (got '6')"),
        (["--lost", "b", "--spare", "a"], "--spare: is held by small (got 'a')"),
        (["--lost", "b", "--spare", "d"], "--spare: is not a node of the cluster two-and-a-spare (got 'd')"),
        (["--lost", "b", "--weight", "smal=2"], "--weight: is not the name of a --job (got 'smal'); did you mean"),
        (["--lost", "b", "--weight", "small=no"], "--weight: is not a positive number (got 'small=no')"),
        (["--lost", "b", "--job", f"other={PLAN}"], "--job: holds GPU 0 of b, as small does (got 'other')"),
        (["--lost", "b", "--job", f"../x={PLAN}"], "--job: is not a name of a job (got '../x')"),
        (["--lost", "b", "--job", f"other={CLUSTER}"], "cluster.yaml: plan: is not a plan"),
        (["--lost", "b", "--job", "other=gone.json"], "file: cannot be read"),
        (["--lost", "b", "--adapter", "slurm"], "--adapter: says how to read no file (got 'slurm')"),
        (
            ["--events", CLUSTER, "--adapter", "slrm"],
            "--adapter: is not a format of reports that we read (got 'slrm')",
        ),
        (["--lost", "b", "--format", "slurm"], "--output: is missing"),
        (["--lost", "b", "--output", "out", "--format", "slrm"], "did you mean 'slurm'?"),
        (["--lost", "b", "--output", PLAN], "--output: is a file"),
        (["--lost", "b", "--time-limit", "0"], "--time-limit: must be a positive number of seconds"),
    ],
)
def test_bad_input_is_one_clear_line(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2, the option, what is wrong with it and what to do; nothing on standard output and no traceback."""
    assert main(["replan", CLUSTER, *JOB, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_plan_of_another_cluster_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The line names a node that the cluster does not have."""
    text = PlanDocument.from_plan(plan_on("x1", "a"), timeline=False).model_dump_json()
    (tmp_path / "other.json").write_text(text)
    assert main(["replan", CLUSTER, "--job", "small=other.json", "--lost", "b"]) == 2
    err = capsys.readouterr().err
    assert (
        "--job small: is not a plan of the cluster two-and-a-spare: 1 of its 2 nodes are not in it, such as x1"
        in err
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90m", 5400), ("6h", 21_600), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400)],
)
def test_durations_carry_their_units(text: str, seconds: float) -> None:
    """Days to seconds, alone and together."""
    assert seconds_of("--horizon", text) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "6 hours or so", "-6h", "0s", "6x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A number without a unit, or a unit without a number."""
    with pytest.raises(InvalidInput, match="--horizon"):
        seconds_of("--horizon", text)


def test_parts_are_told_apart_by_how_they_are_written() -> None:
    """Names with dashes, links between such, numbered parts, switches; a share is pace of nodes, else bandwidth."""
    cluster = cluster_of([host(name, leaf="leaf-1", gpus=8, cards=8) for name in ("rack-1-n1", "rack-1-n2")])
    told = ToldFailures(
        lost=["rack-1-n1", "rack-1-n1:gpu3", "rack-1-n2:nic7", "leaf:leaf-1"],
        degraded=["rack-1-n1-rack-1-n2=50%", "rack-1-n2=0.8"],
        recovered=["RACK-1-N1"],
    )
    found = [event for _, event in reported(told, cluster)]
    assert [(event.kind, event.told, event.part) for event in found] == [
        (EntityKind.NODE, "rack-1-n1", ""),
        (EntityKind.GPU, "rack-1-n1", "3"),
        (EntityKind.NIC, "rack-1-n2", "7"),
        (EntityKind.SWITCH, "", "leaf:leaf-1"),
        (EntityKind.NODE, "rack-1-n1", ""),
        (EntityKind.LINK, "rack-1-n1", "rack-1-n2"),
        (EntityKind.NODE, "rack-1-n2", ""),
    ]
    assert found[4].state is HealthState.RECOVERED
    assert found[5].bandwidth_share == pytest.approx(0.5)
    assert found[6].compute_slowdown == pytest.approx(1.25)


@given(
    names=st.lists(st.from_regex(r"[a-c](-[a-c]){0,2}", fullmatch=True), min_size=2, max_size=5, unique=True),
    gpu=st.integers(0, 7),
    data=st.data(),
)
def test_every_part_is_found_under_its_name_or_called_ambiguous(
    names: list[str], gpu: int, data: st.DataObject
) -> None:
    """Whatever dashes names have: a node is itself, a link never another one unless a node or link is called so."""
    cluster = cluster_of([host(name, gpus=8, cards=8) for name in names])
    first, second = data.draw(st.permutations(names))[:2]

    def found(text: str) -> tuple[EntityKind, str, str]:
        ((_, event),) = reported(ToldFailures(lost=[text]), cluster)
        return event.kind, event.told, event.part

    assert found(first) == (EntityKind.NODE, first, "")
    assert found(f"{first}:gpu{gpu}") == (EntityKind.GPU, first, str(gpu))
    link = f"{first}-{second}"
    splits = {(a, b) for a in names for b in names if a != b and f"{a}-{b}" == link}
    if link in names:
        assert found(link) == (EntityKind.NODE, link, "")
    elif len(splits) > 1:
        with pytest.raises(InvalidInput, match="may be the link"):
            found(link)
    else:
        assert found(link) == (EntityKind.LINK, first, second)


def test_a_described_framework_stays_with_its_job() -> None:
    """The plan says all that is known of it: the new one is priced by it and says the same."""
    running = plan_on("a", "b")
    assert running.workload is not None
    plan = replace(running, workload=replace(running.workload, framework=described()))
    Path(PLAN).write_text(PlanDocument.from_plan(plan, timeline=False).model_dump_json())
    assert main(["replan", CLUSTER, *JOB, "--lost", "b", "--spare", "c", "--output", "out"]) == 0
    after = plan_from_text(Path("out/small/plan.json").read_text())
    assert set(after.placement.hosts) == {"a", "c"}
    assert after.workload is not None
    assert after.workload.framework == described()
    assert "unmeasured_framework" in codes(after.warnings)


def _calibrated() -> str:
    """A plan made with a calibration whose file lies beside it; the file's path."""
    values = {"memory_share": {"value": 0.4, "low": 0.4, "high": 0.4, "steps": 1}}
    calibration = {"name": "mine", "gpus": {"H100": values}, "frameworks": {}}
    Path("mine.json").write_text(json.dumps(calibration))
    plan = plan_on("b", "a")
    label = read_calibration("mine.json").source
    plan = replace(plan, provenance=replace(plan.provenance, calibration=label))
    Path(PLAN).write_text(PlanDocument.from_plan(plan, timeline=False).model_dump_json())
    return "mine.json"


def test_a_plan_is_priced_with_the_calibration_that_it_was_made_with(capsys: pytest.CaptureFixture[str]) -> None:
    """Without its file nothing is decided; slower memory than the shipped one shows in the throughput."""
    loss = [*JOB, "--lost", "b", "--spare", "c", "--json"]
    assert main(["replan", CLUSTER, *loss]) == 0
    shipped = json.loads(capsys.readouterr().out)["jobs"][0]["tokens_per_s_after"]
    path = _calibrated()
    assert main(["replan", CLUSTER, *loss]) == 2
    assert "--job: was planned with the calibration mine" in capsys.readouterr().err
    assert main(["replan", CLUSTER, *loss, "--calibration", path]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["tokens_per_s_after"] < shipped
    write_files(Path())
    assert main(["replan", CLUSTER, *loss, "--calibration", path]) == 2
    assert "which no --job was planned with" in capsys.readouterr().err
