"""Measurements of accuracy, speed and plan quality; run with ``python -m benchmarks.<name>``."""
