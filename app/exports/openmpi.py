"""Open MPI: host list, rank file, and scripts that start one process a GPU in our order.

Rank file: ``mpirun(1)`` of Open MPI 4.1 and 5.0, "Rankfiles"; a rank file binds each rank to the core it names,
so the start script keeps the order through the host list and binds nothing.
"""

from __future__ import annotations

from typing import Final

from app.exports.contract import ZIP, Export, ExportFile, Files
from app.exports.launch import render_hostfile
from app.exports.launch_value import Launch
from app.exports.megatron import environment_lines
from app.exports.options import Options
from app.exports.readback.shell import SLURM_SAYS, read_openmpi
from app.exports.start import command_words, preparation, started


def render_openmpi(launch: Launch, options: Options) -> Files:
    """``hostfile``, ``rankfile``, ``mpirun.sh`` and ``rank.sh``, which every rank runs."""
    ranks, size = [], launch.gpus_per_host
    for slot, host in enumerate(launch.hosts):
        ranks += [f"rank {slot * size + gpu}={host} slot={gpu}\n" for gpu in range(size)]
    return (
        ExportFile("hostfile", render_hostfile(launch)),
        ExportFile("rankfile", "".join(ranks)),
        ExportFile("mpirun.sh", _start(launch, options), executable=True),
        ExportFile("rank.sh", _rank(launch, options), executable=True),
    )


def _start(launch: Launch, options: Options) -> str:
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            "# Run where this folder can be read on every node:",
            f"# CHECKPOINT_PATH=FOLDER bash mpirun.sh DATA_ARGUMENTS ({launch.world} ranks)",
            "# Where a resource manager orders the nodes itself, replace --map-by slot --bind-to none by",
            "# -rf rankfile (Open MPI 4) or --map-by rankfile:file=rankfile (5); then each rank has one core.",
            "set -euo pipefail",
            *preparation(launch, options),
            'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
            f'exec mpirun -np {launch.world} --hostfile "$here/hostfile" --map-by slot --bind-to none \\',
            f'    bash "$here/rank.sh" {command_words(launch)}',
            "",
        ]
    )


def _rank(launch: Launch, options: Options) -> str:
    """Environment of one rank for ``torch.distributed``; turns a rank away that is not on its host."""
    size = launch.gpus_per_host
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            "set -euo pipefail",
            *environment_lines(launch),
            f"HOSTS=({' '.join(launch.hosts)})",
            f"GPUS=({' '.join(launch.gpu_lists)})",
            f"GPUS_PER_HOST={size}",
            "export RANK=$OMPI_COMM_WORLD_RANK",
            "slot=$((RANK / GPUS_PER_HOST))",
            'name="${MESHWRIGHT_HOST:-$(hostname)}"',
            'if [[ "${name%%.*}" != "${HOSTS[slot]%%.*}" ]]; then',
            '    echo "rank $RANK is on $name, the plan has it on ${HOSTS[slot]}" >&2; exit 2',
            "fi",
            f"export WORLD_SIZE={launch.world} LOCAL_WORLD_SIZE=$GPUS_PER_HOST",
            "export LOCAL_RANK=$((RANK % GPUS_PER_HOST))",
            'export CUDA_VISIBLE_DEVICES="${GPUS[slot]}"',
            f"export MASTER_ADDR={launch.hosts[0]} MASTER_PORT={options.port}",
            'exec python "$@"',
            "",
        ]
    )


EXPORTS_HERE: Final = (
    Export(
        "openmpi",
        "openmpi.zip",
        ZIP,
        "Open MPI host list, rank file and start scripts",
        render_openmpi,
        read_openmpi,
        SLURM_SAYS,
        expected=started,
    ),
)
