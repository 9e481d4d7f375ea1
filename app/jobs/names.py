"""Names that the job engine keeps in its database; whoever enqueues and whoever runs must agree on them."""

from __future__ import annotations

from typing import Final

APPLICATION: Final = "meshwright"
APPLICATION_VERSION: Final = "1"
"""Raised only when the order of steps in a workflow changes: other versions' open solves are not resumed."""
SOLVE_QUEUE: Final = "solve"
"""Only solves wait here; a workflow that waits for others would need a queue of its own, or block its children."""
SOLVE_WORKFLOW: Final = "solve_plan"
