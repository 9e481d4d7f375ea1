"""Costs of a training step, before any placement: time and memory of every part, vectorised over candidates."""
