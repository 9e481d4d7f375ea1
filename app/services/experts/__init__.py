"""Routing statistics and maps of experts."""
