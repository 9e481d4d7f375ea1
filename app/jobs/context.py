"""Parts of the process that running jobs need."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from app.db.engine import SessionFactory
from app.metrics import Metrics
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class JobContext:
    """Handed to the workflows when the engine starts; ``stopping`` is set when the process is to end.

    ``solving`` holds the plans, replans and other jobs that are worked on just now.
    """

    settings: Settings
    sessions: SessionFactory
    metrics: Metrics
    executor_id: str
    pid_scope: str
    stopping: threading.Event = field(default_factory=threading.Event)
    solving: set[str] = field(default_factory=set)
