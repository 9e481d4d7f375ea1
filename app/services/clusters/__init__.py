"""Clusters: stored, imported, measured, and as they are at this moment."""
