"""Classes of requests as users write them: lengths as a mean, as quantiles or as a histogram."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Discriminator, Field, Tag, model_validator

from app.documents.reading import CHOICE, Count, Document, NotNegative, Positive, Text
from cluster_models.errors import InvalidWorkload
from cluster_models.serving.requests import MOST_LENGTHS, Lengths, RequestClass
from cluster_models.units import MILLISECOND

MOST_TOKENS: Final = 10**8
_QUANTILE: Final = re.compile(r"p(\d{1,3}(?:\.\d{1,6})?)", re.ASCII)
_MEAN, _SPREAD = f"{CHOICE}mean", f"{CHOICE}spread"
Tokens = Annotated[Count, Field(le=MOST_TOKENS)]
Length = Annotated[float, Field(strict=True, ge=1, le=MOST_TOKENS, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0.5, lt=1, allow_inf_nan=False)]
PrefixShare = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]


class LengthsDocument(Document):
    """Distribution of lengths: ``quantiles`` or a ``histogram``."""

    quantiles: Annotated[dict[Text, Tokens], Field(min_length=1, max_length=MOST_LENGTHS)] | None = Field(
        None,
        description="Tokens that so many per cent of the requests have at most; straight lines in log(tokens) "
        "between them. p0 and p100, the least and the most, are as the nearest one where they are left out.",
        examples=[{"p0": 20, "p50": 800, "p90": 3000, "p99": 9000, "p100": 16000}],
    )
    histogram: Annotated[list[tuple[Length, NotNegative]], Field(min_length=1, max_length=MOST_LENGTHS)] | None = (
        Field(None, description="Pairs of tokens and how many requests have them.", examples=[None])
    )

    @model_validator(mode="after")
    def _is_one(self) -> LengthsDocument:
        if (self.quantiles is None) == (self.histogram is None):
            raise ValueError("needs either quantiles or histogram")
        return self

    def to_lengths(self) -> Lengths:
        """The domain value; raises ``InvalidWorkload`` with the field inside the document."""
        if self.histogram is not None:
            return Lengths.counted(self.histogram)
        return Lengths.from_quantiles([(_share(name), each) for name, each in (self.quantiles or {}).items()])


def _share(name: str) -> float:
    found = _QUANTILE.fullmatch(name)
    if found is None or float(found[1]) > 100:
        raise InvalidWorkload("quantiles", name, "is not a percentile", "write it like p50, p99.9 or p100")
    return float(found[1]) / 100.0


def _spelling(value: object) -> str:
    return _SPREAD if isinstance(value, dict | LengthsDocument) else _MEAN


TokensOrSpread = Annotated[
    Annotated[Tokens, Tag(_MEAN)] | Annotated[LengthsDocument, Tag(_SPREAD)], Discriminator(_spelling)
]


class RequestClassDocument(Document):
    """Requests of one kind among those of a workload."""

    name: Text = Field(description="Name of the class.", examples=["chat"])
    share: Positive = Field(
        1.0, description="Its part of the requests, relative to those of the other classes.", examples=[0.7]
    )
    input_tokens: TokensOrSpread | None = Field(
        None,
        description="Tokens of a prompt: all the same (a mean), or a distribution; absent beside a trace.",
        examples=[1024],
    )
    output_tokens: TokensOrSpread | None = Field(
        None,
        description="Tokens of an answer, likewise; independent of those of its prompt.",
        examples=[256],
    )
    prefix_share: PrefixShare = Field(
        0.0,
        description="Share of a prompt's tokens whose keys and values an earlier prompt left in the cache.",
        examples=[0.0],
    )
    time_to_first_token_ms: Positive | None = Field(
        None, description="Limit on the time to the first token in this class.", examples=[500.0]
    )
    time_per_output_token_ms: Positive | None = Field(
        None, description="Limit on the time per output token in this class.", examples=[None]
    )
    end_to_end_ms: Positive | None = Field(
        None, description="Limit on the time to the last token in this class.", examples=[None]
    )
    limit_percentile: Share | None = Field(
        None,
        description="Share of its requests that its limits hold for; absent: as in the workload.",
        examples=[None],
    )

    def to_class(self, *, traced: bool = False) -> RequestClass:
        """The domain value; raises ``InvalidWorkload`` with the field inside the class.

        ``traced``: a trace says its lengths and its share.
        """
        if traced:
            self._refuse_lengths()
        inputs, outputs = (
            Lengths((1.0,)) if traced else lengths_of(getattr(self, name), name)
            for name in ("input_tokens", "output_tokens")
        )
        return RequestClass(
            name=self.name,
            share=self.share,
            inputs=inputs,
            outputs=outputs,
            prefix_share=self.prefix_share,
            time_to_first_token_s=seconds_of(self.time_to_first_token_ms),
            time_per_output_token_s=seconds_of(self.time_per_output_token_ms),
            end_to_end_s=seconds_of(self.end_to_end_ms),
            limit_percentile=self.limit_percentile,
        )

    def _refuse_lengths(self) -> None:
        """Raise ``InvalidWorkload`` for whatever the trace says already."""
        for name in ("input_tokens", "output_tokens", "share", "prefix_share"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InvalidWorkload(name, None, "conflicts with a trace, which says it", "leave it out")

    @classmethod
    def from_class(cls, value: RequestClass, *, traced: bool = False) -> RequestClassDocument:
        """The document of a class, without what a trace says (``traced``)."""
        said = (
            {}
            if traced
            else {
                "share": value.share,
                "input_tokens": tokens_of(value.inputs),
                "output_tokens": tokens_of(value.outputs),
                "prefix_share": value.prefix_share,
            }
        )
        return cls(
            name=value.name,
            **said,
            time_to_first_token_ms=milliseconds_of(value.time_to_first_token_s),
            time_per_output_token_ms=milliseconds_of(value.time_per_output_token_s),
            end_to_end_ms=milliseconds_of(value.end_to_end_s),
            limit_percentile=value.limit_percentile,
        )


def lengths_of(given: int | LengthsDocument | None, field: str) -> Lengths:
    """The lengths of a number or a distribution; raises ``InvalidWorkload`` naming the field."""
    if given is None:
        raise InvalidWorkload(field, None, "is missing", "give a number, quantiles or a histogram")
    if isinstance(given, int):
        return Lengths((float(given),))
    try:
        return given.to_lengths()
    except InvalidWorkload as error:
        raise InvalidWorkload(f"{field}.{error.field}", error.value, error.problem, error.remedy) from error


def tokens_of(lengths: Lengths) -> int | LengthsDocument:
    """Lengths as users write them."""
    if len(lengths.tokens) == 1 and lengths.tokens[0].is_integer():
        return int(lengths.tokens[0])
    return LengthsDocument(histogram=list(zip(lengths.tokens, lengths.shares, strict=True)))


def seconds_of(milliseconds: float | None) -> float | None:
    """A limit in seconds."""
    return None if milliseconds is None else milliseconds / 1000.0


def milliseconds_of(seconds: float | None) -> float | None:
    """A limit in milliseconds."""
    return None if seconds is None else seconds / MILLISECOND
