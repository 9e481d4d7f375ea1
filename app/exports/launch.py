"""Host lists and launch scripts.  Rank order is the order of our host list, never the launcher's own."""

from __future__ import annotations

from app.exports.arithmetic import check_divisions, check_host_names, check_layers, check_world, gpus_of_host
from app.exports.megatron import megatron_arguments
from cluster_models.plan import Plan

_PORT = 29500


def render_hostfile(plan: Plan) -> str:
    """One ``host slots=n`` a line in rank order (Open MPI, DeepSpeed)."""
    _check(plan)
    size = plan.placement.gpus_per_node
    return "".join(f"{host} slots={size}\n" for host in plan.placement.hosts)


def render_torchrun(plan: Plan) -> str:
    """A script to run on every node: it finds its own node rank and starts torchrun in static mode.

    Rendezvous through c10d would number the nodes as they come, and lose the order.
    """
    _check(plan)
    placement = plan.placement
    cases = [
        f"    {host}) NODE_RANK={slot}; GPUS={','.join(map(str, gpus_of_host(plan, slot)))} ;;"
        for slot, host in enumerate(placement.hosts)
    ]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Run on each of {len(placement.hosts)} nodes: bash torchrun.sh pretrain_gpt.py ARGUMENTS",
            "set -euo pipefail",
            'case "${MESHWRIGHT_HOST:-$(hostname)}" in',
            *cases,
            '    *) echo "$(hostname) is not in this plan; set MESHWRIGHT_HOST to its name there" >&2; exit 2 ;;',
            "esac",
            'export CUDA_VISIBLE_DEVICES="$GPUS"',
            "exec torchrun \\",
            f"    --nnodes {len(placement.hosts)} --nproc-per-node {placement.gpus_per_node} \\",
            '    --node-rank "$NODE_RANK" \\',
            f'    --master-addr {placement.hosts[0]} --master-port "${{MASTER_PORT:-{_PORT}}}" \\',
            '    "$@"',
            "",
        ]
    )


def render_slurm(plan: Plan) -> str:
    """A batch script: one torchrun a node, its node rank from our list instead of SLURM_NODEID.

    Slurm sorts the node list, so it cannot carry an order.
    """
    _check(plan)
    placement = plan.placement
    hosts, size = placement.hosts, placement.gpus_per_node
    visible = " ".join(",".join(map(str, gpus_of_host(plan, slot))) for slot in range(len(hosts)))
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            "#SBATCH --job-name=meshwright",
            f"#SBATCH --nodes={len(hosts)}",
            f"#SBATCH --nodelist={','.join(hosts)}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --gpus-per-node={size}",
            *_sharing(plan),
            "# sbatch slurm.sh pretrain_gpt.py MODEL_AND_DATA_ARGUMENTS",
            "set -euo pipefail",
            f'export HOSTS="{" ".join(hosts)}"  # rank order',
            f'export GPUS="{visible}"',
            f'export MASTER_ADDR={hosts[0]} MASTER_PORT="${{MASTER_PORT:-{_PORT}}}"',
            "MEGATRON_ARGS=(",
            *(f"    {argument}" for argument in megatron_arguments(plan)),
            ")",
            "srun --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c '",
            "    hosts=($HOSTS); gpus=($GPUS)",
            '    for slot in "${!hosts[@]}"; do',
            '        if [[ "${hosts[slot]}" == "$SLURMD_NODENAME" ]]; then',
            '            export CUDA_VISIBLE_DEVICES="${gpus[slot]}"',
            f'            exec torchrun --nnodes {len(hosts)} --nproc-per-node {size} --node-rank "$slot" \\',
            '                --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$@"',
            "        fi",
            "    done",
            '    echo "$SLURMD_NODENAME is not in this plan" >&2; exit 2',
            '\' meshwright "$@" "${MEGATRON_ARGS[@]}"',
            "",
        ]
    )


def _sharing(plan: Plan) -> list[str]:
    """Whole nodes, except where other jobs hold their first GPUs."""
    size = plan.placement.gpus_per_node
    if all(gpus_of_host(plan, slot) == list(range(size)) for slot in range(len(plan.placement.hosts))):
        return ["#SBATCH --exclusive"]
    return ["# Other jobs hold GPUs of these nodes: needs a partition that shares nodes and hides no GPU of them."]


def _check(plan: Plan) -> None:
    check_world(plan)
    check_layers(plan)
    check_divisions(plan)
    check_host_names(plan)
