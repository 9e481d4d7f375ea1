"""A serving plan that may leave the product: servers with hosts, GPUs and ports, whose sums hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby, product
from typing import Final

from app.exports.arithmetic import check_host_name
from app.exports.options import Options
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.checks import check_serving
from cluster_models.serving.engines import ServingEngine
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.replicas import GpuPlace, Phase, Replica
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker

HTTP_PORT: Final = 8000
"""Port of the first server of a host; the next ones follow."""
PLAN_AGAIN: Final = "plan again"
_SHARES_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Server:
    """One replica as an engine starts it.

    ``model`` is the index of ``served`` in the plan.  ``slot`` tells apart servers that share a host: ports count
    up with it.
    """

    replica: Replica
    model: int
    served: ServedModel
    slot: int
    model_path: str

    @property
    def engine(self) -> ServingEngine:
        """The generation that it was planned for."""
        return self.served.workload.engine

    @property
    def worker(self) -> Worker:
        """Degrees of the replica."""
        return self.replica.worker

    @property
    def number(self) -> int:
        """Number of the replica in the plan."""
        return self.replica.number

    @property
    def first_host(self) -> str:
        """The host that answers requests."""
        return self.replica.places[0].node

    @property
    def http_port(self) -> int:
        """Port of its requests."""
        return HTTP_PORT + self.slot

    @property
    def memory_fraction(self) -> float:
        """Share of memory, by the engine's own reading of it."""
        given = self.served.workload.memory_fraction
        return self.engine.memory_fraction if given is None else given

    def refused(self, field: str, value: object, reason: str, remedy: str = "") -> InvalidConfiguration:
        """The error of its engine about a field of the replica."""
        problem = f"{self.engine.title} cannot take it: {reason}"
        return InvalidConfiguration(f"replicas[{self.number}].{field}", value, problem, remedy)

    def hosts(self, *, data_before_pipeline: bool = False) -> tuple[GpuPlace, ...]:
        """Hosts in the engine's order of ranks, each with its GPUs.

        Plans number pipeline stages slowest; ``data_before_pipeline``: the engine gives each attention data rank
        all of its stages in a row.  Raises ``InvalidConfiguration`` where a host would come twice, or hosts would
        give different numbers of GPUs: no engine starts that.
        """
        ranks = [(place.node, gpu) for place in self.replica.places for gpu in place.gpus]
        if data_before_pipeline:
            worker = self.worker
            ranks = [
                ranks[(stage * worker.attention_data + data) * worker.tensor + tensor]
                for data in range(worker.attention_data)
                for stage in range(worker.pipeline)
                for tensor in range(worker.tensor)
            ]
        runs = [(node, [gpu for _, gpu in run]) for node, run in groupby(ranks, key=lambda rank: rank[0])]
        if len({node for node, _ in runs}) < len(runs):
            nodes = [node for node, _ in runs]
            raise self.refused("places", nodes, "its order of ranks would come back to a host", "plan whole nodes")
        if len({len(gpus) for _, gpus in runs}) > 1:
            sizes = {node: len(gpus) for node, gpus in runs}
            raise self.refused("places", sizes, "every host must give as many GPUs", "plan whole nodes")
        return tuple(GpuPlace(node, tuple(gpus)) for node, gpus in runs)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The servers of a plan in the order of their numbers.

    Making one raises ``InvalidConfiguration`` where a sum is broken: a GPU used twice, places that are not a
    worker's GPUs, shares of those that prefill, or of those that decode, that do not add up to 1.
    """

    plan: ServingPlan
    servers: tuple[Server, ...]

    def __post_init__(self) -> None:
        places = [place for server in self.servers for place in server.replica.places]
        used = Counter((place.node, gpu) for place in places for gpu in place.gpus)
        if twice := [gpu for gpu, times in used.items() if times > 1]:
            raise InvalidConfiguration("groups", twice[:3], "a GPU is used twice", PLAN_AGAIN)
        shares: dict[tuple[int, Phase], float] = defaultdict(float)
        for index, server in enumerate(self.servers):
            _check_server(index, server)
            shares[server.model, server.replica.phase] += server.replica.share
        for model, phase in product(
            sorted({server.model for server in self.servers}), (Phase.PREFILL, Phase.DECODE)
        ):
            total = shares[model, Phase.BOTH] + shares[model, phase]
            if abs(total - 1) > _SHARES_TOLERANCE:
                name = self.plan.models[model].architecture.name
                problem = f"of {name} ({phase}) add up to {total:.6g}, not to 1"
                raise InvalidConfiguration("groups.replicas.share", total, problem, PLAN_AGAIN)

    def of_family(self, family: str) -> tuple[Server, ...]:
        """Servers of one engine; raises ``InvalidConfiguration`` where the plan is for others."""
        found = tuple(server for server in self.servers if server.engine.family == family)
        if not found:
            planned = sorted({server.engine.title for server in self.servers})
            problem = "the plan is for " + " and ".join(planned)
            raise InvalidConfiguration("workload.engine", planned, problem, "name the engine in the workload")
        return found


def deployment_of(plan: ServingPlan, options: Options) -> Deployment:
    """The servers of a plan; raises ``InvalidConfiguration`` where a sum is broken."""
    taken: dict[str, set[int]] = defaultdict(set)
    servers = []
    for group in plan.groups:
        for replica in group.replicas:
            nodes = [place.node for place in replica.places]
            slot = next(slot for slot in range(len(plan.replicas) + 1) if all(slot not in taken[n] for n in nodes))
            for node in nodes:
                taken[node].add(slot)
            served = plan.models[group.model]
            path = _model_path(plan, served, options)
            servers.append(Server(replica, group.model, served, slot, path))
    return Deployment(plan, tuple(sorted(servers, key=lambda server: server.number)))


def _model_path(plan: ServingPlan, served: ServedModel, options: Options) -> str:
    """The weights: the path given, or with several models a folder of each one's name beside it."""
    if len(plan.models) == 1:
        return options.model_path
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in served.architecture.name)
    return f"{options.model_path.rpartition('/')[0]}/{name}"


def _check_server(index: int, server: Server) -> None:
    replica, worker = server.replica, server.worker
    if replica.number != index:
        raise InvalidConfiguration("groups.replicas.number", replica.number, f"must be {index}", PLAN_AGAIN)
    gpus = sum(len(place.gpus) for place in replica.places)
    if gpus != worker.gpus:
        problem = f"has places of {gpus} GPUs, {worker} needs {worker.gpus}"
        raise InvalidConfiguration(f"replicas[{index}].places", gpus, problem, PLAN_AGAIN)
    for place in replica.places:
        check_host_name(place.node, f"replicas[{index}].places.node")
    check_serving(server.served.architecture, server.served.workload, ServingConfiguration(Pool(worker)))
