"""torchrun's command line for each node, to paste or to hand to whatever starts one process a node."""

from __future__ import annotations

from typing import Final

from app.exports.contract import SHELL, Export, ExportFile, Files
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.shell import SLURM_SAYS, read_torchrun_nodes
from app.exports.start import environment, one_line, start_remarks, started


def render_torchrun_nodes(launch: Launch, options: Options) -> Files:
    """One line a node, in the order of node ranks; static rendezvous keeps it."""
    hosts, size = launch.hosts, launch.gpus_per_host
    lines = ["# One line is for one node: run each on the node that the comment above it names."]
    lines += [f"# {remark}" for remark in start_remarks(launch)]
    variables = "".join(f"{name}={value} " for name, value in environment(launch).items())
    start = f"torchrun --nnodes {len(hosts)} --nproc-per-node {size}"
    meeting = (
        f"--master-addr {hosts[0]} --master-port {options.port} {one_line(launch, options, options.checkpoint)}"
    )
    for slot, (host, gpus) in enumerate(zip(hosts, launch.gpu_lists, strict=True)):
        lines += [f"# node {host}", f"{variables}CUDA_VISIBLE_DEVICES={gpus} {start} --node-rank {slot} {meeting}"]
    return (ExportFile("torchrun_nodes.sh", "\n".join(lines) + "\n"),)


EXPORTS_HERE: Final = (
    Export(
        "torchrun-nodes",
        "torchrun_nodes.sh",
        SHELL,
        "torchrun command of each node",
        render_torchrun_nodes,
        read_torchrun_nodes,
        SLURM_SAYS,
        expected=started,
    ),
)
