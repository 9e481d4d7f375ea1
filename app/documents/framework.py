"""The training framework of a workload, as its owner writes it: a shipped generation by name, or a description.

The fields follow from those of ``Framework``, where each has its meaning: a fact added there is a field of the
description here, and of the settings where a single run may depart from it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import GenericAlias
from typing import Annotated, Any, Final, Self, TypeVar, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, create_model

from app.documents.reading import (
    CHOICE,
    NAME,
    Document,
    FieldProblem,
    Flag,
    InvalidDocument,
    Line,
    NotNegative,
    Prose,
    Text,
    WholeNumber,
    close_name,
)
from cluster_models.training.framework_facts import Fact, choices_of
from cluster_models.training.frameworks import (
    ABOUT,
    DEFAULT_FRAMEWORK,
    Framework,
    facts,
    frameworks,
)

M = TypeVar("M", bound=BaseModel)

_BY_NAME, _IN_FULL = f"{CHOICE}by-name", f"{CHOICE}in-full"
_MONTH: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])", re.ASCII)
_WIDTH: Final = 100


class GradientPrecision(StrEnum):
    """Number format in which gradients are accumulated and reduced."""

    FP32 = "fp32"
    BF16 = "bf16"


_GRADIENT_BYTES: Final = {GradientPrecision.FP32: 4.0, GradientPrecision.BF16: 2.0}


@dataclass(frozen=True, slots=True)
class WireFact:
    """A fact of ``Framework`` as documents state it: the ``field`` there, ``name`` and ``kind`` here."""

    field: str
    name: str
    kind: Any
    fact: Fact

    @property
    def is_list(self) -> bool:
        """Whether it is a list of such words."""
        return get_origin(self.kind) is tuple

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be, none of a switch or a number."""
        choices = choices_of(self.kind)
        return () if choices is None else tuple(map(str, choices))

    @property
    def annotation(self) -> Any:
        """Type of the field in a document."""
        if self.kind is float and math.isfinite(self.fact.most):
            return Annotated[NotNegative, Field(le=self.fact.most)]
        if self.is_list:
            return GenericAlias(list, (choices_of(self.kind),))
        return {bool: Flag, int: WholeNumber, float: NotNegative, str: Line}.get(self.kind, self.kind)

    def stated(self, framework: Framework) -> Any:
        """Value of the fact in ``framework``, as documents write it."""
        value = getattr(framework, self.field)
        if not self.fact.precision:
            return list(value) if isinstance(value, tuple) else value
        return next(each for each, width in _GRADIENT_BYTES.items() if width == value)

    def read(self, value: Any) -> Any:
        """Value that a document states, as ``Framework`` holds it."""
        if self.fact.precision:
            return _GRADIENT_BYTES[value]
        return tuple(dict.fromkeys(value)) if isinstance(value, list) else value


FACTS: Final = tuple(
    WireFact(name, fact.precision or name, GradientPrecision if fact.precision else kind, fact)
    for name, (kind, fact) in facts().items()
    if name not in ABOUT
)
"""Facts that a description may state."""
SETTINGS: Final = tuple(each for each in FACTS if each.fact.setting)
"""Facts in which a single run may differ from its framework."""


def _having(fields: Mapping[str, Any]) -> Callable[[type[M]], type[M]]:
    """Adds ``fields`` to a model."""

    def derived(model: type[M]) -> type[M]:
        return create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **fields
        )

    return derived


def _may_state(stated: Iterable[WireFact]) -> dict[str, Any]:
    """A field for each fact; left out, it stays as the framework does it."""
    return {
        each.name: (
            each.annotation | None,
            Field(
                None,
                description=each.fact.meaning,
                examples=[each.stated(DEFAULT_FRAMEWORK)],
                min_length=each.fact.least if each.is_list else None,
            ),
        )
        for each in stated
    }


@_having(
    {
        name: (kind, Field(description=fact.meaning, examples=[getattr(DEFAULT_FRAMEWORK, name)]))
        for name, (kind, fact) in facts().items()
        if name != "like"
    }
)
class FrameworkAnswer(BaseModel):
    """One generation of a training framework: what it does unless told otherwise."""

    @classmethod
    def from_framework(cls, framework: Framework) -> Self:
        """The answer for a shipped generation."""
        return cls.model_validate(framework, from_attributes=True)


@_having(_may_state(SETTINGS))
class FrameworkSettings(Document):
    """Departures of a run from its framework's defaults; a setting left out stays as the framework does it."""


def _month(text: str) -> str:
    if not _MONTH.fullmatch(text):
        raise ValueError("is not a month; write it like 2026-03")
    return text


