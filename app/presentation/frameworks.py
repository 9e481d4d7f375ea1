"""A training framework in words."""

from __future__ import annotations

from cluster_models.training.frameworks import Framework


def framework_words(framework: Framework) -> str:
    """Its title; of one that is not shipped also that its user describes it, and what it starts from."""
    own = f" (described by its user, like {framework.like})" if framework.like else ""
    return f"{framework.title}{own}"
