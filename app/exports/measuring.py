"""Scripts that measure the pairs of a measuring plan with nccl-tests, under Slurm, Open MPI and Kubernetes.

Each pair gets a log of its own, to be imported as it is.  Before each test stands a line that no tool prints::

    # meshwright: nodes=a,b gpus=8 test=alltoall_perf pairs_active=4 started=2026-03-01T10:00:00Z

and after a test that failed ``# meshwright: exit=CODE``; the sweep goes on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from app.exports.contract import ExportFile, Files
from app.exports.manifests import JOB_LABEL, manifest
from app.exports.options import DEFAULTS, Options
from cluster_models.errors import InvalidConfiguration
from solver.measuring.choose import MeasuringPlan, Wanted
from solver.measuring.sizes import Trial

_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LONGEST_LABEL: Final = 63
_TRY: Final = """\
# try NODES PAIRS_ACTIVE PROGRAM GPUS SMALLEST LARGEST FACTOR: one test, launched as this cluster does
try() {
    local nodes=$1 active=$2 program=$3 gpus=$4
    echo "# meshwright: nodes=$nodes gpus=$gpus test=${program}_perf pairs_active=$active \
started=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    launch "$nodes" "$gpus" "${NCCL_TESTS:-/opt/nccl-tests/build}/${program}_perf" \\
        -b "$5" -e "$6" -f "$7" -g 1 2>&1 || echo "# meshwright: exit=$?"
}
"""
_PAIR: Final = """\
# pair A B PAIRS_ACTIVE TRIAL...: all tests of two nodes, one after another, into a log of their own
pair() {
    local a=$1 b=$2 active=$3 trial
    shift 3
    for trial in "$@"; do
        # shellcheck disable=SC2086 - the words of a trial
        try "$a,$b" "$active" $trial
    done >"$OUT/nccl_N2_${a}_${b}.log"
}
"""
_SLURM: Final = """\
launch() {  # NODES GPUS COMMAND...
    local nodes=$1 gpus=$2
    shift 2
    timeout "${LIMIT_S:-900}" srun --nodes=2 --nodelist="$nodes" --ntasks=$((2 * gpus)) \\
        --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --overlap --mpi="${SLURM_MPI:-pmix}" "$@" </dev/null
}
"""
_OPEN_MPI: Final = """\
launch() {  # NODES GPUS COMMAND...
    local nodes=$1 gpus=$2
    shift 2
    # shellcheck disable=SC2086 - MPI_OPTIONS are words
    timeout "${LIMIT_S:-900}" mpirun -np $((2 * gpus)) --host "${nodes%,*}:$gpus,${nodes#*,}:$gpus" \\
        --map-by "ppr:$gpus:node" --bind-to none ${MPI_OPTIONS:-} "$@" </dev/null
}
"""
_KUBERNETES: Final = """\
launch() {  # NODES GPUS COMMAND...: the operator's host file names the two pods
    local gpus=$2
    shift 2
    timeout "${LIMIT_S:-900}" mpirun -np $((2 * gpus)) --map-by "ppr:$gpus:node" --bind-to none "$@" </dev/null
}
"""


class Launcher(StrEnum):
    """Launcher of the tests."""

    SLURM = "slurm"
    MPI = "mpi"
    KUBERNETES = "kubernetes"
    NONE = "none"


def scripts(plan: MeasuringPlan, launcher: Launcher, options: Options = DEFAULTS) -> Files:
    """Scripts to run; none where there is nothing to measure.

    Raises ``InvalidConfiguration`` where a script cannot hold a node's name.
    """
    if not plan.pairs:
        return ()
    match launcher:
        case Launcher.SLURM:
            return render_slurm(plan)
        case Launcher.MPI:
            return render_mpi(plan)
        case Launcher.KUBERNETES:
            return render_kubernetes(plan, options)
        case Launcher.NONE:
            return ()


def render_slurm(plan: MeasuringPlan) -> Files:
    """A batch script over all nodes of the plan: each test is a job step on its two nodes."""
    hosts = _hosts(plan)
    gpus = max(trial.ranks_per_node for wanted in _all(plan) for trial in wanted.trials)
    head = [
        "#!/usr/bin/env bash",
        "#SBATCH --job-name=meshwright-measure",
        f"#SBATCH --nodes={len(hosts)}",
        f"#SBATCH --nodelist={','.join(hosts)}",
        "#SBATCH --exclusive",
        f"#SBATCH --gpus-per-node={gpus}",
        f"#SBATCH --time={_minutes(plan)}",
        "# NCCL_TESTS=/path/to/nccl-tests/build sbatch measure.sh",
    ]
    return (ExportFile("measure.sh", _script(plan, head, _SLURM), executable=True),)


def render_mpi(plan: MeasuringPlan) -> Files:
    """A script to run where ``mpirun`` of Open MPI reaches all nodes of the plan."""
    _hosts(plan)
    head = ["#!/usr/bin/env bash", "# NCCL_TESTS=/path/to/nccl-tests/build bash measure.sh"]
    return (ExportFile("measure.sh", _script(plan, head, _OPEN_MPI), executable=True),)


def render_kubernetes(plan: MeasuringPlan, options: Options = DEFAULTS) -> Files:
    """Jobs of Kubeflow's MPI operator, one manifest a round, and a script that runs round after round.

    ``options.image`` holds nccl-tests built with MPI, Open MPI and an SSH server, as the operator asks.
    """
    for host in _hosts(plan):
        if len(host) > _LONGEST_LABEL:
            problem = f"is longer than a label value, {_LONGEST_LABEL} characters"
            raise InvalidConfiguration("measuring.nodes", host, problem)
    files = []
    lines = ["#!/usr/bin/env bash", "# Needs kubectl and the MPI operator (MPIJob v2beta1)", *_FOLDER]
    space = f"--namespace {options.namespace}"
    for number, group in enumerate(plan.rounds, start=1):
        file = f"round-{number:03d}.yaml"
        jobs = [_job_name(options, number, index) for index in range(len(group))]
        documents = [_mpi_job(wanted, len(group), job, options) for wanted, job in zip(group, jobs, strict=True)]
        files.append(ExportFile(file, manifest((f"Round {number}: {len(group)} pairs at once",), *documents)))
        lines.append(f'kubectl apply {space} -f "$HERE/{file}"')
        for wanted, job in zip(group, jobs, strict=True):
            a, b = wanted.pair
            chosen = f"--selector training.kubeflow.org/job-name={job},training.kubeflow.org/job-role=launcher"
            lines.append(f"kubectl wait {space} --for=condition=Succeeded --timeout=7200s mpijob/{job} || true")
            lines.append(f'kubectl logs {space} {chosen} --tail=-1 >"$OUT/nccl_N2_{a}_{b}.log" || true')
        lines.append(f'kubectl delete {space} -f "$HERE/{file}" --wait=true')
    return (ExportFile("measure.sh", "\n".join([*lines, ""]), executable=True), *files)


_FOLDER: Final = (
    "set -uo pipefail",
    'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
    'OUT="${OUT:-$PWD/measured}"',
    'mkdir -p "$OUT"',
)


def _script(plan: MeasuringPlan, head: Sequence[str], launch: str) -> str:
    lines = [*head, "set -uo pipefail", 'OUT="${OUT:-$PWD/measured}"', 'mkdir -p "$OUT"', launch + _TRY + _PAIR]
    for number, group in enumerate(plan.rounds, start=1):
        lines.append(f"# round {number} of {len(plan.rounds)}")
        for wanted in group:
            words = " ".join(f"'{_words(trial)}'" for trial in wanted.trials)
            lines.append(f"pair {wanted.pair[0]} {wanted.pair[1]} {len(group)} {words} &")
        lines.append("wait")
    lines.append('echo "logs of all pairs: $OUT"')
    return "\n".join([*lines, ""])


def _words(trial: Trial) -> str:
    return (
        f"{trial.collective.value} {trial.ranks_per_node} "
        f"{trial.smallest_bytes} {trial.largest_bytes} {trial.factor}"
    )


def _mpi_job(wanted: Wanted, active: int, job: str, options: Options) -> dict[str, Any]:
    """Two workers on the pair's nodes, one each, and a launcher that runs the tests one after another."""
    gpus = max(trial.ranks_per_node for trial in wanted.trials)
    a, b = wanted.pair
    tries = "".join(f"try {a},{b} {active} {_words(trial)}\n" for trial in wanted.trials)
    labels = {JOB_LABEL: job}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [a, b]}
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    worker = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [here]}]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        },
        "containers": [
            {
                "name": "worker",
                "image": options.image,
                "resources": {"limits": {options.gpu_resource: gpus}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - where NCCL maps memory
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    command = ["bash", "-c", f"set -u\n{_KUBERNETES}{_TRY}{tries}"]
    allowed = [{"name": f"OMPI_ALLOW_RUN_AS_ROOT{word}", "value": "1"} for word in ("", "_CONFIRM")]
    launcher = {"containers": [{"name": "launcher", "image": options.image, "command": command, "env": allowed}]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": job, "namespace": options.namespace, "labels": {JOB_LABEL: options.job}},
        "spec": {
            "slotsPerWorker": gpus,
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": launcher}},
                "Worker": {
                    "replicas": 2,
                    "restartPolicy": "Never",
                    "template": {"metadata": {"labels": labels}, "spec": worker},
                },
            },
        },
    }


def _job_name(options: Options, number: int, index: int) -> str:
    name = f"{options.job}-r{number}p{index}"
    if len(f"{name}-launcher-xxxxx") > _LONGEST_LABEL:
        raise InvalidConfiguration(
            "options.job", options.job, "leaves no room for the names of its pods", "choose a shorter name"
        )
    return name


def _all(plan: MeasuringPlan) -> list[Wanted]:
    return [wanted for group in plan.rounds for wanted in group]


def _hosts(plan: MeasuringPlan) -> list[str]:
    """The nodes of all pairs by name; raises ``InvalidConfiguration`` where a script cannot hold them."""
    hosts = sorted({name for wanted in _all(plan) for name in wanted.pair})
    if not hosts:
        raise InvalidConfiguration(
            "measuring.rounds", [], "there is no pair to measure", "ask for more time or pairs"
        )
    for host in hosts:
        if not _HOST.fullmatch(host):
            problem = "cannot stand in a script: host names are letters, digits, dots, dashes and underscores"
            raise InvalidConfiguration("measuring.nodes", host, problem, "rename the node in the cluster")
    return hosts


def _minutes(plan: MeasuringPlan) -> int:
    """Twice what the tests should take and an hour, since a limit that is too short costs all that follows."""
    return 60 + int(2 * plan.seconds / 60)
