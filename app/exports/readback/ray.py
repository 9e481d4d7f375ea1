"""Read a Python module of constants without running it."""

from __future__ import annotations

import ast
from typing import Any, Final

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.shell import TORCHRUN_SAYS, start_claims
from app.exports.readback.words import file_named
from cluster_models.training.plan import RankOrder

RAY_SAYS: Final = TORCHRUN_SAYS - {"first_host"} | {
    "tensor",
    "context",
    "data",
    "pipeline",
    "expert",
    "expert_tensor",
    "rank_order",
}


def read_ray(files: Files) -> Claims:
    """The constants of ``placement_group.py``, which must multiply to its world size."""
    said = _constants(file_named(files, "placement_group.py"))
    degrees, hosts = said["DEGREES"], said["HOSTS"]
    claims = start_claims(hosts, said["GPUS"], nodes=len(hosts), size=said["GPUS_PER_HOST"], first="")
    product = degrees["tensor"] * degrees["context"] * degrees["data"] * degrees["pipeline"]
    if not said["WORLD_SIZE"] == product == claims.world:
        raise unreadable("exports.WORLD_SIZE", said["WORLD_SIZE"], f"is not {product} of the degrees")
    return Claims(
        world=claims.world,
        hosts=hosts,
        gpus_per_host=claims.gpus_per_host,
        gpus=claims.gpus,
        rank_order=RankOrder(said["RANK_ORDER"]),
        **degrees,
    )


def _constants(text: str) -> dict[str, Any]:
    """Constants that the module assigns; refuses one without its two functions."""
    try:
        body = ast.parse(text).body
        found = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
    except (SyntaxError, ValueError) as error:
        raise unreadable("exports.placement_group.py", text, f"is not a module of constants: {error}") from error
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    if functions != ["launch_group", "place"]:
        raise unreadable("exports.placement_group.py", functions, "must define launch_group and place")
    return found
