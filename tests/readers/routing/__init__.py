"""Readers of routing statistics."""
