"""A plan that may leave the product: a value that exists only where every sum of a launcher holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.exports.arithmetic import check_divisions, check_host_names, check_layers, check_world, gpus_of_host
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.architecture import Architecture
from cluster_models.training.interleaving import micro_batch_group
from cluster_models.training.plan import Configuration, Degrees, Plan
from cluster_models.training.schedules import in_groups
from cluster_models.training.workload import TrainingWorkload


@dataclass(frozen=True, slots=True)
class Launch:
    """A plan to launch.  Making one raises ``InvalidConfiguration`` where a sum of the plan is broken.

    World size, hosts, ranks and GPUs agree; the layers of all stages are the model's; batch, heads and experts
    divide by the degrees that share them (``app.exports.arithmetic``).
    """

    plan: Plan

    def __post_init__(self) -> None:
        check_world(self.plan)
        check_layers(self.plan)
        check_divisions(self.plan)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts in rank order; raises ``InvalidConfiguration`` on a name that could carry a command."""
        check_host_names(self.plan)
        return self.plan.placement.hosts

    @property
    def gpus_per_host(self) -> int:
        """GPUs that the plan uses on each host, which may be fewer than it has."""
        return self.plan.placement.gpus_per_node

    @property
    def gpus(self) -> tuple[tuple[int, ...], ...]:
        """For each host, the numbers of its GPUs in the order of its ranks."""
        return tuple(tuple(gpus_of_host(self.plan, slot)) for slot in range(len(self.plan.placement.hosts)))

    @property
    def gpu_lists(self) -> tuple[str, ...]:
        """For each host its GPUs as ``CUDA_VISIBLE_DEVICES`` wants them."""
        return tuple(",".join(map(str, gpus)) for gpus in self.gpus)

    @property
    def whole_hosts(self) -> bool:
        """Whether every host gives the GPUs 0, 1, ... in this order, so that launchers need not be told which."""
        return all(gpus == tuple(range(self.gpus_per_host)) for gpus in self.gpus)

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.degrees.gpus

    @property
    def configuration(self) -> Configuration:
        """Settings of the framework, without the hosts."""
        return self.plan.configuration

    @property
    def degrees(self) -> Degrees:
        """Sizes of the parallel groups."""
        return self.plan.configuration.degrees

    @property
    def layers(self) -> int:
        """Decoder layers of all stages."""
        return sum(map(sum, self.configuration.stage_layers))

    @property
    def architecture(self) -> Architecture:
        """The model; raises ``InvalidConfiguration`` on a plan made by hand that does not say it."""
        if self.plan.architecture is None:
            raise _unsaid()
        return self.plan.architecture

    @property
    def workload(self) -> TrainingWorkload:
        """The workload, its framework as it runs with the settings that the planner chose.

        Raises ``InvalidConfiguration`` on a plan made by hand that does not have one.
        """
        if (workload := self.plan.workload) is None:
            raise _unsaid()
        framework = self.configuration.settings.under(workload.framework)
        return workload if framework is workload.framework else replace(workload, framework=framework)

    @property
    def micro_batches(self) -> int:
        """Micro-batches that each pipeline runs a step."""
        return self.configuration.micro_batches(self.workload.global_batch)

    @property
    def micro_batch_group(self) -> int:
        """Micro-batches that pass a virtual stage together under the schedule that was priced; 1 without any."""
        degrees = self.degrees
        if degrees.virtual_pipeline == 1 or not in_groups(self.configuration.schedule):
            return 1
        group = micro_batch_group(self.workload.framework, degrees.pipeline, self.micro_batches)
        return group or degrees.pipeline


def launch_of(plan: Plan) -> Launch:
    """The launch of a plan; raises ``InvalidConfiguration`` where a sum is broken."""
    return Launch(plan)


def _unsaid() -> InvalidConfiguration:
    return InvalidConfiguration(
        "workload", None, "the plan does not say its model and workload", "export a plan that does"
    )
