"""Reports about the health of a cluster's parts, as people and their own programs write them."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Discriminator, Field, Tag

from app.documents.long_lists import long_list
from app.documents.moments import Moment
from app.documents.nodes import GREATEST_SLOWDOWN, MOST_GPUS
from app.documents.reading import CHOICE, Document, Number, Prose, Text
from app.events.reading import ReportedEvent
from cluster_models.errors import InvalidInput
from cluster_models.health.events import UNSTATED, Entity, EntityKind, HealthState

MOST_EVENTS: Final = 10_000
DEFAULT_SOURCE: Final = "api"
CLOCKS_DIFFER: Final = timedelta(minutes=15)
"""Lead that a sender's clock may have."""
_NUMBER: Final = re.compile(r"[-+]?\d{1,9}")
_ONE, _MANY = f"{CHOICE}one", f"{CHOICE}many"

PartName = Annotated[Text, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""GPUs have numbers, other parts names."""


class EntityDocument(Document):
    """A part of a cluster."""

    kind: EntityKind = Field(EntityKind.NODE, description="What it is.", examples=["node"])
    node: Text | None = Field(
        None,
        description="The node by its name or an alias; of a link one end; absent of a switch.",
        examples=["cnode2-004"],
    )
    part: PartName | None = Field(
        None,
        description="Number of a GPU as nvidia-smi shows it, name or number of a network card, the other node of a "
        "link, label:place of a switch; absent of a node.",
        examples=["3"],
    )


class LossDocument(EntityDocument):
    """A part of a cluster, and what is supposed to have become of it."""

    state: HealthState = Field(HealthState.FAILED, description="What became of it.", examples=["failed"])
    compute_slowdown: Annotated[Number, Field(ge=1, le=GREATEST_SLOWDOWN)] | None = Field(
        None, description="Step compute time over that of a healthy one; absent where not known.", examples=[1.2]
    )
    bandwidth_share: Annotated[Number, Field(gt=0, le=1)] | None = Field(
        None, description="Share of bandwidth that its links still have, in (0, 1].", examples=[0.5]
    )

    def to_reported(self, now: datetime, *, source_id: str) -> ReportedEvent:
        """The report, before its names are looked up; raises ``InvalidInput``."""
        self._check()
        return ReportedEvent(
            kind=self.kind,
            told=self.node or "",
            part=self.part or "",
            state=self.state,
            occurred_at=now,
            source_id=source_id,
            compute_slowdown=self.compute_slowdown or UNSTATED,
            bandwidth_share=self.bandwidth_share or UNSTATED,
        )

    def _check(self) -> None:
        """Raise ``InvalidInput`` where node and part do not go with the kind."""
        node, part = self.node or "", self.part or ""
        if self.kind is EntityKind.GPU and _NUMBER.fullmatch(part) and not 0 <= int(part) < MOST_GPUS:
            raise InvalidInput("part", part, f"is not a number of a GPU, which are 0 to {MOST_GPUS - 1}")
        if self.kind is EntityKind.LINK and node and node == part:
            raise InvalidInput("part", part, "is the node itself", "name the other node of the link")
        try:
            Entity(self.kind, node, part)
        except InvalidInput as wrong:
            field = wrong.field.removeprefix("entity.")
            raise InvalidInput(field, wrong.value, wrong.problem, wrong.remedy) from wrong


class EventDocument(LossDocument):
    """Report of a change in the health of a part of a cluster."""

    state: HealthState = Field(description="What became of it.", examples=["failed"])
    occurred_at: Moment | None = Field(None, description="When; absent = now.", examples=["2026-11-21T09:00:00Z"])
    source: Text = Field(
        DEFAULT_SOURCE,
        max_length=100,
        description="Who tells it. The word of the source operator overrules what others said before it.",
        examples=["operator"],
    )
    id: Text | None = Field(
        None,
        description="The report's own id at its source: reports alike in source, id and state are one. Absent = "
        "made from the other fields, so that a report without a moment is a new one every time.",
        examples=["ticket-4711"],
    )
    text: Prose = Field("", max_length=2000, description="For people.", examples=["Fell off the bus."])
    code: Text | None = Field(None, description="The source's own name of the finding.", examples=["Xid 79"])
    leave_by: Moment | None = Field(
        None,
        description="Time until which a draining part works; decided on drain_lead_s before it; absent = now.",
        examples=["2026-11-22T06:00:00Z"],
    )
    device: Text | None = Field(
        None,
        max_length=200,
        description="Serial number or UUID of the hardware: its failures are counted together wherever it sits.",
        examples=["GPU-5e0c6d1f"],
    )

    def to_event(self, now: datetime) -> ReportedEvent:
        """The report, before its names are looked up; raises ``InvalidInput``."""
        if self.leave_by is not None and self.state is not HealthState.DRAINING:
            problem = f"conflicts with the state {self.state}"
            raise InvalidInput("leave_by", self.leave_by.isoformat(), problem, "only what drains is to be left")
        moment = self.occurred_at or now
        if moment > now + CLOCKS_DIFFER:
            # It would overrule whatever is reported until then.
            problem = "lies in the future"
            raise InvalidInput("occurred_at", moment.isoformat(), problem, "check the clock, or leave it out")
        base = self.to_reported(moment, source_id=self.id or self._made_id(moment))
        return ReportedEvent(
            kind=base.kind,
            told=base.told,
            part=base.part,
            state=base.state,
            occurred_at=moment,
            source_id=base.source_id,
            text=self.text,
            code=self.code or "",
            compute_slowdown=base.compute_slowdown,
            bandwidth_share=base.bandwidth_share,
            leave_by=self.leave_by,
            device=self.device or "",
        )

    def _made_id(self, moment: datetime) -> str:
        told = self.model_dump_json(exclude={"id", "occurred_at"})
        return hashlib.sha256(f"{moment.isoformat()} {told}".encode()).hexdigest()[:32]


def _spelling(value: object) -> str:
    return _MANY if isinstance(value, list) else _ONE


EventsBody = Annotated[
    Annotated[EventDocument, Tag(_ONE)]
    | Annotated[
        Annotated[list[EventDocument], Field(min_length=1, max_length=MOST_EVENTS), long_list(MOST_EVENTS)],
        Tag(_MANY),
    ],
    Discriminator(_spelling),
    Field(description="One report, or a list of them."),
]
"""Body of a post: one report or a list of them."""
