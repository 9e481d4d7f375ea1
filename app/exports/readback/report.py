"""Read a printed page: the text of its marked cells, as a browser would show it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from typing import Final

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.megatron import PLAN_SAYS
from app.exports.readback.shell import HOSTS_SAY
from app.exports.readback.words import file_named, number, numbers
from cluster_models.training.plan import RankOrder

REPORT_SAYS: Final = PLAN_SAYS - {"sharding", "expert_order"} | HOSTS_SAY | {"gpus", "data"}

_NUMBERS: Final = REPORT_SAYS - {"hosts", "gpus", "rank_order", "stage_layers"}


class _Cells(HTMLParser):
    """The text of every cell with a ``data-says``."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = defaultdict(list)
        self._open: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = dict(attrs).get("data-says") if tag == "td" else None
        if self._open:
            self.found[self._open].append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the parser's signature
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[self._open][-1] += data


def read_report(files: Files) -> Claims:
    """The marked cells of ``plan.html``, each of which stands there once, hosts once a host."""
    cells = _Cells()
    cells.feed(file_named(files, "plan.html"))
    cells.close()
    hosts, gpus = cells.found.pop("host", []), cells.found.pop("gpus", [])
    twice = [name for name, texts in cells.found.items() if len(texts) != 1]
    if twice or len(gpus) != len(hosts):
        raise unreadable("exports.report", twice, "stand on the page more than once")
    said = {name: texts[0] for name, texts in cells.found.items()}
    rows = tuple(tuple(number(word, "layers") for word in row.split()) for row in said["stage_layers"].split(";"))
    claims = Claims(
        hosts=tuple(hosts),
        gpus=tuple(numbers(listed, "gpus") for listed in gpus),
        stage_layers=rows,
        rank_order=RankOrder(said["rank_order"]),
    )
    figures = {name: number(said[name], name) for name in sorted(_NUMBERS & set(said))}
    return replace(claims, **figures)  # type: ignore[arg-type]  # all of them are numbers
