"""Durable solves: a row that is queued gets solved once, whatever is killed meanwhile.

Light on purpose: the solving child (``solve_child``) starts through this package and must not load the engine.
"""
