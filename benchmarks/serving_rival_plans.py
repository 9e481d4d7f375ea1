"""Plans of a few clusters by both planners, each priced by both models."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from benchmarks.serving_plans import DEEPSEEK, H100, H200, LLAMA, OPTIONS, Case
from benchmarks.serving_rival_questions import CHECKPOINTS, SYSTEMS, question_of
from benchmarks.serving_rows import CROSS_SHARE, NETWORK_BYTES_PER_S
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.serving.goal import ServedModel, ServingObjective
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from solver.serving.cases import CROSS_LATENCY_S, ServingCase, arrays_of
from solver.serving.fitting import predicted_figures
from solver.serving.loads import WorkerLinks
from solver.serving.plan import plan_serving
from solver.serving.rates import rates_of

CASES: Final = tuple(
    Case(((nodes, kind),), gpus, models, ServingObjective.GOODPUT)
    for nodes, gpus, kind, models in ((1, 8, H100, LLAMA), (1, 7, H100, LLAMA), (1, 8, H200, DEEPSEEK))
)
"""One node each, once with a GPU lost: most tokens a second within the limits on latency."""


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """Our plan of a case, with the processor time that it took."""

    case: Case
    served: ServedModel
    plan: ServingPlan
    processor_s: float

    @property
    def system(self) -> str:
        """Aiconfigurator's name of the GPU kind."""
        return SYSTEMS[self.case.hosts[0][1]]

    @property
    def checkpoint(self) -> str:
        """Its name of the model."""
        return CHECKPOINTS[self.served.architecture.name, self.served.workload.weights.value]

    @property
    def plan_question(self) -> dict[str, Any]:
        """Arguments of ``cli_default`` that ask for the same."""
        load = self.served.workload
        assert load.time_to_first_token_s is not None
        assert load.time_per_output_token_s is not None
        return {
            "model_path": self.checkpoint,
            "total_gpus": self.case.hosts[0][0] * self.case.gpus,
            "system": self.system,
            "backend": load.engine.family,
            "isl": load.input_tokens,
            "osl": load.output_tokens,
            "ttft": 1e3 * load.time_to_first_token_s,
            "tpot": 1e3 * load.time_per_output_token_s,
        }

    @property
    def estimate_questions(self) -> list[dict[str, Any]]:
        """Arguments of ``cli_estimate`` for each group of the plan; none where it splits the phases."""
        if any(group.configuration.is_split for group in self.plan.groups):
            return []
        return [
            question_of(
                group.configuration,
                self.served.workload,
                requests=group.concurrency,
                checkpoint=self.checkpoint,
                system=self.system,
                sparse=self.served.architecture.experts is not None,
            )
            for group in self.plan.groups
        ]


def own_plans() -> list[OwnPlan]:
    """Our plans of all cases."""
    plans = []
    for case in CASES:
        problem = case.problem
        started = time.process_time()
        plan = plan_serving(problem, OPTIONS)
        assert isinstance(plan, ServingPlan), plan
        plans.append(OwnPlan(case, problem.models[0], plan, time.process_time() - started))
    return plans


