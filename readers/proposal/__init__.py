"""Proposal of nodes, switches and samples that follows from the facts of several files."""
