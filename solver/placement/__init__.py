"""Nodes for the parts of a plan: the problem, a compiled local search, bounds, and the integer program."""
