"""Slurm with one task a GPU in our order: ``SLURM_HOSTFILE`` and ``--distribution=arbitrary`` of ``srun(1)``."""

from __future__ import annotations

from typing import Final

from app.exports.contract import ZIP, Export, ExportFile, Files
from app.exports.launch import binding, cores, reporting, sharing
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.shell import SLURM_SAYS, read_slurm_hostfile
from app.exports.start import command_words, preparation, started


def render_slurm_hostfile(launch: Launch, options: Options) -> Files:
    """``tasks.hosts``, each host once for each of its tasks, and the batch script that reads it."""
    hosts, size = launch.hosts, launch.gpus_per_host
    tasks = "".join(f"{host}\n" * size for host in hosts)
    script = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={options.job}",
        f"#SBATCH --nodes={len(hosts)}",
        f"#SBATCH --nodelist={','.join(hosts)}",
        f"#SBATCH --ntasks={launch.world}",
        f"#SBATCH --ntasks-per-node={size}",
        f"#SBATCH --gpus-per-node={size}",
        *cores(launch, options, ranks=1),
        *sharing(launch),
        "# One task a GPU, in the order of tasks.hosts.  In its folder:",
        "# sbatch --export=ALL,CHECKPOINT_PATH=FOLDER slurm_hostfile.sh DATA_ARGUMENTS",
        "set -euo pipefail",
        *preparation(launch, options),
        'export SLURM_HOSTFILE="${SLURM_SUBMIT_DIR:-$PWD}/tasks.hosts"',
        'if [[ ! -r "$SLURM_HOSTFILE" ]]; then echo "$SLURM_HOSTFILE is missing" >&2; exit 2; fi',
        f'export GPUS="{" ".join(launch.gpu_lists)}"',
        f"export MASTER_ADDR={hosts[0]} MASTER_PORT={options.port}",
        f"export WORLD_SIZE={launch.world} LOCAL_WORLD_SIZE={size}",
        f"srun --ntasks={launch.world} --distribution=arbitrary {binding(options)}--kill-on-bad-exit=1 bash -c '",
        "    gpus=($GPUS)",
        "    export RANK=$SLURM_PROCID LOCAL_RANK=$((SLURM_PROCID % LOCAL_WORLD_SIZE))",
        '    export CUDA_VISIBLE_DEVICES="${gpus[SLURM_PROCID / LOCAL_WORLD_SIZE]}"',
        '    exec python "$@"',
        f"' meshwright {command_words(launch)}",
        *reporting(options),
        "",
    ]
    return (
        ExportFile("slurm_hostfile.sh", "\n".join(script), executable=True),
        ExportFile("tasks.hosts", tasks),
    )


EXPORTS_HERE: Final = (
    Export(
        "slurm-hostfile",
        "slurm_hostfile.zip",
        ZIP,
        "Slurm batch script with one task a GPU in host order",
        render_slurm_hostfile,
        read_slurm_hostfile,
        SLURM_SAYS,
        expected=started,
    ),
)
