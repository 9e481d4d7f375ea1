"""How the service writes its log: text for people, or one JSON object a line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from opentelemetry import trace

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
    written = as_json if settings.log_json else as_text
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _with_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *written],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    _write_alike(shared, written)


def _with_trace(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """The event with the id of the trace that it belongs to, if any."""
    current = trace.get_current_span().get_span_context()
    return {**event, "trace_id": trace.format_trace_id(current.trace_id)} if current.is_valid else event


@contextmanager
def warnings_only() -> Iterator[None]:
    """Write warnings and errors alone, to standard error: a command speaks for itself."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_names: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _write_alike(
    shared: Sequence[structlog.typing.Processor], written: Sequence[structlog.typing.Processor]
) -> None:
    """Let libraries, whose warnings go through ``logging``, write in the same form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *written],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    engine = logging.getLogger("dbos")  # it makes a handler of its own where it has none
    engine.handlers, engine.propagate = [handler], False
