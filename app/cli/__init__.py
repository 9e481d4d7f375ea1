"""The command line ``meshwright``."""

try:
    from app.cli.commands import main
except KeyboardInterrupt:  # Ctrl-C while modules load: no command is there yet to say so
    raise SystemExit(130) from None

__all__ = ["main"]
