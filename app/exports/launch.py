"""Host lists and launch scripts.  Rank order is the order of our host list, never the launcher's own."""

from __future__ import annotations

from typing import Final

from app.exports.contract import SHELL, TEXT, Export, ExportFile, Files
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.shell import (
    HOSTS_SAY,
    SLURM_SAYS,
    TORCHRUN_SAYS,
    read_hostfile,
    read_slurm,
    read_torchrun,
)
from app.exports.start import command_words, preparation, started


def render_hostfile(launch: Launch) -> str:
    """One ``host slots=n`` a line in rank order (Open MPI, DeepSpeed)."""
    return "".join(f"{host} slots={launch.gpus_per_host}\n" for host in launch.hosts)


def render_torchrun(launch: Launch, options: Options) -> str:
    """A script to run on every node: it finds its own node rank and starts torchrun in static mode.

    Rendezvous through c10d would number the nodes as they come, and lose the order.
    """
    hosts, size = launch.hosts, launch.gpus_per_host
    cases = [
        f"    {host}) NODE_RANK={slot}; GPUS={gpus} ;;"
        for slot, (host, gpus) in enumerate(zip(hosts, launch.gpu_lists, strict=True))
    ]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Run on each of {len(hosts)} nodes: CHECKPOINT_PATH=FOLDER bash torchrun.sh DATA_ARGUMENTS",
            "set -euo pipefail",
            *preparation(launch, options),
            'case "${MESHWRIGHT_HOST:-$(hostname)}" in',
            *cases,
            '    *) echo "$(hostname) is not in this plan; set MESHWRIGHT_HOST to its name there" >&2; exit 2 ;;',
            "esac",
            'export CUDA_VISIBLE_DEVICES="$GPUS"',
            "exec torchrun \\",
            f"    --nnodes {len(hosts)} --nproc-per-node {size} \\",
            '    --node-rank "$NODE_RANK" \\',
            f'    --master-addr {hosts[0]} --master-port "${{MASTER_PORT:-{options.port}}}" \\',
            f"    {command_words(launch)}",
            "",
        ]
    )


def render_slurm(launch: Launch, options: Options) -> str:
    """A batch script: one torchrun a node, its node rank from our list instead of SLURM_NODEID.

    Slurm sorts the node list, so it cannot carry an order.
    """
    hosts, size = launch.hosts, launch.gpus_per_host
    visible = " ".join(launch.gpu_lists)
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"#SBATCH --job-name={options.job}",
            f"#SBATCH --nodes={len(hosts)}",
            f"#SBATCH --nodelist={','.join(hosts)}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --gpus-per-node={size}",
            *cores(launch, options, ranks=size),
            *sharing(launch),
            "# sbatch --export=ALL,CHECKPOINT_PATH=FOLDER slurm.sh DATA_ARGUMENTS",
            "set -euo pipefail",
            *preparation(launch, options),
            f'export HOSTS="{" ".join(hosts)}"  # rank order',
            f'export GPUS="{visible}"',
            f'export MASTER_ADDR={hosts[0]} MASTER_PORT="${{MASTER_PORT:-{options.port}}}"',
            f"srun --ntasks-per-node=1 {binding(options)}--kill-on-bad-exit=1 bash -c '",
            "    hosts=($HOSTS); gpus=($GPUS)",
            '    for slot in "${!hosts[@]}"; do',
            '        if [[ "${hosts[slot]}" == "$SLURMD_NODENAME" ]]; then',
            '            export CUDA_VISIBLE_DEVICES="${gpus[slot]}"',
            f'            exec torchrun --nnodes {len(hosts)} --nproc-per-node {size} --node-rank "$slot" \\',
            '                --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$@"',
            "        fi",
            "    done",
            '    echo "$SLURMD_NODENAME is not in this plan" >&2; exit 2',
            f"' meshwright {command_words(launch)}",
            *reporting(options),
            "",
        ]
    )


def reporting(options: Options) -> list[str]:
    """Lines of a Slurm script that tell the service what a run took which came to its end."""
    if not options.report:
        return []
    command = f'meshwright runs report --plan {options.report} --log "${{TRAIN_LOG:-slurm-$SLURM_JOB_ID.out}}"'
    return [
        "# MESHWRIGHT_SERVER and MESHWRIGHT_KEY name the service that is told what the run took.",
        f'[[ -z "${{MESHWRIGHT_SERVER:-}}" ]] || {command} || echo "the run was not reported" >&2',
    ]


def cores(launch: Launch, options: Options, *, ranks: int) -> list[str]:
    """Cores of a task with ``ranks``: those asked for, and on shared nodes at least one a rank.

    Where the job has its nodes for itself, Slurm gives a task all cores of the job unless told otherwise.
    """
    each = options.cpus_per_gpu or (0 if launch.whole_hosts else 1)
    return [f"#SBATCH --cpus-per-task={each * ranks}"] * (each > 0)


def binding(options: Options) -> str:
    """How ``srun`` binds tasks: one that may use a single core would slow all its ranks.

    ``srun`` takes the cores of a task from its own options or the environment, since 22.05 not from the header.
    """
    return f'--cpu-bind={options.cpu_bind} ${{SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}} '


def sharing(launch: Launch) -> list[str]:
    """Whole nodes, except where other jobs hold their first GPUs, or these are lost."""
    if launch.whole_hosts:
        return ["#SBATCH --exclusive"]
    left_out = "# Leaves out GPUs of these nodes, which others hold or which are lost"
    return [f"{left_out}: needs a partition that shares nodes and hides no GPU of them."]


def _hostfile(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    return (ExportFile("hostfile", render_hostfile(launch)),)


def _torchrun(launch: Launch, options: Options) -> Files:
    return (ExportFile("torchrun.sh", render_torchrun(launch, options), executable=True),)


def _slurm(launch: Launch, options: Options) -> Files:
    return (ExportFile("slurm.sh", render_slurm(launch, options), executable=True),)


EXPORTS_HERE: Final = (
    Export(
        "torchrun",
        "torchrun.sh",
        SHELL,
        "Script for every node: torchrun with static node ranks",
        _torchrun,
        read_torchrun,
        TORCHRUN_SAYS,
        expected=started,
    ),
    Export(
        "slurm",
        "slurm.sh",
        SHELL,
        "Slurm batch script that keeps the host order",
        _slurm,
        read_slurm,
        SLURM_SAYS,
        expected=started,
    ),
    Export(
        "hostfile",
        "hostfile",
        TEXT,
        "Hosts with slots in rank order",
        _hostfile,
        read_hostfile,
        HOSTS_SAY,
    ),
)
