"""Remarks as users receive them: a code and figures for programs, a sentence for people."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from app.documents.values import Computed, ValueDocument
from app.presentation.sentences import has_words, sentence
from cluster_models.remarks import Remark, remark

FigureValue = bool | int | float | str | list[int] | list[float] | list[str] | None


class RemarkDocument(ValueDocument[Remark]):
    """One thing to know; documents from before remarks had codes hold the sentence alone."""

    code: str = Field(description="The same for all remarks of one kind.", examples=["estimated_links"])
    figures: dict[str, FigureValue] = Field(
        default_factory=dict,
        description="What the sentence says, in SI units.",
        examples=[{"links": 3, "of": 56, "flows": 8, "pairs": ["n1 to n2"]}],
    )
    text: Annotated[str, Computed(sentence)] = Field(
        "",
        description="The sentence.",
        examples=["3 of the 56 links that the plan uses were not measured."],
    )

    @model_validator(mode="before")
    @classmethod
    def _from_sentence(cls, data: object) -> object:
        return {"code": "text", "figures": {"text": data}, "text": data} if isinstance(data, str) else data

    def to_value(self) -> Remark:
        """The remark; one that this version has no words for keeps its text alone."""
        value = super().to_value()
        return value if has_words(value) else remark("text", text=self.text)
