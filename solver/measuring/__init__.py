"""Measurements to make next: which pairs of nodes, why, at which sizes, and which of them at once."""
