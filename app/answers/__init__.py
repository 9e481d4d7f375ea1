"""Answers about stored and computed things: the same over HTTP and from ``--json``."""
