"""``meshwright backup`` and ``meshwright restore``."""

from __future__ import annotations

from pathlib import Path

from app.cli.environment import read_settings
from app.cli.terminal import console
from app.db import backup
from app.jobs.runtime import lock_data_folder


def run_backup(folder: Path) -> None:
    """Copy the databases of the settings, which may be in use."""
    for copy in backup.backup(read_settings(), folder):
        console().print(f"{copy}: {copy.stat().st_size} bytes", soft_wrap=True)


def run_restore(folder: Path) -> None:
    """Put copies in the place of the databases of the settings, which nobody may use."""
    settings = read_settings()
    with lock_data_folder(settings):
        for database in backup.restore(settings, folder):
            console().print(f"{database}: restored", soft_wrap=True)
