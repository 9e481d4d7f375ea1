"""How the service writes its log: text for people, or one JSON object a line."""

from __future__ import annotations

import logging
import sys

import structlog

from app.settings import Settings


def configure_logs(settings: Settings) -> None:
    """Write events of this process to standard error, with what is bound to the request they belong to."""
    # Tracebacks without local variables: those hold whole clusters, and passwords in database addresses.
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    as_json: list[structlog.typing.Processor] = [
        structlog.processors.ExceptionRenderer(tracebacks),
        structlog.processors.JSONRenderer(),
    ]
    as_text: list[structlog.typing.Processor] = [
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(as_json if settings.log_json else as_text),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
