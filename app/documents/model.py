"""A model: by catalogue name, by its Hugging Face ``config.json``, or by its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from app.documents.architecture import ArchitectureDocument
from app.documents.reading import Document, Text, read_document
from cluster_models.errors import InvalidModel
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.model.huggingface import architecture_from_config

_WAYS = ("catalogue", "huggingface", "architecture")


class ModelDocument(Document):
    """Exactly one of the three ways to say which model."""

    catalogue: Text | None = Field(None, description="Name of a model of the catalogue.", examples=["llama-3-70b"])
    huggingface: dict[str, Any] | None = Field(
        None,
        description="The content of a Hugging Face config.json.",
        examples=[{"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80}],
    )
    architecture: ArchitectureDocument | None = Field(None, description="The numbers, given by hand.")
    name: Text | None = Field(None, description="What to call the model, with huggingface.", examples=["our-13b"])

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [way for way in _WAYS if getattr(self, way) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(_WAYS)}; {' and '.join(given) or 'none'} given")
        if self.name is not None and self.huggingface is None:
            raise ValueError("name goes with huggingface only")
        return self

    def to_architecture(self) -> Architecture:
        """The domain value; raises ``InvalidModel`` where the model is unknown or incomplete."""
        if self.catalogue is not None:
            return catalogue_model(self.catalogue)
        if self.huggingface is not None:
            return architecture_from_config(self.huggingface, name=self.name)
        assert self.architecture is not None
        return self.architecture.to_value()

    @classmethod
    def from_architecture(cls, architecture: Architecture) -> ModelDocument:
        """The document that gives every number."""
        return cls(architecture=ArchitectureDocument.from_value(architecture))


def model_document(data: object, *, what: str = "model", name: str | None = None) -> ModelDocument:
    """The document in any of its spellings; ``name`` is for a bare ``config.json`` that has none.

    A text is a catalogue name; a mapping is a model document, a bare ``config.json`` (it has ``model_type``
    or ``architectures``) or a bare architecture (it has ``layers``).
    """
    if isinstance(data, str):
        return ModelDocument(catalogue=data)
    if isinstance(data, Mapping) and not any(way in data for way in _WAYS):
        if "model_type" in data or "architectures" in data:
            return ModelDocument(huggingface=dict(data), name=None if data.get("_name_or_path") else name)
        if "layers" in data:
            return ModelDocument(architecture=read_document(ArchitectureDocument, data, what=what))
        raise InvalidModel(
            what,
            sorted(str(key) for key in data)[:10],
            "is neither a model document, a Hugging Face config.json nor an architecture",
            f"give one of {', '.join(_WAYS)}; a config.json has model_type or architectures, "
            "an architecture has layers",
        )
    return read_document(ModelDocument, data, what=what)
