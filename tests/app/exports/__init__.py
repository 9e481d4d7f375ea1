"""Exports: what every format says, and that a changed figure never leaves."""
