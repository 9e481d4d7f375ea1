"""What ``meshwright serve`` does: the service in this process, until it is told to end."""

from __future__ import annotations

import uvicorn

from app.main import create_app
from app.settings import Settings


def run_server(*, host: str | None, port: int | None) -> None:
    """Serve with the settings of the environment; ``host`` and ``port`` go before them."""
    given = {"host": host, "port": port}
    settings = Settings().model_copy(update={name: value for name, value in given.items() if value is not None})
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, log_config=None)
