"""How the service writes its log: text for people, or one JSON object a line."""

from __future__ import annotations

import logging
import sys

import structlog

from app.settings import Settings


def configure_logs(settings: Settings) -> None:
    """Write events of this process to standard error, with what is bound to the request they belong to."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if settings.log_json else structlog.dev.ConsoleRenderer(colors=False)
    )
    exceptions: list[structlog.typing.Processor] = (
        [structlog.processors.dict_tracebacks] if settings.log_json else []
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *exceptions,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
