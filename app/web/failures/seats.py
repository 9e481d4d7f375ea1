"""Seats of ranks before failures and after the decision: host by host, before above after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from app.presentation.figures import plural, spans
from app.services.decisions.replan_views import AnswerView
from app.web.clusters.gpu_grid import place_words
from app.web.drawing import Box, Drawing, Key, Line, Words
from app.web.planning.seats import HUES
from cluster_models.cluster.topology import Cluster, Node, NodeState
from cluster_models.jobs.recovery import JobDecision, RecoveryAction
from cluster_models.jobs.serving import ServingDecision, gpus_of
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan

Gpu = tuple[str, int]
Made = JobDecision | ServingDecision

_CELL, _STRIP, _GAP, _GUTTER = 14.0, 18.0, 12.0, 48.0
_HEAD, _LABEL, _HOST = 24.0, 16.0, 62.0
_WIDTH: Final = 570.0
_MOST_HOSTS: Final = 40
"""Hosts drawn; of more, those where something changes."""
_OUT: Final = (NodeState.FAILED, NodeState.DRAINING)


@dataclass(frozen=True, slots=True)
class _Seat:
    """Part of a job on a GPU: its stage or replica as a figure, and as words."""

    job: str
    figure: str
    words: str


@dataclass(frozen=True, slots=True)
class _Seats:
    """Seats by GPU before and after; ``lost`` of those before, ``moved`` of those after."""

    before: Mapping[Gpu, _Seat]
    after: Mapping[Gpu, _Seat]
    lost: frozenset[Gpu]
    moved: frozenset[Gpu]
    waiting: frozenset[Gpu]

    def changes(self, gpu: Gpu) -> bool:
        """Whether somebody else or another part of the job sits there afterwards."""
        return gpu in self.lost or gpu in self.moved or self.before.get(gpu) != self.after.get(gpu)


def seats_before_after(answer: AnswerView, made: Sequence[Made]) -> Drawing | None:
    """The hosts of the first jobs of ``made`` and the spares; ``None`` where it is not known who sat where."""
    drawn, cluster = made[:HUES], answer.cluster
    if cluster is None:
        return None
    seats = _seats(answer, cluster, drawn)
    if not seats.before and not seats.after:
        return None
    hues = {each.job_name: f"hue-{index}" for index, each in enumerate(drawn)}
    spares = frozenset(answer.decision.spares_before)
    nodes = {node.name: node for node in cluster.nodes}
    names = {node for node, _ in (*seats.before, *seats.after)} | spares
    changed = {node for node, gpu in (*seats.before, *seats.after) if seats.changes((node, gpu))}
    hosts = [name for name in nodes if name in names] + sorted(names - nodes.keys())
    shown = hosts if len(hosts) <= _MOST_HOSTS else [name for name in hosts if name in changed][:_MOST_HOSTS]
    boxes, words, lines, y = list[Box](), list[Words](), list[Line](), 0.0
    places: dict[str, list[str]] = {}
    for name in shown:
        places.setdefault(_place(nodes.get(name)), []).append(name)
    for place, members in places.items():
        words.append(Words(_GAP, y + 16, place, "place"))
        y += _HEAD
        for row in _rows(members, nodes, seats):
            words += [Words(_GAP, y + _LABEL + at, text) for at, text in ((13, "before"), (33, "after"))]
            for name, count, x in row:
                words.append(Words(x, y + 11, name, "tick host-name"))
                for top, after in ((_LABEL, False), (_LABEL + 20, True)):
                    cells, figures = _strip(name, count, seats, hues, after=after, is_spare=name in spares)
                    boxes += [Box(x + at, y + top, width, _STRIP, *rest) for at, width, *rest in cells]
                    words += [Words(x + at, y + top + 13, text, "on-hue", "middle") for at, text in figures]
            y += _HOST
        lines.append(Line(_GAP, y + 2, _WIDTH - _GAP, y + 2, "grid-line"))
        y += 8
    return Drawing(
        width=_WIDTH,
        height=y + 4,
        name="Who sits where before and after",
        description=_description(answer, seats, len(hosts) - len(shown), len(made) - len(drawn)),
        boxes=tuple(boxes),
        lines=tuple(lines[:-1]),
        words=tuple(words),
        legend=(
            *(Key(hue, name) for name, hue in hues.items()),
            *((Key("seat-lost", "lost"),) if seats.lost else ()),
            *((Key("seat-moved", "moved here"),) if seats.moved else ()),
            *((Key("kept-free", "spare"),) if spares else ()),
        ),
        shrinks=True,
    )


def _seats(answer: AnswerView, cluster: Cluster, made: Sequence[Made]) -> _Seats:
    before: dict[Gpu, _Seat] = {}
    after: dict[Gpu, _Seat] = {}
    moved: set[Gpu] = set()
    waiting: set[Gpu] = set()
    for each in made:
        old = _of_plan(each.job_name, _plan_before(answer, each))
        new = _of_plan(each.job_name, each.plan)
        if isinstance(each, ServingDecision):
            started = [] if each.plan is None else [each.plan.replicas[number] for number in each.started]
            moved.update(gpu for replica in started for gpu in gpus_of(replica))
        else:
            moved.update((rank.to_node, rank.to_gpu) for rank in each.migration.moved)
            if each.action is RecoveryAction.WAIT:
                new = old
                waiting.update(old)
        before |= old
        after |= new
    usable = {
        (node.name, gpu)
        for node in cluster.nodes
        if node.state not in _OUT
        for gpu in set(range(node.gpu_count)).difference(node.gpus_in_use)
    }
    return _Seats(before, after, frozenset(before.keys() - usable), frozenset(moved), frozenset(waiting))


def _plan_before(answer: AnswerView, made: Made) -> Plan | ServingPlan | None:
    """The plan that a job ran by; ``None`` where it stood still."""
    if isinstance(made, ServingDecision):
        return answer.served.get(made.job_id) if any(load.before_per_s for load in made.loads) else None
    return answer.before.get(made.job_id) if made.tokens_per_s_before else None


def _of_plan(job: str, plan: Plan | ServingPlan | None) -> dict[Gpu, _Seat]:
    if plan is None:
        return {}
    if isinstance(plan, ServingPlan):
        return {
            gpu: _Seat(job, str(replica.number), f"replica {replica.number}")
            for replica in plan.replicas
            for gpu in gpus_of(replica)
        }
    return {
        (rank.node, rank.gpu): _Seat(job, str(rank.pipeline), f"stage {rank.pipeline}, replica {rank.data}")
        for rank in plan.placement.ranks
    }


def _place(node: Node | None) -> str:
    return "No longer in the cluster" if node is None else place_words(node)


def _rows(names: Sequence[str], nodes: Mapping[str, Node], seats: _Seats) -> Iterator[list[tuple[str, int, float]]]:
    """Hosts of one place by the row that they fit, each with its GPUs and where it begins."""
    row, x = list[tuple[str, int, float]](), _GAP + _GUTTER
    for name in names:
        node = nodes.get(name)
        held = [gpu for host, gpu in (*seats.before, *seats.after) if host == name]
        count = max(held, default=0) + 1 if node is None else node.gpu_count
        width = _CELL * max(count, 6)
        if row and x + width > _WIDTH - _GAP:
            yield row
            row, x = [], _GAP + _GUTTER
        row.append((name, count, x))
        x += width + _GAP
    yield row


def _strip(
    name: str, count: int, seats: _Seats, hues: Mapping[str, str], *, after: bool, is_spare: bool
) -> tuple[list[tuple[float, float, str, str]], list[tuple[float, str]]]:
    """Runs of GPUs that are alike: place, width, style and tip of each, and the figures in them."""
    held = seats.after if after else seats.before

    def style(gpu: int) -> tuple[str, str, str]:
        """Class, figure and words of a GPU."""
        at = (name, gpu)
        seat = held.get(at)
        if seat is None:
            if at in seats.lost:
                return "seat-lost-free", "", "lost"
            return ("kept-free", "", "spare") if is_spare else ("seat-free", "", "not of these jobs")
        tip = f"{seat.job}, {seat.words}"
        if at in seats.lost and (not after or at in seats.waiting):
            return "seat-lost seat-cell", seat.figure, f"{tip}, lost"
        if after and at in seats.moved:
            return f"{hues[seat.job]} seat-cell seat-moved", seat.figure, f"{tip}, moved here"
        return f"{hues[seat.job]} seat-cell", seat.figure, tip

    cells, figures = list[tuple[float, float, str, str]](), list[tuple[float, str]]()
    for (css, figure, words), group in groupby(range(count), key=style):
        gpus = list(group)
        width = _CELL * len(gpus)
        when = "after" if after else "before"
        cells.append((_CELL * gpus[0], width - 1.5, css, f"{name}, GPU {spans(gpus)} {when}: {words}"))
        if figure:
            figures.append((_CELL * gpus[0] + width / 2 - 1, figure))
    return cells, figures


def _description(answer: AnswerView, seats: _Seats, hosts: int, jobs: int) -> str:
    used = len(answer.decision.spares_used)
    freed = len(seats.before.keys() - seats.after.keys() - seats.lost)
    told = [
        "Figures are pipeline stages, of deployments replicas.",
        f"{plural(len(seats.lost), 'GPU')} lost; {len(seats.moved)} run another part than before; {freed} freed.",
        f"{plural(used, 'spare node')} used." if used else "",
        f"{plural(hosts, 'host')} where nothing changes {'is' if hosts == 1 else 'are'} left out." if hosts else "",
        f"{plural(jobs, 'more job')} {'is' if jobs == 1 else 'are'} not drawn." if jobs else "",
    ]
    return " ".join(filter(None, told))