@_having(_may_state(FACTS))
class FrameworkDescription(Document):
    """Facts of a framework that is not shipped: a fork, a newer release, your own.

    Every fact that is left out is as the generation does it that ``like`` names.
    """

    name: Text = Field(
        pattern=NAME, description="Its name, which no shipped generation has.", examples=["our-megatron"]
    )
    like: Text = Field(
        description="The shipped generation that it starts from; GET /api/v1/frameworks lists them.",
        examples=[DEFAULT_FRAMEWORK.name],
    )
    title: Text | None = Field(None, description="Name in words; default: its name.", examples=["Our Megatron"])
    released: Annotated[Text, AfterValidator(_month)] | None = Field(
        None, description="Month from which it is current; default: that of like.", examples=["2026-03"]
    )
    source: Prose = Field("", description="Where the facts come from, and notes.", examples=["our fork, branch 7"])

    def to_framework(self, *, at: str = "framework") -> Framework:
        """The domain value; raises ``InvalidDocument``, ``at`` being where the description stands."""
        known = frameworks()
        problems = []
        if self.name in known:
            problem = "is the name of a shipped generation"
            problems.append(FieldProblem(f"{at}.name", self.name, problem, "give yours a name of its own"))
        if self.like not in known:
            remedy = close_name(self.like, list(known))
            problems.append(FieldProblem(f"{at}.like", self.like, "is not a shipped framework generation", remedy))
        if problems:
            raise InvalidDocument(problems)
        base = known[self.like]
        return replace(
            _with(base, self, FACTS),
            name=self.name,
            title=self.title or self.name,
            released=self.released or base.released,
            source=self.source,
            like=self.like,
        )

    @classmethod
    def from_framework(cls, framework: Framework) -> FrameworkDescription:
        """The description of a framework that a user described, with every fact."""
        return cls.model_validate(
            {name: getattr(framework, name) for name in ("name", "like", "title", "released", "source")}
            | {each.name: each.stated(framework) for each in FACTS}
        )

    @classmethod
    def starting_from(cls, framework: Framework) -> FrameworkDescription:
        """A description to change: all as the shipped ``framework`` does it, under a name of one's own."""
        own = replace(framework, name=f"my-{framework.name}", title=f"My {framework.title}", like=framework.name)
        return cls.from_framework(own)


def _spelling(value: object) -> str:
    return _BY_NAME if isinstance(value, str) else _IN_FULL


FrameworkReference = Annotated[
    Annotated[Text, Tag(_BY_NAME)] | Annotated[FrameworkDescription, Tag(_IN_FULL)], Discriminator(_spelling)
]


def to_framework(
    reference: str | FrameworkDescription,
    settings: FrameworkSettings,
    described: Mapping[str, Framework] | None = None,
) -> Framework:
    """The framework of that name, shipped or ``described``, or of a description, with the settings in place.

    Raises ``InvalidDocument`` where there is none of the name.
    """
    if isinstance(reference, FrameworkDescription):
        return _with(reference.to_framework(), settings, SETTINGS)
    known = {**(described or {}), **frameworks()}
    if reference not in known:
        near = close_name(reference, list(known)).replace("known are", "or use one of")
        remedy = f"describe it in a file (--framework-file), over HTTP in place of its name; {near}"
        raise InvalidDocument([FieldProblem("framework", reference, "is not a shipped generation", remedy)])
    return _with(known[reference], settings, SETTINGS)


def reference_of(framework: Framework) -> str | FrameworkDescription:
    """The name of a shipped generation; a described framework in full, its settings in place."""
    return FrameworkDescription.from_framework(framework) if framework.like else framework.name


def settings_of(framework: Framework) -> FrameworkSettings:
    """Where ``framework`` departs from the shipped generation of its name; nowhere if it is described in full."""
    own = framework if framework.like else frameworks()[framework.name]
    return FrameworkSettings.model_validate(
        {each.name: value for each in SETTINGS if (value := each.stated(framework)) != each.stated(own)}
    )


def described_frameworks(
    descriptions: Sequence[FrameworkDescription], *, at: str = "frameworks"
) -> dict[str, Framework]:
    """Frameworks by name; raises ``InvalidDocument`` where one cannot be or stands there twice."""
    found: dict[str, Framework] = {}
    for index, description in enumerate(descriptions):
        place = f"{at}[{index}]"
        if description.name in found:
            problem = FieldProblem(f"{place}.name", description.name, "is described twice", "leave one out")
            raise InvalidDocument([problem])
        found[description.name] = description.to_framework(at=place)
    return found


def descriptions_of(described: Mapping[str, Framework]) -> list[FrameworkDescription]:
    """The documents of frameworks that users described."""
    return [FrameworkDescription.from_framework(each) for each in described.values()]


def starting_text(framework: Framework) -> str:
    """A YAML file to start a description from: all as the shipped ``framework`` does it."""
    head = f"# Change the name and what your framework does otherwise than {framework.name}; the rest can go.\n"
    return head + description_text(FrameworkDescription.starting_from(framework))


def description_text(description: FrameworkDescription) -> str:
    """The description as a YAML file, with what each fact means."""
    meanings = {each.name: each for each in FACTS}
    lines: list[str] = []
    for name, value in description.model_dump(mode="json", exclude_none=True).items():
        if (each := meanings.get(name)) is not None:
            some = "Some" if each.is_list else "One"
            choices = f" {some} of {', '.join(each.choices)}." if each.choices else ""
            wrapped = textwrap.wrap(
                each.fact.meaning + choices, _WIDTH, initial_indent="# ", subsequent_indent="# "
            )
            lines += ["", *wrapped]
        lines.append(yaml.safe_dump({name: value}, allow_unicode=True, width=math.inf).rstrip())
    return "\n".join(lines) + "\n"


def _with(framework: Framework, document: Document, stated: Iterable[WireFact]) -> Framework:
    """``framework`` with those facts that ``document`` states."""
    given = ((each, getattr(document, each.name)) for each in stated)
    return replace(framework, **{each.field: each.read(value) for each, value in given if value is not None})