def plan_rows(plans: Sequence[OwnPlan], answers: Mapping[str, Any]) -> Iterator[str]:
    """Two lines for each case; ``answers`` to the estimates end with those of ``OwnPlan.estimate_questions``."""
    heads = ("tokens/s, own model", "first token / token", "tokens/s, other's model", "processor s", "plan")
    yield f"| cluster | model | by | GPUs used | {' | '.join(heads)} |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---|"
    estimates = list(answers["estimates"])
    count = sum(len(plan.estimate_questions) for plan in plans)
    estimates = estimates[len(estimates) - count :]
    for own, best in zip(plans, answers["plans"], strict=True):
        asked = len(own.estimate_questions)
        mine, estimates = estimates[:asked], estimates[asked:]
        by_them = _their_tokens_per_s(own, mine)
        figures = own.plan.figures[0]
        name = f"| {own.case.cluster} | {own.served.architecture.name}"
        chosen = Counter(_words(group.configuration) for group in own.plan.groups)
        yield (
            f"{name} | ours | {own.plan.gpus} | {own.plan.tokens_per_s:,.0f} | "
            f"{_times(figures.first_token_s.value, figures.token_s.value)} | {by_them} | {own.processor_s:.1f} | "
            f"{', '.join(f'{count} of ({words})' for words, count in chosen.items())} |"
        )
        configuration, requests = configuration_of(best, own.plan_question["total_gpus"])
        token_s, first_s, rate = _our_figures(own, configuration, requests)
        copies = configuration.gpus / best["num_total_gpus"]
        yield (
            f"{name} | aiconfigurator | {configuration.gpus} | {best['tokens/s'] * copies:,.0f} | "
            f"{_times(best['ttft'] / 1e3, best['tpot'] / 1e3)} | {rate * own.served.workload.output_tokens:,.0f} "
            f"({_times(first_s, token_s)}) | {best['processor_s']:.1f} | {_words(configuration)} |"
        )


def _times(first_s: float, token_s: float) -> str:
    return f"{1e3 * first_s:.0f} / {1e3 * token_s:.1f} ms"


def configuration_of(best: Mapping[str, Any], gpus: int) -> tuple[ServingConfiguration, float]:
    """A row of aiconfigurator as pools on ``gpus``, and the requests in flight on all of them."""
    copies = gpus // int(best["num_total_gpus"])

    def pool(part: str, workers: int) -> Pool:
        names = ("tp", "pp", "dp", "moe_ep")
        return Pool(Worker(*(max(1, int(best[part + name])) for name in names)), copies * workers)

    requests = float(best["concurrency"]) * copies
    if "(d)tp" not in best:
        return ServingConfiguration(pool("", 1)), requests
    decode, prefill = (pool(part, int(best[f"{part}workers"])) for part in ("(d)", "(p)"))
    return ServingConfiguration(decode, prefill), requests


def _our_figures(own: OwnPlan, configuration: ServingConfiguration, requests: float) -> tuple[float, float, float]:
    """Seconds per output token and to the first, and requests a second, by our model as shipped."""
    gpu = gpu_kind(own.case.hosts[0][1])
    network = CROSS_SHARE * NETWORK_BYTES_PER_S
    links = WorkerLinks(gpu.scale_up_domain_gpus, gpu.scale_up_bytes_per_s, network, CROSS_LATENCY_S)
    load = replace(own.served.workload, concurrency=requests)
    case = ServingCase(own.served.architecture, gpu, links, load, configuration, transfer_bytes_per_s=network)
    figures = predicted_figures(arrays_of([case]), rates_of([case.properties]))[0]
    return float(figures[0]), float(figures[1]), float(figures[2])


def _their_tokens_per_s(own: OwnPlan, answers: Sequence[Mapping[str, Any]]) -> str:
    """Tokens a second of our plan by aiconfigurator, with its mean times by the share of each group."""
    if not answers:
        return "splits phases"
    if any("refused" in each for each in answers):
        return "refused"
    tokens = own.served.workload.output_tokens
    groups = own.plan.groups
    answer_s = [(each["ttft_ms"] + (tokens - 1) * each["tpot_ms"]) / 1e3 for each in answers]
    rates = [group.concurrency * tokens / seconds for group, seconds in zip(groups, answer_s, strict=True)]
    first, token = (np.average([each[name] for each in answers], weights=rates) for name in ("ttft_ms", "tpot_ms"))
    return f"{sum(rates):,.0f} ({_times(first / 1e3, token / 1e3)})"


def _words(configuration: ServingConfiguration) -> str:
    if configuration.prefill is None:
        return str(configuration.decode)
    return f"{configuration.prefill} + {configuration.decode}"
